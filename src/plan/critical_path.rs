//! `CriticalPath`: list scheduling for a short makespan, on a given number of streams.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::streams::Devices;
use super::{Assignment, Policy, needs};
use crate::error::Result;
use crate::graph::{COST_US_MAX, Links, NodeId, Shape, kahn_order};

/// Places the ready node with the longest path to the end, by `cost_us`, on the stream where it ends first. A
/// hand-off from another stream has a cost. The algorithm is list scheduling (Graham, "Bounds on
/// multiprocessing timing anomalies", 1969) by bottom level, as in HEFT (Topcuoglu, Hariri and Wu, 2002)
/// without insertion into gaps.
///
/// Use it for devices where the number of streams is given and the makespan matters. It depends on good
/// costs: measure them, and use [`Plan::recompile`](super::Plan::recompile). O((n + m) log n) for any number
/// of streams.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::policy::CriticalPath;
///
/// let mut shape = Shape::new();
/// let [slow, _, _] = ["slow", "b", "c"].map(|name| shape.node(name, Backend::Gpu));
/// shape.nodes_mut()[slow.index()].cost_us = 20.0;
/// // The other two nodes share the second stream.
/// let schedule = shape.schedule_with(&CriticalPath::default().streams(2))?;
/// assert_eq!(schedule.streams(), 2);
/// assert_eq!(schedule.steps(schedule.stream_of(slow)).len(), 1);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CriticalPath {
    streams: u32,
    hand_off_us: f64,
}

impl CriticalPath {
    /// Sets the most streams to use on each device. The default is 4.
    pub fn streams(self, streams: u32) -> Self {
        Self { streams, ..self }
    }

    /// Sets the cost of a hand-off: a node's input comes from another stream. In microseconds. The default is
    /// 5.
    pub fn hand_off_us(self, hand_off_us: f64) -> Self {
        Self { hand_off_us, ..self }
    }
}

impl Default for CriticalPath {
    fn default() -> Self {
        Self { streams: 4, hand_off_us: 5.0 }
    }
}

impl Policy for CriticalPath {
    fn name(&self) -> &str {
        "critical-path"
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        if self.streams == 0 {
            return Err(self.refuse("has no streams: give it at least one"));
        }
        if !(0.0..=COST_US_MAX).contains(&self.hand_off_us) {
            return Err(self.refuse(&format!("has a hand-off of {:?} us: a cost is from 0 to 10^12", self.hand_off_us)));
        }
        let links = Links::new(shape);
        let order = kahn_order(&links);
        let levels = bottom_levels(shape, &links, &order);
        let mut list = List::new(self, shape, &links);
        let mut missing = links.in_degrees();
        let roots = links.ids().filter(|node| missing[node.index()] == 0);
        // The greatest entry has the highest level, and among equals is the first in the input.
        let entry = |node: NodeId| (ordered(levels[node.index()]), Reverse(node));
        let mut ready: BinaryHeap<(u64, Reverse<NodeId>)> = roots.map(entry).collect();
        let mut assignment = Assignment::none(shape);
        let mut issued = Vec::with_capacity(order.len());
        while let Some((_, Reverse(node))) = ready.pop() {
            issued.push(node);
            assignment.set_all(node, &list.place(node));
            links.satisfy(node, &mut missing, |target| ready.push(entry(target)));
        }
        assignment.set_order(issued);
        assignment.set_remark(format!("at most {} streams, {} us per hand-off", self.streams, self.hand_off_us));
        Ok(assignment)
    }
}

/// Returns the bottom level of each node: its cost plus that of the most expensive path after it.
fn bottom_levels(shape: &Shape, links: &Links, order: &[NodeId]) -> Vec<f64> {
    let mut levels = vec![0.0; links.nodes()];
    for &node in order.iter().rev() {
        let below = links.out.of(node).iter().map(|target| levels[target.index()]).fold(0.0, f64::max);
        levels[node.index()] = shape.nodes()[node.index()].cost_us + below;
    }
    levels
}

/// Maps a time that is not negative to an integer, in the same order.
fn ordered(us: f64) -> u64 {
    us.to_bits()
}

/// The state of list scheduling.
struct List<'a> {
    policy: &'a CriticalPath,
    shape: &'a Shape,
    links: &'a Links,
    needs: Vec<bool>,
    devices: Devices<'a>,
    /// The streams of each device, sorted by the time when they are free (see [`ordered`]). By label, the
    /// time when the stream is free, and its device.
    streams: HashMap<u32, BTreeSet<(u64, u32)>>,
    free_us: Vec<f64>,
    device_of: Vec<u32>,
    ends_us: Vec<f64>,
    /// The streams of each node. Empty for nodes of the host.
    placed: Vec<Vec<u32>>,
}

impl<'a> List<'a> {
    fn new(policy: &'a CriticalPath, shape: &'a Shape, links: &'a Links) -> Self {
        let needs = needs::stream_needs(shape);
        let devices = Devices::new(shape, links);
        let (ends_us, placed) = (vec![0.0; links.nodes()], vec![Vec::new(); links.nodes()]);
        Self {
            policy,
            shape,
            links,
            needs,
            devices,
            streams: HashMap::new(),
            free_us: Vec::new(),
            device_of: Vec::new(),
            ends_us,
            placed,
        }
    }

    /// Places `node` on the stream where it ends first. Returns its streams.
    fn place(&mut self, node: NodeId) -> Vec<u32> {
        let cost_us = self.shape.nodes()[node.index()].cost_us;
        let devices = if self.needs[node.index()] { self.devices.of(node).to_vec() } else { Vec::new() };
        let streams: Vec<u32> = devices.iter().map(|&device| self.stream_for(node, device)).collect();
        let starts = streams.iter().map(|&stream| self.start_us(node, Some(stream)));
        let start_us = starts.reduce(f64::max).unwrap_or_else(|| self.start_us(node, None));
        for (&stream, device) in streams.iter().zip(&devices) {
            let before = std::mem::replace(&mut self.free_us[stream as usize], start_us + cost_us);
            let of_device = self.streams.entry(*device).or_default();
            of_device.remove(&(ordered(before), stream));
            of_device.insert((ordered(start_us + cost_us), stream));
        }
        self.ends_us[node.index()] = start_us + cost_us;
        self.placed[node.index()].clone_from(&streams);
        streams
    }

    /// Returns the stream of `device` on which `node` starts first. Among equals it prefers the stream of the
    /// input that ends last, then the stream that has been free for the longest time.
    fn stream_for(&mut self, node: NodeId, device: u32) -> u32 {
        let opened = self.streams.entry(device).or_default();
        // Opens one more stream for a node that would start earlier there.
        if opened.len() < self.policy.streams as usize && opened.first().is_none_or(|first| first.0 > 0) {
            opened.insert((0, self.free_us.len() as u32));
            self.free_us.push(0.0);
            self.device_of.push(device);
        }
        let first_free = opened.first().expect("a device has a stream").1;
        // All streams except that of the last input need the same hand-off. So they differ only in the time
        // when they are free.
        let end_us = |source: &&NodeId| self.ends_us[source.index()];
        let last = self.links.into.of(node).iter().rev().max_by(|one, other| end_us(one).total_cmp(&end_us(other)));
        let placed = last.into_iter().flat_map(|last| &self.placed[last.index()]);
        let near = placed.copied().find(|&stream| self.device_of[stream as usize] == device);
        near.filter(|&near| self.start_us(node, Some(near)) <= self.start_us(node, Some(first_free))).unwrap_or(first_free)
    }

    /// Returns the time when `node` can start on `stream`, or on the host.
    fn start_us(&self, node: NodeId, stream: Option<u32>) -> f64 {
        let free_us = stream.map_or(0.0, |stream| self.free_us[stream as usize]);
        let arrivals = self.links.into.of(node).iter().map(|source| {
            let placed = &self.placed[source.index()];
            let is_near = stream.map_or(placed.is_empty(), |stream| placed.contains(&stream));
            self.ends_us[source.index()] + if is_near { 0.0 } else { self.policy.hand_off_us }
        });
        arrivals.fold(free_us, f64::max)
    }
}
