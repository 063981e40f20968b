//! Whether this thread is just now inside a node, or an operation on variables, so that waiting there for the whole executor, or engine, is an error and not a hang.

use std::cell::Cell;
use std::ptr;

use crate::sync::thread_local;

thread_local! {
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// What this thread is inside of. A node may await a run of another executor, and an operation push to an engine that runs at once: then there is one around it. It lies on the stack.
struct Frame {
    /// The address of an executor's exits lane, or of an engine: enough to compare; nothing is reached through it. Null where it does something for others.
    of: usize,
    outer: *const Frame,
}

/// Has `work` done as one that is inside of that executor, or engine.
#[inline(always)]
pub(crate) fn inside<R>(of: *const (), work: impl FnOnce() -> R) -> R {
    // A thread that is being torn down runs no nodes.
    let outer = INNERMOST.try_with(Cell::get).unwrap_or(ptr::null());
    let frame = Frame { of: of.addr(), outer };
    set(&raw const frame);
    let _out = Out(outer);
    work()
}

/// Has `work` done that others wait for, and who is around it need not.
pub(crate) fn for_others<R>(work: impl FnOnce() -> R) -> R {
    inside(ptr::null(), work)
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

/// Returns true if this thread runs something of that executor, or engine.
pub(crate) fn is_inside(of: *const ()) -> bool {
    is_within(ptr::null(), of.addr())
}

/// Returns true if this thread is inside of that, and that inside of the frame `outermost`, or of anything if there is none.
fn is_within(outermost: *const Frame, of: usize) -> bool {
    let mut frame = INNERMOST.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: a frame is taken out before it ends, and those around it end after it.
    while let Some(around) = unsafe { frame.as_ref() }.filter(|_| frame != outermost) {
        if around.of == of {
            return true;
        }
        frame = around.outer;
    }
    false
}

/// How far inside a thread is. To be asked only by that, and only while it is no further out.
#[derive(Clone, Copy)]
pub(crate) struct Here(*const Frame);

impl Here {
    pub(crate) fn now() -> Self {
        Self(INNERMOST.try_with(Cell::get).unwrap_or(ptr::null()))
    }

    /// Returns true if this thread does something for others now that it did not then.
    pub(crate) fn has_begun_for_others(self) -> bool {
        is_within(self.0, 0)
    }
}
