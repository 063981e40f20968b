//! From a policy's labels to streams: the number and the device of each stream. Nodes without a label get
//! host streams.

use std::collections::HashMap;

use super::needs::stream_needs;
use super::order::frontier_order;
use super::{Assignment, NONE, chains};
use crate::graph::{Links, NodeId, Shape};

/// The streams of a schedule: those of the policy by label, then the host's.
#[derive(Clone)]
pub(super) struct Streams {
    /// The number of each node's stream, the first if it has several.
    pub(super) of: Vec<u32>,
    /// The additional streams of nodes that have several, node after node.
    pub(super) more: Vec<(NodeId, u32)>,
    /// The labels that the policy used, in order.
    pub(super) labels: Vec<u32>,
    /// The device of each label's stream.
    pub(super) devices: Vec<u32>,
    /// The number of streams, including those of the host.
    pub(super) count: usize,
}

impl Streams {
    /// Numbers the streams, and lays host chains over the nodes without one. `order` is topological.
    pub(super) fn new(shape: &Shape, links: &Links, order: &[NodeId], assignment: &Assignment) -> Self {
        let chains = chains::lay(links, order, assignment);
        let mut streams = match assignment.singles().filter(|_| shape.nodes().iter().all(|node| node.devices.is_none())) {
            Some(labels) => Self::on_one_device(labels),
            None => Self::on_devices(shape, links, assignment),
        };
        let devices = streams.labels.len() as u32;
        for (stream, chain) in streams.of.iter_mut().zip(chains.of) {
            if chain != NONE {
                *stream = devices + chain;
            }
        }
        streams.count = (devices + chains.count) as usize;
        streams
    }

    /// Returns all streams of `node`.
    pub(super) fn all_of(&self, node: NodeId) -> impl Iterator<Item = u32> + '_ {
        let start = if self.more.is_empty() { 0 } else { self.more.partition_point(|more| more.0 < node) };
        let more = self.more[start..].iter().take_while(move |more| more.0 == node);
        std::iter::once(self.of[node.index()]).chain(more.map(|more| more.1))
    }

    fn on_one_device(of: &[Option<u32>]) -> Self {
        let mut labels: Vec<u32> = of.iter().copied().flatten().collect();
        labels.sort_unstable();
        labels.dedup();
        let is_dense = labels.last().is_none_or(|&last| last as usize + 1 == labels.len());
        let number = |label: u32| if is_dense { label } else { number_of(&labels, label) };
        let of = of.iter().map(|label| label.map_or(NONE, number)).collect();
        Self { of, more: Vec::new(), devices: vec![0; labels.len()], labels, count: 0 }
    }

    /// Makes a stream on each device for a label on several devices. The first device keeps the label. The
    /// others get new labels after the last one.
    fn on_devices(shape: &Shape, links: &Links, assignment: &Assignment) -> Self {
        let devices = Devices::new(shape, links);
        let placed: Vec<(NodeId, u32, u32)> = shape.ids().flat_map(|node| places(node, assignment, &devices)).collect();
        let mut pairs: Vec<(u32, u32)> = placed.iter().map(|&(_, label, device)| (label, device)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut next = pairs.last().map_or(0, |pair| pair.0 + 1);
        let mut streams: Vec<(u32, u32, u32)> = Vec::with_capacity(pairs.len());
        for &(label, device) in &pairs {
            let is_first = streams.last().is_none_or(|&(_, last, _)| last != label);
            let own = if is_first { label } else { next };
            next += u32::from(!is_first);
            streams.push((own, label, device));
        }
        streams.sort_unstable();
        let number: HashMap<(u32, u32), u32> =
            streams.iter().zip(0..).map(|(&(_, label, device), number)| ((label, device), number)).collect();
        let (mut of, mut more) = (vec![NONE; shape.nodes().len()], Vec::new());
        for (node, label, device) in placed {
            let number = number[&(label, device)];
            match of[node.index()] {
                NONE => of[node.index()] = number,
                _ => more.push((node, number)),
            }
        }
        let labels = streams.iter().map(|stream| stream.0).collect();
        Self { of, more, labels, devices: streams.iter().map(|stream| stream.2).collect(), count: 0 }
    }
}

/// The devices of nodes. A node that names none is on the device of the first node, in frontier order, that
/// needs a stream. NNC uses the device of its first stream, which is the same.
pub(super) struct Devices<'a> {
    shape: &'a Shape,
    home: [u32; 1],
}

impl<'a> Devices<'a> {
    pub(super) fn new(shape: &'a Shape, links: &Links) -> Self {
        if !shape.nodes().iter().any(|node| node.devices().is_empty()) {
            return Self { shape, home: [0] };
        }
        let needs = stream_needs(shape);
        let first = frontier_order(links).into_iter().find(|node| needs[node.index()]);
        let home = first.and_then(|node| shape.nodes()[node.index()].devices().first().copied());
        Self { shape, home: [home.unwrap_or(0)] }
    }

    pub(super) fn of(&self, node: NodeId) -> &[u32] {
        match self.shape.nodes()[node.index()].devices() {
            [] => &self.home,
            devices => devices,
        }
    }
}

/// Returns the labels of a node's streams, with their devices.
fn places<'a>(
    node: NodeId,
    assignment: &Assignment,
    devices: &'a Devices<'_>,
) -> impl Iterator<Item = (NodeId, u32, u32)> + use<'a> {
    let (mut labels, devices): (Vec<u32>, &[u32]) = (assignment.of(node).collect(), devices.of(node));
    if let [label] = labels[..] {
        labels.resize(devices.len(), label);
    }
    labels.into_iter().zip(devices).map(move |(label, &device)| (node, label, device))
}

fn number_of(labels: &[u32], label: u32) -> u32 {
    labels.binary_search(&label).expect("labels holds every label of the assignment") as u32
}
