//! Whether this thread is just now inside a node, or an operation on variables, so that waiting there for the
//! whole executor, or engine, is an error and not a hang.

use std::cell::Cell;
use std::ptr;

use crate::sync::thread_local;

thread_local! {
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// What this thread is inside of. A node may await a run of another executor, and an operation push to an
/// engine that runs at once: then there is one around it. It lies on the stack.
struct Frame {
    /// The address of an executor's exits lane, or of an engine: enough to compare; nothing is reached
    /// through it. Plus [`BODY`] inside of a body.
    of: usize,
    outer: *const Frame,
}

/// Set in the address of a frame that runs one body, and no future. Addresses are even.
const BODY: usize = 1;

/// Runs the body of an operation of that engine, or an observer: that is nobody's, so of null.
#[inline(always)]
pub(crate) fn inside<R>(of: *const (), work: impl FnOnce() -> R) -> R {
    within(of.addr() | BODY, work)
}

/// Runs `work` as inside of that executor: a worker's life, or a poll of async nodes.
#[inline(always)]
pub(super) fn inside_executor<R>(of: *const (), work: impl FnOnce() -> R) -> R {
    within(of.addr(), work)
}

#[inline(always)]
fn within<R>(of: usize, work: impl FnOnce() -> R) -> R {
    // A thread that is being torn down runs no nodes.
    let outer = INNERMOST.try_with(Cell::get).unwrap_or(ptr::null());
    let frame = Frame { of, outer };
    set(&raw const frame);
    let _out = Out(outer);
    work()
}

/// Goes back to what was around, also if what was inside panics.
struct Out(*const Frame);

impl Drop for Out {
    #[inline(always)]
    fn drop(&mut self) {
        set(self.0);
    }
}

#[inline(always)]
fn set(frame: *const Frame) {
    let _ = INNERMOST.try_with(|innermost| innermost.set(frame));
}

/// Returns the frames that this thread is inside of, innermost first.
fn frames() -> impl Iterator<Item = usize> {
    let mut frame = INNERMOST.try_with(Cell::get).unwrap_or(ptr::null());
    std::iter::from_fn(move || {
        // SAFETY: a frame is taken out before it ends, and those around it end after it.
        let around = unsafe { frame.as_ref() }?;
        frame = around.outer;
        Some(around.of)
    })
}

/// Returns true if this thread runs something of that executor, or engine.
pub(crate) fn is_inside(of: *const ()) -> bool {
    frames().any(|frame| frame & !BODY == of.addr())
}

/// Returns true if this thread runs the body of an operation within the innermost frame of that executor.
pub(super) fn is_inside_body(of: *const ()) -> bool {
    let mut is_body = false;
    for frame in frames() {
        if frame == of.addr() {
            return is_body;
        }
        is_body |= frame & BODY != 0;
    }
    false
}
