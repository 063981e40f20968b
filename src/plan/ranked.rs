//! `Ranked`: chains along the longest path to the end, gathered by command. It is NNC's static schedule with
//! a limit of streams that balances their load.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use super::ancestors::Ancestors;
use super::marks::Marks;
use super::order::{frontier_order, ranks};
use super::streams::Devices;
use super::{Assignment, EXACT_NODES_MAX, NONE, Policy, needs};
use crate::error::Result;
use crate::graph::{Links, NodeId, NodeShape, Shape};

/// The most nodes that are tried to continue a chain, in a graph of more than [`EXACT_NODES_MAX`] nodes.
const TRIES_MAX: usize = 16;

/// Lays the first stream along the longest path to the end of the graph. The next stream begins at the first
/// node that remains. A node continues the stream of a tail that precedes it, and prefers a stream that has
/// run its command: a stream owns its execution context and workspace. From NNC's static schedule.
///
/// Two nodes share a stream only if one depends on the other, unless there is a limit. With
/// [`Ranked::max_streams`], a node without a free stream joins the stream that is free first, by `cost_us`
/// (NNC's rule would be the least loaded). Then chains continue only to nodes whose inputs are placed, so no
/// stream waits for later work of another. The limit does not change a graph that needs no more streams.
///
/// This is the default policy: [`Graph::compile`](crate::graph::Graph::compile) uses it without a limit.
///
/// Nodes that span several devices get a stream on each. O(n + m), times the limit where it is reached. Above
/// 4,096 nodes there is one bounded search per node, and the plan may have more streams than needed.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::policy::Ranked;
///
/// let mut shape = Shape::new();
/// ["a", "b", "c", "d"].map(|name| shape.node(name, Backend::Gpu));
/// assert_eq!(shape.schedule_with(&Ranked::default())?.streams(), 4);
/// assert_eq!(shape.schedule_with(&Ranked::default().max_streams(2))?.streams(), 2);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ranked {
    max_streams: Option<u32>,
}

impl Ranked {
    /// Sets the most streams to use, on all devices together. The default is no limit.
    pub fn max_streams(self, max_streams: u32) -> Self {
        Self { max_streams: Some(max_streams) }
    }
}

impl Policy for Ranked {
    fn name(&self) -> &str {
        "ranked"
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        if self.max_streams == Some(0) {
            return Err(self.refuse("has no streams: give it at least one"));
        }
        let needs = needs::stream_needs(shape);
        if !needs.contains(&true) {
            // No node needs a stream, so there is no reason to change the graph's own order.
            return Ok(Assignment::none(shape));
        }
        let links = Links::new(shape);
        let order = frontier_order(&links);
        let ground = Ground::new(shape, &links, &order, &needs);
        let mut layer = Layer::new(&ground, u32::MAX);
        layer.lay_all();
        if let Some(max) = self.max_streams {
            let devices = ground.device_count();
            if (max as usize) < devices {
                return Err(self.refuse(&format!("has at most {max} streams for {devices} devices: give it one for each")));
            }
            if layer.streams.len() > max as usize {
                layer = Layer::new(&ground, max);
                layer.lay_all();
            }
        }
        let is_limited = layer.is_limited();
        let mut assignment = layer.into_assignment();
        if let Some(max) = self.max_streams.filter(|_| is_limited) {
            assignment.set_remark(format!("at most {max} streams"));
        }
        assignment.set_order(order);
        Ok(assignment)
    }
}

/// Facts about the graph, computed before any stream is laid.
struct Ground<'a> {
    shape: &'a Shape,
    links: &'a Links,
    order: &'a [NodeId],
    needs: &'a [bool],
    ranks: Vec<u32>,
    /// The number of each node's command, if other nodes have it too.
    commands: Vec<Option<u32>>,
    devices: Devices<'a>,
}

impl<'a> Ground<'a> {
    fn new(shape: &'a Shape, links: &'a Links, order: &'a [NodeId], needs: &'a [bool]) -> Self {
        let commands = shared_commands(shape);
        Self { shape, links, order, needs, ranks: ranks(links, order), commands, devices: Devices::new(shape, links) }
    }

    fn device_count(&self) -> usize {
        let nodes = self.shape.ids().filter(|node| self.needs[node.index()]);
        nodes.flat_map(|node| self.devices.of(node)).collect::<HashSet<_>>().len()
    }
}

/// Returns the number of each node's command. None if no other node has the command, because then no lookup
/// needs it.
fn shared_commands(shape: &Shape) -> Vec<Option<u32>> {
    // Names are unique, so without commands no two nodes share one.
    if shape.nodes().iter().all(|node| node.command.is_none()) {
        return vec![None; shape.nodes().len()];
    }
    let mut numbers: HashMap<&str, (u32, bool)> = HashMap::new();
    for node in shape.nodes() {
        let next = numbers.len() as u32;
        numbers.entry(node.command()).and_modify(|known| known.1 = true).or_insert((next, false));
    }
    let shared = |node: &NodeShape| Some(numbers[&**node.command()]).filter(|known| known.1).map(|known| known.0);
    shape.nodes().iter().map(shared).collect()
}

struct Stream {
    device: u32,
    /// The last node on the stream.
    tail: NodeId,
    /// The summed cost of its nodes.
    load_us: f64,
    /// The time when its last node ends.
    free_us: f64,
}

struct Layer<'a> {
    ground: &'a Ground<'a>,
    max_streams: u32,
    streams: Vec<Stream>,
    /// The commands that each stream has run, as (stream, command).
    commands_run: HashSet<(u32, u32)>,
    /// The stream of each node on its first device, and its streams on other devices.
    first: Vec<u32>,
    further: HashMap<(NodeId, u32), u32>,
    ancestors: Ancestors,
    /// The successors of the node at the end of the current chain.
    is_target: Marks,
    /// Whether a node may be the last of a stream. Most nodes that a search visits are not.
    is_tail: Vec<bool>,
    /// Only with a limit, for each node: the number of edges from unplaced nodes, the time of its end, and
    /// the number of its devices without a stream.
    missing: Vec<u32>,
    ends_us: Vec<f64>,
    devices_left: HashSet<u32>,
}

impl<'a> Layer<'a> {
    fn new(ground: &'a Ground<'a>, max_streams: u32) -> Self {
        let nodes = ground.links.nodes();
        let is_limited = max_streams != u32::MAX;
        let devices = ground.shape.ids().filter(|node| ground.needs[node.index()]).flat_map(|node| ground.devices.of(node));
        Self {
            ground,
            max_streams,
            streams: Vec::new(),
            commands_run: HashSet::new(),
            first: vec![NONE; nodes],
            further: HashMap::new(),
            ancestors: Ancestors::new(nodes),
            is_target: Marks::new(nodes),
            is_tail: vec![false; nodes],
            missing: if is_limited { ground.links.in_degrees() } else { Vec::new() },
            ends_us: if is_limited { vec![0.0; nodes] } else { Vec::new() },
            devices_left: if is_limited { devices.copied().collect() } else { HashSet::new() },
        }
    }

    fn is_limited(&self) -> bool {
        self.max_streams != u32::MAX
    }

    fn lay_all(&mut self) {
        for &node in self.ground.order {
            for &device in self.ground.devices.of(node) {
                if self.ground.needs[node.index()] && self.stream_on(node, device).is_none() {
                    let stream = self.find_stream(node, device);
                    self.lay(node, device, stream);
                }
            }
            if !self.ground.needs[node.index()] {
                self.settle(node, 0.0);
            }
        }
    }

    /// Returns the stream of `node` on `device`, if it has one.
    fn stream_on(&self, node: NodeId, device: u32) -> Option<u32> {
        let stream = match self.ground.devices.of(node) {
            [first, ..] if *first == device => self.first[node.index()],
            _ => self.further.get(&(node, device)).copied().unwrap_or(NONE),
        };
        Some(stream).filter(|&stream| stream != NONE)
    }

    /// Returns whether the stream has run the node's command.
    fn has_run(&self, stream: u32, node: NodeId) -> bool {
        self.ground.commands[node.index()].is_some_and(|command| self.commands_run.contains(&(stream, command)))
    }

    fn find_stream(&mut self, node: NodeId, device: u32) -> u32 {
        if let Some(stream) = self.recycled(node, device) {
            return stream;
        }
        let reserved = self.devices_left.len() - usize::from(self.devices_left.contains(&device));
        if self.streams.len() + reserved < self.max_streams as usize {
            self.devices_left.remove(&device);
            self.streams.push(Stream { device, tail: node, load_us: 0.0, free_us: 0.0 });
            return self.streams.len() as u32 - 1;
        }
        let ready_us = self.ready_us(node);
        let streams = self.streams.iter().zip(0..).filter(|(stream, _)| stream.device == device);
        let key = |stream: &Stream| (stream.free_us.max(ready_us), stream.load_us);
        let free_first = streams.min_by(|(one, _), (other, _)| key(one).partial_cmp(&key(other)).expect("costs are finite"));
        free_first.expect("each device has a stream, one is reserved for it").1
    }

    /// Returns the first stream of `device` whose tail precedes `node`. Prefers a stream that has run the
    /// node's command.
    fn recycled(&mut self, node: NodeId, device: u32) -> Option<u32> {
        let mut best: Option<(bool, u32)> = None;
        let mut ancestors = std::mem::replace(&mut self.ancestors, Ancestors::new(0));
        ancestors.search(self.ground.links, node, |source| {
            let is_last = |&stream: &u32| self.streams[stream as usize].tail == source;
            if self.is_tail[source.index()]
                && let Some(stream) = self.stream_on(source, device).filter(is_last)
            {
                let found = (!self.has_run(stream, node), stream);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
            ControlFlow::Continue(true)
        });
        self.ancestors = ancestors;
        best.map(|(_, stream)| stream)
    }

    /// Extends `stream` from `node` along the highest rank.
    fn lay(&mut self, node: NodeId, device: u32, stream: u32) {
        let before = self.streams[stream as usize].tail;
        // A node that spans several devices may still be the last of another stream.
        self.is_tail[before.index()] &= self.ground.devices.of(before).len() > 1;
        let mut tail = node;
        self.put(tail, device, stream);
        while let Some(next) = self.next_after(tail, device, stream) {
            tail = next;
            self.put(tail, device, stream);
        }
        self.streams[stream as usize].tail = tail;
        self.is_tail[tail.index()] = true;
    }

    fn put(&mut self, node: NodeId, device: u32, stream: u32) {
        match self.ground.devices.of(node) {
            [first, ..] if *first == device => self.first[node.index()] = stream,
            _ => _ = self.further.insert((node, device), stream),
        }
        if let Some(command) = self.ground.commands[node.index()] {
            self.commands_run.insert((stream, command));
        }
        if self.is_limited() {
            let cost_us = self.ground.shape.nodes()[node.index()].cost_us;
            let ready_us = self.ready_us(node);
            let stream = &mut self.streams[stream as usize];
            stream.free_us = stream.free_us.max(ready_us) + cost_us;
            stream.load_us += cost_us;
            let free_us = stream.free_us;
            let is_whole = self.ground.devices.of(node).iter().all(|&device| self.stream_on(node, device).is_some());
            match is_whole {
                true => self.settle(node, free_us),
                false => self.ends_us[node.index()] = self.ends_us[node.index()].max(free_us),
            }
        }
    }

    /// Records when `node` ends, once it is placed.
    fn settle(&mut self, node: NodeId, end_us: f64) {
        if self.is_limited() {
            let on_host_us = self.ready_us(node) + self.ground.shape.nodes()[node.index()].cost_us;
            self.ends_us[node.index()] = self.ends_us[node.index()].max(end_us).max(on_host_us);
            self.ground.links.out.of(node).iter().for_each(|target| self.missing[target.index()] -= 1);
        }
    }

    /// Returns the time when all inputs of `node` are ready.
    fn ready_us(&self, node: NodeId) -> f64 {
        self.ground.links.into.of(node).iter().map(|source| self.ends_us[source.index()]).fold(0.0, f64::max)
    }

    /// Returns the node that continues the chain after `node`: a successor that no longer path reaches. Of
    /// these it returns the one of the highest rank, and among equals one whose command the stream has run.
    fn next_after(&mut self, node: NodeId, device: u32, stream: u32) -> Option<NodeId> {
        let mut candidates: Vec<NodeId> = self.candidates(node, device).collect();
        // The sort is stable, so the first among equals stays first.
        candidates.sort_by_cached_key(|next| (std::cmp::Reverse(self.ground.ranks[next.index()]), !self.has_run(stream, *next)));
        // No longer path leads to the highest-ranked of all successors.
        let highest = self.ground.links.out.of(node).iter().map(|target| self.ground.ranks[target.index()]).max();
        let is_highest = |next: &NodeId| Some(self.ground.ranks[next.index()]) == highest;
        if candidates.first().is_some_and(is_highest) {
            return candidates.first().copied();
        }
        let tries = if self.ground.links.nodes() <= EXACT_NODES_MAX { usize::MAX } else { TRIES_MAX };
        self.is_target.clear();
        self.ground.links.out.of(node).iter().for_each(|&target| _ = self.is_target.insert(target));
        candidates.into_iter().take(tries).find(|&next| !self.is_bypassed(node, next))
    }

    fn candidates(&self, node: NodeId, device: u32) -> impl Iterator<Item = NodeId> + '_ {
        let targets = self.ground.links.out.of(node).iter().copied();
        targets.filter(move |&target| {
            self.ground.needs[target.index()]
                && self.ground.devices.of(target).contains(&device)
                && self.stream_on(target, device).is_none()
                && self.missing.get(target.index()).is_none_or(|&missing| missing == 0)
        })
    }

    /// Returns whether another target of `source` precedes `target`: then the edge between them adds no
    /// order. All targets of `source` are in `is_target`.
    fn is_bypassed(&mut self, source: NodeId, target: NodeId) -> bool {
        let (ground, is_target, mut is_bypassed) = (self.ground, &self.is_target, false);
        self.ancestors.search(ground.links, target, |between| match is_target.contains(between) {
            true => {
                is_bypassed = true;
                ControlFlow::Break(())
            }
            // Nodes after the source have a lower rank.
            false => ControlFlow::Continue(ground.ranks[between.index()] < ground.ranks[source.index()]),
        });
        is_bypassed
    }

    fn into_assignment(self) -> Assignment {
        let mut assignment = Assignment::none(self.ground.shape);
        for node in self.ground.shape.ids().filter(|node| self.ground.needs[node.index()]) {
            let devices = self.ground.devices.of(node).iter();
            let streams: Vec<u32> = devices.filter_map(|&device| self.stream_on(node, device)).collect();
            assignment.set_all(node, &streams);
        }
        assignment
    }
}
