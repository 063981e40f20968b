//! The order between collectives and the loops and branches that communicate inside. The collectives of one
//! graph have numbers, and so have those of an inner graph; between the two kinds, edges make the order that
//! all ranks keep: that in which the nodes were added.

use super::shape::NodeId;

#[derive(Default)]
pub(super) struct Chain {
    /// The last loop or branch that communicates.
    control: Option<NodeId>,
    /// The collectives since then.
    since: Vec<NodeId>,
    /// Whether a node of the graph, or of an inner graph, communicates.
    pub(super) is_used: bool,
}

impl Chain {
    /// Adds a node that communicates. Returns the node that comes before it. Sends and receives need no
    /// order.
    pub(super) fn add(&mut self, node: NodeId, is_collective: bool) -> Option<NodeId> {
        self.is_used = true;
        if !is_collective {
            return None;
        }
        self.since.push(node);
        self.control
    }

    /// Adds a loop or a branch that communicates. Returns the nodes that come before it. Each of its inner
    /// graphs may call this.
    pub(super) fn add_control(&mut self, node: NodeId) -> Vec<NodeId> {
        self.is_used = true;
        let last = self.control.replace(node).filter(|&last| last != node);
        let mut before = std::mem::take(&mut self.since);
        before.extend(last);
        before
    }
}
