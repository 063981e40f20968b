//! A backward search from a node through all of its predecessors, nearest first. Its cost depends on the
//! nodes that it visits, not on the graph. In large graphs it is bounded.

use std::ops::ControlFlow;

use super::EXACT_NODES_MAX;
use super::marks::Marks;
use crate::graph::{Links, NodeId};

/// The most edges that one search follows in a graph of more than [`EXACT_NODES_MAX`] nodes.
const EFFORT_MAX: usize = 64;

/// The answer of a visitor: break to stop the search, or continue, and whether to search behind this node.
pub(super) type Next = ControlFlow<(), bool>;

pub(super) struct Ancestors {
    seen: Marks,
    found: Vec<NodeId>,
    effort: usize,
}

impl Ancestors {
    /// Returns a search for graphs of `nodes` nodes.
    pub(super) fn new(nodes: usize) -> Self {
        let effort = if nodes <= EXACT_NODES_MAX { usize::MAX } else { EFFORT_MAX };
        Self { seen: Marks::new(nodes), found: Vec::new(), effort }
    }

    /// Calls `visit` once for each predecessor of `node`, direct or indirect, breadth first.
    pub(super) fn search(&mut self, links: &Links, node: NodeId, mut visit: impl FnMut(NodeId) -> Next) {
        self.seen.clear();
        self.found.clear();
        self.found.push(node);
        let (mut next, mut met) = (0, 0);
        while let Some(&reached) = self.found.get(next) {
            next += 1;
            for &source in links.into.of(reached) {
                met += 1;
                // The limit counts edges, so that the million producers of one node are not searched again
                // for each of its readers.
                if met > self.effort {
                    return;
                }
                if self.seen.insert(source) {
                    match visit(source) {
                        ControlFlow::Break(()) => return,
                        ControlFlow::Continue(true) => self.found.push(source),
                        ControlFlow::Continue(false) => {}
                    }
                }
            }
        }
    }
}
