//! A set of nodes that is cleared in O(1), so that the cost of a search depends on the nodes that it visits.

use crate::graph::NodeId;

/// A set of nodes: those whose stamp is the current one.
pub(super) struct Marks {
    stamps: Vec<u32>,
    current: u32,
}

impl Marks {
    pub(super) fn new(nodes: usize) -> Self {
        Self { stamps: vec![0; nodes], current: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.current = self.current.wrapping_add(1);
        if self.current == 0 {
            self.stamps.fill(0);
            self.current = 1;
        }
    }

    /// Adds a node. Returns whether it was new.
    pub(super) fn insert(&mut self, node: NodeId) -> bool {
        std::mem::replace(&mut self.stamps[node.index()], self.current) != self.current
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.stamps[node.index()] == self.current
    }
}
