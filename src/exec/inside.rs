//! Whether this thread is just now inside a node, or an operation on variables, so that waiting there for the whole executor, or engine, is an error and not a hang.

use std::cell::Cell;
use std::ptr;

use crate::sync::thread_local;

thread_local! {
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// What this thread is inside of. A node may await a run of another executor, and an operation push to an engine that runs at once: then there is one around it. It lies on the stack.
struct Frame {
    /// The address of an executor's exits lane, or of an engine: enough to compare; nothing is reached through it.
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
    let mut frame = INNERMOST.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: a frame is taken out before it ends, and those around it end after it.
    while let Some(around) = unsafe { frame.as_ref() } {
        if around.of == of.addr() {
            return true;
        }
        frame = around.outer;
    }
    false
}
