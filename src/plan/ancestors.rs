//! A search backwards from a node through all that precedes it, nearest first. It pays for what it meets, and
//! stops at a bound in large graphs.

use std::ops::ControlFlow;

use super::EXACT_NODES_MAX;
use super::marks::Marks;
use crate::graph::{Links, NodeId};

/// How many edges one search follows in a graph of more than [`EXACT_NODES_MAX`].
const EFFORT_MAX: usize = 64;

/// The answer to a search that has met a node: to stop, or whether to go on behind the node.
pub(super) type Next = ControlFlow<(), bool>;

pub(super) struct Ancestors {
    seen: Marks,
    found: Vec<NodeId>,
    effort: usize,
}

impl Ancestors {
    /// Returns the search of a graph with `nodes` nodes.
    pub(super) fn new(nodes: usize) -> Self {
        let effort = if nodes <= EXACT_NODES_MAX { usize::MAX } else { EFFORT_MAX };
        Self { seen: Marks::new(nodes), found: Vec::new(), effort }
    }

    /// Calls `visit` once for each node that precedes `node`, breadth first.
    pub(super) fn search(&mut self, links: &Links, node: NodeId, mut visit: impl FnMut(NodeId) -> Next) {
        self.seen.clear();
        self.found.clear();
        self.found.push(node);
        let (mut next, mut met) = (0, 0);
        while let Some(&reached) = self.found.get(next) {
            next += 1;
            for &source in links.into.of(reached) {
                met += 1;
                // Counted by edges, so that a node with a million producers is not looked through again for
                // each of its readers.
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
