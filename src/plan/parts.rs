//! Nodes on several streams, split into parts: one part for each stream. So the searches for waits, points
//! and releases have no special case for such nodes.
//!
//! Each part waits for all inputs of the node. A reader waits for the part on its own stream, if there is
//! one; else for the parts on its stream's device, if there are any; else for all parts, because a node need
//! not order its own work across its devices.

use super::streams::Streams;
use crate::error::{Kind, Result};
use crate::graph::{Links, NodeId};

/// The most edges between parts, unless the graph has more edges between its nodes.
const PART_EDGES_MAX: usize = 1 << 24;

/// The parts of all nodes, in issue order. The parts of a node are consecutive, so that a walk reads memory
/// in order.
pub(super) struct Parts {
    pub(super) links: Links,
    /// The stream of each part.
    pub(super) stream_of: Vec<u32>,
    pub(super) numbers: Numbers,
}

/// The parts of each node, and the node of each part.
#[derive(Clone, Default)]
pub(super) struct Numbers {
    /// The node of each part. Empty if each node is its own part.
    nodes: Vec<NodeId>,
    /// The first part of each node.
    first: Vec<u32>,
}

impl Numbers {
    /// Returns the parts of `node`.
    pub(super) fn parts(&self, node: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        let first = self.first.get(node.index()).copied().unwrap_or(node.0);
        let is_its = move |part: &u32| self.nodes.get(*part as usize) == Some(&node);
        std::iter::once(first).chain((first + 1..).take_while(is_its)).map(NodeId)
    }

    /// Returns the node of a part.
    pub(super) fn node(&self, part: NodeId) -> NodeId {
        self.nodes.get(part.index()).copied().unwrap_or(part)
    }
}

impl Parts {
    /// Splits the nodes into parts. Returns None if each node is on one stream, and the nodes are issued in
    /// their own order. Then each node is its own part.
    ///
    /// # Errors
    /// If there are too many edges between parts. Their number can be the product of the spans of a node and
    /// its reader.
    pub(super) fn new(links: &Links, order: &[NodeId], streams: &Streams) -> Result<Option<Self>> {
        if streams.more.is_empty() && order.is_sorted() {
            return Ok(None);
        }
        let count = order.len() + streams.more.len();
        let (mut numbers, mut stream_of) =
            (Numbers { nodes: Vec::with_capacity(count), first: vec![0; order.len()] }, Vec::with_capacity(count));
        for &node in order {
            numbers.first[node.index()] = numbers.nodes.len() as u32;
            stream_of.extend(streams.all_of(node));
            numbers.nodes.resize(stream_of.len(), node);
        }
        let edges = edges(links, streams, &numbers, &stream_of)?;
        let links = Links::of(count, edges.iter().map(|&(source, target)| (source, target, true)));
        Ok(Some(Self { links, stream_of, numbers }))
    }
}

/// Returns the edges between parts, ordered by target.
fn edges(links: &Links, streams: &Streams, numbers: &Numbers, stream_of: &[u32]) -> Result<Vec<(NodeId, NodeId)>> {
    let device = |part: NodeId| streams.devices.get(stream_of[part.index()] as usize);
    // If no node spans several devices, the number of edges does not change.
    let edges_max = links.edges().max(PART_EDGES_MAX);
    let mut edges = Vec::with_capacity(links.edges());
    for (part, &node) in (0..).map(NodeId).zip(&numbers.nodes) {
        for &source in links.into.of(node) {
            let sources = numbers.parts(source);
            let is_own = |source: &NodeId| stream_of[source.index()] == stream_of[part.index()];
            let is_near = |source: &NodeId| device(*source) == device(part);
            match (sources.clone().find(is_own), sources.clone().any(|source| is_near(&source))) {
                (Some(own), _) => edges.push((own, part)),
                (None, true) => edges.extend(sources.filter(is_near).map(|source| (source, part))),
                (None, false) => edges.extend(sources.map(|source| (source, part))),
            }
        }
        if edges.len() > edges_max {
            let what = "the number of edges between the streams of nodes that span several devices".into();
            return Err(Kind::Limit { what, got: edges.len(), limit: edges_max }.into());
        }
    }
    Ok(edges)
}
