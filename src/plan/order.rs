//! The orders in which a graph is walked. Ties are broken by the order of the input everywhere, so equal
//! inputs give equal plans; nothing recurses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::graph::{NodeId, Shape, check_ids};

impl Shape {
    /// Returns the nodes in an order in which each comes after all that it depends on: of all nodes that are
    /// ready, the one that stands first in the shape comes next. A shape that is in such an order already
    /// keeps it.
    ///
    /// The policies of this library visit nodes in this order, and a schedule is issued in it. The algorithm
    /// is Kahn's ("Topological sorting of large networks", 1962) with a heap for the ties. O(n + m) if the
    /// shape is ordered, else O((n + m) log n).
    ///
    /// Nodes on a cycle are left out. So are nodes with an edge from a node that the shape does not have, and
    /// all nodes that depend on these. A shape that a policy is asked about has no such nodes.
    pub fn topological_order(&self) -> Vec<NodeId> {
        if check_ids(self).is_ok() {
            return kahn_order(&Links::new(self));
        }
        // An edge from an unknown node becomes an edge of its target to itself, which nothing can order.
        let is_known = |node: NodeId| node.index() < self.nodes().len();
        let edges = self.edges().iter().filter(|edge| is_known(edge.target)).map(|edge| {
            let source = if is_known(edge.source) { edge.source } else { edge.target };
            (source, edge.target, edge.is_data())
        });
        kahn_order(&Links::of(self.nodes().len(), edges.collect::<Vec<_>>().into_iter()))
    }
}

/// For each node a row of nodes, in one piece of memory (compressed sparse rows).
pub(super) struct Rows {
    starts: Vec<u32>,
    items: Vec<NodeId>,
}

impl Rows {
    /// Returns the row of `node`.
    pub(super) fn of(&self, node: NodeId) -> &[NodeId] {
        &self.items[self.range(node)]
    }

    /// Returns where the row of `node` lies in [`Rows::items`].
    pub(super) fn range(&self, node: NodeId) -> std::ops::Range<usize> {
        self.starts[node.index()] as usize..self.starts[node.index() + 1] as usize
    }
}

/// The edges of a shape, by source and by target. Parallel edges are kept.
pub(super) struct Links {
    /// Targets by source, in the order of the edges.
    pub(super) out: Rows,
    /// Sources by target, in the order of the edges.
    pub(super) into: Rows,
    /// For each item of `out`, whether its edge carries data.
    pub(super) is_data: Vec<bool>,
}

impl Links {
    pub(super) fn new(shape: &Shape) -> Self {
        Self::of(shape.nodes().len(), shape.edges().iter().map(|edge| (edge.source, edge.target, edge.is_data())))
    }

    /// Returns the links of `nodes` nodes with these edges: source, target, and whether the edge carries
    /// data.
    pub(super) fn of(
        nodes: usize,
        edges: impl ExactSizeIterator<Item = (NodeId, NodeId, bool)> + DoubleEndedIterator + Clone,
    ) -> Self {
        let mut out = Rows { starts: vec![0; nodes + 1], items: vec![NodeId(0); edges.len()] };
        let mut into = Rows { starts: vec![0; nodes + 1], items: vec![NodeId(0); edges.len()] };
        for (source, target, _) in edges.clone() {
            out.starts[source.index()] += 1;
            into.starts[target.index()] += 1;
        }
        ends_of_rows(&mut out.starts);
        ends_of_rows(&mut into.starts);
        let mut is_data = vec![false; edges.len()];
        // Backwards, so that each row is filled from its end and `starts` ends up at the starts: no second
        // set of cursors.
        for (source, target, carries_data) in edges.rev() {
            let place = &mut out.starts[source.index()];
            *place -= 1;
            out.items[*place as usize] = target;
            is_data[*place as usize] = carries_data;
            let place = &mut into.starts[target.index()];
            *place -= 1;
            into.items[*place as usize] = source;
        }
        Self { out, into, is_data }
    }

    /// Returns the number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.out.starts.len() - 1
    }

    /// Returns the number of edges.
    pub(super) fn edges(&self) -> usize {
        self.is_data.len()
    }

    /// Returns all nodes, in the order of the input.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes() as u32).map(NodeId)
    }

    /// Returns, for each node, the number of its in-edges.
    pub(super) fn in_degrees(&self) -> Vec<u32> {
        self.into.starts.windows(2).map(|ends| ends[1] - ends[0]).collect()
    }
}

/// Turns counts per row into the place where each row ends.
fn ends_of_rows(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

/// Kahn order with input-order ties; see [`Shape::topological_order`].
pub(super) fn kahn_order(links: &Links) -> Vec<NodeId> {
    if links.ids().all(|node| links.into.of(node).iter().all(|&source| source < node)) {
        return links.ids().collect();
    }
    let mut missing = links.in_degrees();
    let mut order = Vec::with_capacity(links.nodes());
    let mut ready: BinaryHeap<Reverse<NodeId>> = links.ids().filter(|node| missing[node.index()] == 0).map(Reverse).collect();
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for target in links.out.of(node) {
            missing[target.index()] -= 1;
            if missing[target.index()] == 0 {
                ready.push(Reverse(*target));
            }
        }
    }
    order
}

/// Frontier order, the visit order of NNC's static schedule: layers from the sources, in which a lone
/// successor that has become ready takes its predecessor's place instead of waiting for the next layer, so
/// straight runs stay together. O(n + m).
pub(super) fn frontier_order(links: &Links) -> Vec<NodeId> {
    let mut missing = links.in_degrees();
    let mut order = Vec::with_capacity(links.nodes());
    let mut frontier: Vec<NodeId> = links.ids().filter(|node| missing[node.index()] == 0).collect();
    let mut next = Vec::new();
    while !frontier.is_empty() {
        for mut node in frontier.drain(..) {
            loop {
                order.push(node);
                let targets = links.out.of(node);
                let before = next.len();
                for target in targets {
                    missing[target.index()] -= 1;
                    if missing[target.index()] == 0 {
                        next.push(*target);
                    }
                }
                if targets.len() > 1 || next.len() == before {
                    break;
                }
                node = next.pop().expect("the lone target was just pushed");
            }
        }
        std::mem::swap(&mut frontier, &mut next);
    }
    order
}

/// Returns, for each node, the number of edges of the longest path that follows it: its rank.
///
/// NNC defines rank over filtered edges, those that no longer path bypasses. A longest path never uses an
/// edge that a longer path bypasses, so all edges give the same number.
pub(super) fn ranks(links: &Links, order: &[NodeId]) -> Vec<u32> {
    let mut ranks = vec![0; links.nodes()];
    for &node in order.iter().rev() {
        let below = links.out.of(node).iter().map(|target| ranks[target.index()] + 1).max();
        ranks[node.index()] = below.unwrap_or(0);
    }
    ranks
}

/// Returns the edges whose targets wait for the end of their sources, if those are not all.
pub(super) fn waiting_links(shape: &Shape) -> Option<Links> {
    if !shape.edges().iter().any(|edge| shape.is_submission(edge)) {
        return None;
    }
    let waiting = shape.edges().iter().filter(|edge| !shape.is_submission(edge));
    let edges: Vec<_> = waiting.map(|edge| (edge.source, edge.target, edge.is_data())).collect();
    Some(Links::of(shape.nodes().len(), edges.into_iter()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Backend;

    fn shape(nodes: u32, edges: &[(u32, u32)]) -> Shape {
        let mut shape = Shape::new();
        for node in 0..nodes {
            shape.node(format!("n{node}"), Backend::Cpu);
        }
        for &(source, target) in edges {
            shape.order(NodeId(source), NodeId(target));
        }
        shape
    }

    fn numbers(nodes: &[NodeId]) -> Vec<u32> {
        nodes.iter().map(|node| node.0).collect()
    }

    #[test]
    fn kahn_order_takes_the_first_ready_node_of_the_input() {
        let shape = shape(5, &[(3, 0), (4, 1), (0, 2)]);
        assert_eq!(numbers(&shape.topological_order()), [3, 0, 2, 4, 1]);
    }

    #[test]
    fn an_ordered_input_keeps_its_order() {
        let shape = shape(4, &[(0, 3), (1, 2), (2, 3)]);
        assert_eq!(numbers(&shape.topological_order()), [0, 1, 2, 3]);
    }

    #[test]
    fn nodes_on_and_behind_a_cycle_are_left_out() {
        let shape = shape(4, &[(1, 2), (2, 1), (2, 3)]);
        assert_eq!(numbers(&shape.topological_order()), [0]);
    }

    #[test]
    fn nodes_behind_an_unknown_node_are_left_out() {
        // 7 is no node of the shape: an edge to it orders nothing, one from it can never be kept.
        let shape = shape(4, &[(0, 7), (7, 1), (1, 2)]);
        assert_eq!(numbers(&shape.topological_order()), [0, 3]);
    }

    #[test]
    fn frontier_order_runs_along_straight_parts() {
        // 0 forks to 1 and 2; 1 -> 3 is straight; 2 -> 4 is not, because 4 also waits for 3.
        let shape = shape(5, &[(0, 1), (0, 2), (1, 3), (2, 4), (3, 4)]);
        assert_eq!(numbers(&frontier_order(&Links::new(&shape))), [0, 1, 3, 2, 4]);
    }

    #[test]
    fn ranks_count_the_longest_path_to_an_end() {
        let links = Links::new(&shape(4, &[(0, 1), (1, 2), (0, 2), (0, 3)]));
        let order = kahn_order(&links);
        assert_eq!(ranks(&links, &order), [2, 1, 0, 0]);
    }
}
