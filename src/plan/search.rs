//! A search for a path through programs, from both its ends: backwards through predecessors, and forwards
//! through successors. The end that has cost less goes on. An exchange of many ranks has a predecessor and a
//! successor on each of them, and only one of these is on the path.

use super::verify::Past;
use crate::graph::NodeId;

/// A search, for one path after the other.
pub(super) struct Search<'a> {
    past: &'a Past<'a>,
    searches: u64,
    back: Side,
    forth: Side,
}

/// One of the ends of a search.
struct Side {
    /// For each node, the number of the last search that found it.
    seen: Vec<u64>,
    /// The nodes that were found, and are not expanded.
    found: Vec<NodeId>,
    /// The links that this search has followed.
    cost: usize,
}

impl Side {
    fn new(nodes: usize) -> Self {
        Self { seen: vec![0; nodes], found: Vec::new(), cost: 0 }
    }

    fn clear(&mut self) {
        self.found.clear();
        self.cost = 0;
    }

    fn add(&mut self, node: NodeId, search: u64) {
        self.cost += 1;
        if std::mem::replace(&mut self.seen[node.index()], search) != search {
            self.found.push(node);
        }
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(past: &'a Past<'a>) -> Self {
        let nodes = past.spots.len();
        Self { past, searches: 0, back: Side::new(nodes), forth: Side::new(nodes) }
    }

    /// Returns whether `source`, or a later node of its stream, is one of `starts` or precedes one.
    pub(super) fn finds(&mut self, source: NodeId, starts: impl Iterator<Item = NodeId>) -> bool {
        let (past, wanted) = (self.past, self.past.spots[source.index()]);
        let place = |node: NodeId| past.spots[node.index()].place;
        self.searches += 1;
        let search = self.searches;
        self.back.clear();
        self.forth.clear();
        starts.for_each(|start| self.back.add(start, search));
        let last = self.back.found.iter().map(|&start| place(start)).max().unwrap_or(0);
        self.forth.add(source, search);
        // Successors are those with all waits.
        let goes_forth = past.without.get() == usize::MAX;
        while let (Some(&late), Some(&early)) = (self.back.found.last(), self.forth.found.last()) {
            let spot = past.spots[late.index()];
            if spot.stream == wanted.stream && spot.index >= wanted.index || self.forth.seen[late.index()] == search {
                return true;
            }
            let (waits, successors) = ((spot.waits.1 - spot.waits.0) as usize, past.after.of(early));
            if goes_forth && self.forth.cost + successors.len() < self.back.cost + waits {
                if self.back.seen[early.index()] == search {
                    return true;
                }
                self.forth.found.pop();
                // A node after the last start, in an order that all programs keep, cannot precede it.
                let near = successors.iter().filter(|&&next| place(next) <= last);
                near.for_each(|&next| self.forth.add(next, search));
            } else {
                self.back.found.pop();
                // A node before the wanted one cannot come after it.
                if spot.place > wanted.place {
                    past.before(late).for_each(|before| self.back.add(before, search));
                }
            }
        }
        false
    }
}
