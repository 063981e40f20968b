//! Whether this thread is inside of an executor's worker, or of the body of an operation. A wait there for
//! the whole executor or engine would never end, so it is an error.

use std::cell::Cell;
use std::ptr;

use crate::sync::thread_local;

thread_local! {
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// One nesting level, on the stack. A node may await a run of another executor, and an operation may push to
/// an engine that runs it at once; then there is a frame around this one.
struct Frame {
    /// The address of an executor, a run or an engine; only compared. [`BODY`] is set inside of a body.
    of: usize,
    outer: *const Frame,
}

/// Set in the address of a frame that runs one body, and no future. Addresses are even.
const BODY: usize = 1;

/// Runs the body of an operation of that engine; or an observer, with `of` 0.
#[inline(always)]
pub(crate) fn inside<R>(of: usize, work: impl FnOnce() -> R) -> R {
    inside_executor(of | BODY, work)
}

/// Runs a worker's loop as inside of that executor; or the nodes of a run without workers, as inside of the
/// run, too.
#[inline(always)]
pub(crate) fn inside_executor<R>(of: usize, work: impl FnOnce() -> R) -> R {
    // A thread that is being torn down runs no nodes.
    let outer = INNERMOST.try_with(Cell::get).unwrap_or(ptr::null());
    let frame = Frame { of, outer };
    set(&raw const frame);
    let _leave = Leave(outer);
    work()
}

/// Returns to the outer frame, also if the work panics.
struct Leave(*const Frame);

impl Drop for Leave {
    #[inline(always)]
    fn drop(&mut self) {
        set(self.0);
    }
}

#[inline(always)]
fn set(frame: *const Frame) {
    let _ = INNERMOST.try_with(|innermost| innermost.set(frame));
}

/// Returns the frames of this thread, innermost first.
fn frames() -> impl Iterator<Item = usize> {
    let mut frame = INNERMOST.try_with(Cell::get).unwrap_or(ptr::null());
    std::iter::from_fn(move || {
        // SAFETY: the frame is linked, and `Leave` unlinks it before its stack memory ends.
        let around = unsafe { frame.as_ref() }?;
        frame = around.outer;
        Some(around.of)
    })
}

/// Returns true if this thread runs nothing of any executor or engine.
#[inline]
pub(crate) fn is_outside() -> bool {
    INNERMOST.try_with(|innermost| innermost.get().is_null()).unwrap_or(false)
}

thread_local! {
    /// The address of the executor whose flow or asynchronous operation this thread polls, or 0.
    static POLLED: Cell<usize> = const { Cell::new(0) };
}

/// Polls a flow's code, or the future of an operation, of the executor with that address.
#[inline]
pub(crate) fn inside_poll<R>(of: usize, poll: impl FnOnce() -> R) -> R {
    struct Leave(usize);

    impl Drop for Leave {
        #[inline]
        fn drop(&mut self) {
            let _ = POLLED.try_with(|polled| polled.set(self.0));
        }
    }

    let _leave = Leave(POLLED.try_with(|polled| polled.replace(of)).unwrap_or(0));
    poll()
}

/// Returns true if this thread polls a flow or an operation of that executor.
pub(crate) fn is_in_poll_of(of: usize) -> bool {
    POLLED.try_with(|polled| polled.get() == of).unwrap_or(false)
}

/// Returns true if this thread runs a flow, a node or an operation of any executor.
pub(crate) fn is_inside_work() -> bool {
    !is_outside() || POLLED.try_with(|polled| polled.get() != 0).unwrap_or(false)
}

/// Returns true if this thread runs something of that executor or engine.
pub(crate) fn is_inside(of: usize) -> bool {
    frames().any(|frame| frame & !BODY == of)
}

/// Returns true if this thread runs a body of any operation, or an observer.
pub(crate) fn is_inside_any_body() -> bool {
    frames().any(|frame| frame & BODY != 0)
}

/// Returns true if this thread runs a body within the innermost frame of that executor.
pub(crate) fn is_inside_body(of: usize) -> bool {
    let mut is_body = false;
    for frame in frames() {
        if frame == of {
            return is_body;
        }
        is_body |= frame & BODY != 0;
    }
    false
}
