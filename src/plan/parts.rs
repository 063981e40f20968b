//! Nodes on several streams, taken apart: one part for each stream. What is found of parts (waits, points, releases) needs no
//! case for such nodes.
//!
//! Each part waits for all that the node needs. A reader sees the part on its own stream; else the parts on its stream's
//! device; else all of them: no order is left to what the node itself may do across its devices.

use std::ops::Range;

use super::order::Links;
use super::streams::Streams;
use crate::graph::NodeId;

/// The parts of all nodes. The first part of a node has the node's number, further ones follow behind all nodes.
pub(super) struct Parts {
    pub(super) links: Links,
    /// In issue order, the parts of one node together.
    pub(super) order: Vec<NodeId>,
    /// The stream of each part.
    pub(super) stream_of: Vec<u32>,
    further: Further,
}

/// The parts of nodes behind their first.
#[derive(Clone, Default)]
pub(super) struct Further {
    nodes: usize,
    /// The node of each, in the order of the nodes.
    of: Vec<NodeId>,
}

impl Further {
    /// Returns the parts of `node`.
    pub(super) fn parts(&self, node: NodeId) -> impl Iterator<Item = NodeId> + Clone + use<> {
        let range = if self.of.is_empty() { 0..0 } else { self.range(node) };
        std::iter::once(node).chain(range.map(|index| NodeId(index as u32)))
    }

    /// Returns the node of a part.
    pub(super) fn node(&self, part: NodeId) -> NodeId {
        if self.of.is_empty() || part.index() < self.nodes { part } else { self.of[part.index() - self.nodes] }
    }

    fn range(&self, node: NodeId) -> Range<usize> {
        let (start, end) = (self.of.partition_point(|&of| of < node), self.of.partition_point(|&of| of <= node));
        self.nodes + start..self.nodes + end
    }
}

impl Parts {
    /// Takes the nodes apart; if each is on one stream, they are their own parts.
    pub(super) fn new(links: &Links, order: &[NodeId], streams: &Streams) -> Option<Self> {
        if streams.more.is_empty() {
            return None;
        }
        let further = Further { nodes: order.len(), of: streams.more.iter().map(|more| more.0).collect() };
        let stream_of: Vec<u32> = streams.of.iter().copied().chain(streams.more.iter().map(|more| more.1)).collect();
        let device = |part: NodeId| streams.devices.get(stream_of[part.index()] as usize);
        let mut edges = Vec::new();
        for target in links.ids() {
            for part in further.parts(target) {
                for &source in links.into.of(target) {
                    let sources = further.parts(source);
                    let is_own = |source: &NodeId| stream_of[source.index()] == stream_of[part.index()];
                    let is_near = |source: &NodeId| device(*source) == device(part);
                    match (sources.clone().find(is_own), sources.clone().any(|source| is_near(&source))) {
                        (Some(own), _) => edges.push((own, part)),
                        (None, true) => edges.extend(sources.filter(is_near).map(|source| (source, part))),
                        (None, false) => edges.extend(sources.map(|source| (source, part))),
                    }
                }
            }
        }
        let links = Links::of(stream_of.len(), edges.iter().map(|&(source, target)| (source, target, true)));
        let order = order.iter().flat_map(|&node| further.parts(node)).collect();
        Some(Self { links, order, stream_of, further })
    }

    pub(super) fn further(&self) -> &Further {
        &self.further
    }
}
