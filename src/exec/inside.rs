//! Whether this thread is just now inside a node, or an operation on variables, so that waiting there for the whole executor, or engine, is an error and not a hang.

use std::cell::{Cell, RefCell};

use crate::sync::thread_local;

thread_local! {
    /// The address of an executor's exits lane, or of an engine: enough to compare; nothing is reached through it.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
    /// The same of those around that one: a node may await a run of another executor, an operation push to an engine that runs at once.
    static AROUND: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// For as long as it lives, this thread runs what is of that executor, or engine.
pub(crate) struct Inside {
    outer: usize,
}

impl Inside {
    pub(crate) fn enter(of: *const ()) -> Self {
        let outer = INSIDE.try_with(|inside| inside.replace(of.addr())).unwrap_or(0);
        if outer != 0 {
            let _ = AROUND.try_with(|around| around.borrow_mut().push(outer));
        }
        Self { outer }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.set(self.outer));
        if self.outer != 0 {
            let _ = AROUND.try_with(|around| around.borrow_mut().pop());
        }
    }
}

/// Returns true if this thread runs something of that executor, or engine.
pub(crate) fn is_inside(of: *const ()) -> bool {
    // A thread that is being torn down runs no nodes.
    let address = of.addr();
    INSIDE.try_with(|inside| inside.get() == address).unwrap_or(false)
        || AROUND.try_with(|around| around.borrow().contains(&address)).unwrap_or(false)
}
