//! The order in which nodes start to communicate with other ranks.

use super::{NodeId, Shape};

impl Shape {
    /// Sets the order in which nodes start to communicate. No stream has what leads to one of them behind
    /// what follows a later one.
    pub(crate) fn set_starts(&mut self, starts: Vec<NodeId>) {
        self.starts = starts;
    }

    /// Returns the nodes that start to communicate in this order.
    pub(crate) fn starts(&self) -> &[NodeId] {
        &self.starts
    }

    /// Returns a shape for policies, in which a node that communicates comes after those that start before
    /// it. Then the issue order has the nodes that lead to an earlier one before those that follow a later
    /// one, and so has each stream. The schedule has no such wait: a node starts when it is ready and its
    /// turn has come. None if there is nothing to order.
    pub(crate) fn in_order_of_starts(&self) -> Option<Self> {
        let pairs = self.starts.windows(2);
        let mut ordered = (pairs.len() > 0).then(|| self.clone())?;
        pairs.for_each(|pair| ordered.order(pair[0], pair[1]));
        Some(ordered)
    }
}
