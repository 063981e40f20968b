//! Whether this thread is just now inside a node, so that waiting there for the whole executor is an error and not a hang.

use std::cell::{Cell, RefCell};

use crate::bridge::Lane;
use crate::sync::thread_local;

thread_local! {
    /// The address of an executor's exits lane: enough to compare; nothing is reached through it.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
    /// The same of the executors around that one, whose nodes await runs of others.
    static AROUND: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// For as long as it lives, this thread runs nodes of the executor with these exits.
pub(super) struct Inside {
    outer: usize,
}

impl Inside {
    pub(super) fn enter(exits: &Lane) -> Self {
        let outer = INSIDE.try_with(|inside| inside.replace(address(exits))).unwrap_or(0);
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

/// Returns true if this thread runs a node of the executor with these exits.
pub(super) fn is_inside(exits: &Lane) -> bool {
    // A thread that is being torn down runs no nodes.
    let address = address(exits);
    INSIDE.try_with(|inside| inside.get() == address).unwrap_or(false)
        || AROUND.try_with(|around| around.borrow().contains(&address)).unwrap_or(false)
}

fn address(exits: &Lane) -> usize {
    std::ptr::from_ref(exits).addr()
}
