//! The polling task's share of a run. The driver's lock makes one task at a time the polling task.

use std::time::Instant;

use crate::device::host::Tickets;
use crate::runtime::Woken;

/// The state that the polling task keeps between polls.
#[derive(Default)]
pub(super) struct Driver {
    /// Programs of an inline run that are ready.
    pub(super) tickets: Tickets,
    pub(super) nodes: Vec<AsyncNode>,
    /// Woken nodes for which the last poll had no time.
    pub(super) woken: Woken,
}

/// The state of an async node's future.
#[derive(Clone, Copy)]
pub(super) enum AsyncNode {
    /// There is no future: not yet, or not any more, or not again yet.
    Idle,
    Polled {
        since: Option<Instant>,
    },
}

impl Driver {
    /// Makes room for a run's async nodes.
    pub(super) fn expect_nodes(&mut self, count: usize) {
        self.nodes.resize(count, AsyncNode::Idle);
    }
}
