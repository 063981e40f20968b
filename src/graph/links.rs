//! The edges of a shape, by source and by target, and the order in which each node comes after its
//! predecessors. Ties are broken by the order of the input, so equal inputs give equal plans. No function
//! recurses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::check::check_ids;
use super::shape::{NodeId, Shape};

impl Shape {
    /// Returns the nodes in an order in which each comes after its predecessors. Of all ready nodes, the one
    /// that is first in the shape comes next. If a shape is in such an order already, the order is kept.
    ///
    /// The policies of this library visit nodes in this order, and a schedule is issued in it. The algorithm
    /// is Kahn's ("Topological sorting of large networks", 1962) with a heap for the ties. O(n + m) if the
    /// shape is ordered, else O((n + m) log n).
    ///
    /// Nodes on a cycle are left out. So are nodes with an edge from an unknown node, and all nodes that
    /// depend on these. A shape that a policy gets has no such nodes.
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

/// Rows of items, in one piece of memory (compressed sparse rows).
pub(crate) struct Rows<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T> Rows<T> {
    /// Returns no rows, with capacity for the starts of `rows`.
    pub(crate) fn with_capacity(rows: usize) -> Self {
        let mut starts = Vec::with_capacity(rows + 1);
        starts.push(0);
        Self { starts, items: Vec::new() }
    }

    /// Returns rows from their parts: the start of each row in `items`, and the end of the last one.
    pub(crate) fn of_parts(starts: Vec<u32>, items: Vec<T>) -> Self {
        Self { starts, items }
    }

    pub(crate) fn push(&mut self, items: impl IntoIterator<Item = T>) {
        self.items.extend(items);
        self.starts.push(self.items.len() as u32);
    }

    pub(crate) fn count(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Returns the row of `node`.
    pub(crate) fn of(&self, node: NodeId) -> &[T] {
        self.row(node.0)
    }

    /// Returns row number `row`.
    pub(crate) fn row(&self, row: u32) -> &[T] {
        &self.items[self.range(row)]
    }

    /// Returns the range of row number `row` in the list of all items.
    pub(crate) fn range(&self, row: u32) -> std::ops::Range<usize> {
        self.starts[row as usize] as usize..self.starts[row as usize + 1] as usize
    }

    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }

    /// Calls `change` with each row.
    pub(crate) fn each_mut(&mut self, change: impl Fn(&mut [T])) {
        self.starts.windows(2).for_each(|ends| change(&mut self.items[ends[0] as usize..ends[1] as usize]));
    }
}

impl<T: Copy> Rows<T> {
    /// Returns items sorted by the number of their row. Items of one row keep their order. A counting sort,
    /// O(n).
    pub(crate) fn sorted(rows: usize, items: impl Iterator<Item = (u32, T)> + Clone) -> Self {
        let mut starts = vec![0; rows + 2];
        let Some((_, blank)) = items.clone().next() else { return Self { starts: vec![0; rows + 1], items: Vec::new() } };
        items.clone().for_each(|(row, _)| starts[row as usize + 2] += 1);
        for row in 2..starts.len() {
            starts[row] += starts[row - 1];
        }
        let mut sorted = vec![blank; starts[rows + 1] as usize];
        // `starts` is shifted by one row. It is right once the place of each row has moved to the row's end.
        for (row, item) in items {
            let place = &mut starts[row as usize + 1];
            sorted[*place as usize] = item;
            *place += 1;
        }
        starts.pop();
        Self { starts, items: sorted }
    }
}

/// The edges of a shape, by source and by target. Parallel edges are kept.
pub(crate) struct Links {
    /// Targets by source, in the order of the edges.
    pub(crate) out: Rows<NodeId>,
    /// Sources by target, in the order of the edges.
    pub(crate) into: Rows<NodeId>,
    /// For each item of `out`, whether its edge carries data.
    pub(crate) is_data: Vec<bool>,
}

impl Links {
    pub(crate) fn new(shape: &Shape) -> Self {
        Self::of(shape.nodes().len(), shape.edges().iter().map(|edge| (edge.source, edge.target, edge.is_data())))
    }

    /// Returns the links of `nodes` nodes with these edges: source, target, and whether the edge carries
    /// data.
    pub(crate) fn of(
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
        // Runs backwards, so that each row fills from its end and needs no second set of cursors.
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

    pub(crate) fn nodes(&self) -> usize {
        self.out.starts.len() - 1
    }

    pub(crate) fn edges(&self) -> usize {
        self.is_data.len()
    }

    /// Returns all nodes, in the order of the input.
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes() as u32).map(NodeId)
    }

    /// Returns, for each node, the number of its in-edges.
    pub(crate) fn in_degrees(&self) -> Vec<u32> {
        self.into.starts.windows(2).map(|ends| ends[1] - ends[0]).collect()
    }

    /// Counts the edges out of `node` as satisfied, in `missing`. Calls `ready` with each target that has no
    /// more unsatisfied edges.
    #[inline(always)]
    pub(crate) fn satisfy(&self, node: NodeId, missing: &mut [u32], mut ready: impl FnMut(NodeId)) {
        for &target in self.out.of(node) {
            missing[target.index()] -= 1;
            if missing[target.index()] == 0 {
                ready(target);
            }
        }
    }
}

/// Turns counts per row into the end of each row.
fn ends_of_rows(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

/// Kahn order with input-order ties; see [`Shape::topological_order`].
pub(crate) fn kahn_order(links: &Links) -> Vec<NodeId> {
    if links.ids().all(|node| links.into.of(node).iter().all(|&source| source < node)) {
        return links.ids().collect();
    }
    let mut missing = links.in_degrees();
    let mut order = Vec::with_capacity(links.nodes());
    let mut ready: BinaryHeap<Reverse<NodeId>> = links.ids().filter(|node| missing[node.index()] == 0).map(Reverse).collect();
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        links.satisfy(node, &mut missing, |target| ready.push(Reverse(target)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Backend;

    fn order(nodes: u32, edges: &[(u32, u32)]) -> Vec<u32> {
        let mut shape = Shape::new();
        (0..nodes).for_each(|node| _ = shape.node(format!("n{node}"), Backend::Cpu));
        edges.iter().for_each(|&(source, target)| shape.order(NodeId(source), NodeId(target)));
        shape.topological_order().iter().map(|node| node.0).collect()
    }

    #[test]
    fn the_first_ready_node_of_the_input_comes_next() {
        assert_eq!(order(5, &[(3, 0), (4, 1), (0, 2)]), [3, 0, 2, 4, 1]);
    }

    #[test]
    fn an_ordered_input_keeps_its_order() {
        assert_eq!(order(4, &[(0, 3), (1, 2), (2, 3)]), [0, 1, 2, 3]);
    }

    #[test]
    fn nodes_on_and_behind_a_cycle_are_left_out() {
        assert_eq!(order(4, &[(1, 2), (2, 1), (2, 3)]), [0]);
    }

    #[test]
    fn nodes_behind_an_unknown_node_are_left_out() {
        // The shape has no node 7: an edge to it orders nothing, and an edge from it is never satisfied.
        assert_eq!(order(4, &[(0, 7), (7, 1), (1, 2)]), [0, 3]);
    }
}
