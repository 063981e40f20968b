//! Which engines' operations this thread is inside of, so that waiting there for what may never come is an error and not a hang.

use std::cell::{Cell, RefCell};

use crate::sync::thread_local;

thread_local! {
    /// The address of the hub whose operation this thread runs, or 0.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
    /// Those around it: an operation may push to another engine, which runs that at once.
    static AROUND: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// For as long as it lives, this thread runs an operation of that hub.
pub(super) struct Running {
    outer: usize,
}

impl Running {
    pub(super) fn enter(hub: usize) -> Self {
        let outer = RUNNING.try_with(|running| running.replace(hub)).unwrap_or(0);
        if outer != 0 {
            let _ = AROUND.try_with(|around| around.borrow_mut().push(outer));
        }
        Self { outer }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = RUNNING.try_with(|running| running.set(self.outer));
        if self.outer != 0 {
            let _ = AROUND.try_with(|around| around.borrow_mut().pop());
        }
    }
}

/// Returns true if this thread runs an operation of that hub.
pub(super) fn is_running(hub: usize) -> bool {
    RUNNING.try_with(|running| running.get() == hub).unwrap_or(false)
        || AROUND.try_with(|around| around.borrow().contains(&hub)).unwrap_or(false)
}
