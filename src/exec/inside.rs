//! Whether this thread is just now inside a node, so that waiting there for the whole executor is an error and not a hang.

use std::cell::{Cell, RefCell};

use crate::bridge::Lane;

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
        let outer = INSIDE.replace(address(exits));
        if outer != 0 {
            AROUND.with_borrow_mut(|around| around.push(outer));
        }
        Self { outer }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.outer);
        if self.outer != 0 {
            AROUND.with_borrow_mut(|around| around.pop());
        }
    }
}

/// Returns true if this thread runs a node of the executor with these exits.
pub(super) fn is_inside(exits: &Lane) -> bool {
    INSIDE.get() == address(exits) || AROUND.with_borrow(|around| around.contains(&address(exits)))
}

fn address(exits: &Lane) -> usize {
    std::ptr::from_ref(exits).addr()
}
