//! The values that loops and branches take, and the order of all that read them.

use std::collections::{HashMap, HashSet};

use super::shape::Link;
use super::{Edge, EdgeKind, NodeId, Shape};

impl Shape {
    /// Returns the values that loops and branches take: each taker with the node that makes the value, and
    /// the number of the value there.
    pub(crate) fn taken_values(&self) -> impl Iterator<Item = (NodeId, (NodeId, u32))> {
        let reads = if self.taken_inputs().is_empty() { Vec::new() } else { self.reads() };
        let link = move |&(node, input): &(NodeId, u32)| Some((node, *reads.get(node.index())?.get(input as usize)?));
        self.taken_inputs().iter().filter_map(link).filter_map(|(taker, link)| match link {
            Link::Edge(Edge { source, kind: EdgeKind::Data { output, .. }, .. }) => Some((taker, (source, output))),
            _ => None,
        })
    }

    /// Returns the orders that make each taker the last reader: the reader, the taker, and the first value
    /// that both read.
    pub(super) fn take_orders(&self) -> Vec<(NodeId, NodeId, Link)> {
        if self.taken_inputs().is_empty() {
            return Vec::new();
        }
        let reads = self.reads();
        let known = |link: Link| match link {
            Link::Edge(Edge { source, kind: EdgeKind::Data { output, .. }, .. }) => (Some(source), output),
            Link::Edge(Edge { source, .. }) => (Some(source), 0),
            Link::State { state, .. } => (None, state),
        };
        let taken = self
            .taken_inputs()
            .iter()
            .filter_map(|&(taker, input)| Some((taker, *reads.get(taker.index())?.get(input as usize)?)));
        let taken: HashMap<(Option<NodeId>, u32), NodeId> = taken.map(|(taker, link)| (known(link), taker)).collect();
        let ordered = self.edges().iter().filter(|edge| !edge.is_data()).map(|edge| (edge.source, edge.target));
        let mut ordered: HashSet<(NodeId, NodeId)> = ordered.collect();
        let mut orders = Vec::new();
        for (reader, &link) in self.ids().zip(&reads).flat_map(|(reader, links)| links.iter().map(move |link| (reader, link))) {
            let Some(&taker) = taken.get(&known(link)) else { continue };
            if taker != reader && ordered.insert((reader, taker)) {
                orders.push((reader, taker, link));
            }
        }
        orders
    }
}
