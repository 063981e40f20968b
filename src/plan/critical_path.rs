//! `CriticalPath`: the shortest makespan that a greedy list gives, on as many streams as you say.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use super::order::{Links, kahn_order};
use super::streams::home_device;
use super::{Assignment, Policy, needs};
use crate::error::Result;
use crate::graph::{NodeId, Shape};

/// Takes the node with the longest way to the end by `cost_us`, of those whose inputs have their place, and puts it on the stream
/// where it ends first, counting what it costs to hand over from another stream. List scheduling (Graham, "Bounds on multiprocessing
/// timing anomalies", 1969) by bottom level, as in HEFT (Topcuoglu, Hariri and Wu, 2002) without its gaps.
///
/// For devices where the number of streams is given and the makespan matters. It is as good as the costs are: measure them, and use
/// [`Plan::recompile_with`](super::Plan::recompile_with). O((n + m) log n) and n times the number of streams.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CriticalPath {
    streams: u32,
    hand_off_us: f64,
}

impl CriticalPath {
    /// Returns the policy for at most `streams` streams on each device; a hand-over costs 5 µs.
    pub const fn new(streams: u32) -> Self {
        Self { streams, hand_off_us: 5.0 }
    }

    /// Sets what it costs when a node's input comes from another stream, in microseconds.
    pub const fn hand_off_us(self, hand_off_us: f64) -> Self {
        Self { hand_off_us, ..self }
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
        if !(self.hand_off_us.is_finite() && self.hand_off_us >= 0.0) {
            return Err(self.refuse(&format!("hands over in {} us: a cost is finite and not negative", self.hand_off_us)));
        }
        let links = Links::new(shape);
        let order = kahn_order(&links);
        let levels = bottom_levels(shape, &links, &order);
        let mut list = List::new(self, shape, &links);
        let mut missing = links.in_degrees();
        let roots = links.ids().filter(|node| missing[node.index()] == 0);
        let mut ready: BinaryHeap<Ready> = roots.map(|node| Ready(levels[node.index()], Reverse(node))).collect();
        let mut assignment = Assignment::none(shape);
        let mut issued = Vec::with_capacity(order.len());
        while let Some(Ready(_, Reverse(node))) = ready.pop() {
            issued.push(node);
            assignment.set_all(node, &list.place(node));
            for &target in links.out.of(node) {
                missing[target.index()] -= 1;
                if missing[target.index()] == 0 {
                    ready.push(Ready(levels[target.index()], Reverse(target)));
                }
            }
        }
        assignment.set_order(issued);
        assignment.set_remark(format!("at most {} streams, {} us to hand over", self.streams, self.hand_off_us));
        Ok(assignment)
    }
}

/// Returns, for each node, its cost and that of the dearest path behind it.
fn bottom_levels(shape: &Shape, links: &Links, order: &[NodeId]) -> Vec<f64> {
    let mut levels = vec![0.0; links.nodes()];
    for &node in order.iter().rev() {
        let below = links.out.of(node).iter().map(|target| levels[target.index()]).fold(0.0, f64::max);
        levels[node.index()] = shape.nodes()[node.index()].cost_us + below;
    }
    levels
}

/// A node whose inputs have their place; the greatest has the highest level, the first in the input among equals.
#[derive(PartialEq)]
struct Ready(f64, Reverse<NodeId>);

impl Eq for Ready {}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The list as far as it goes.
struct List<'a> {
    policy: &'a CriticalPath,
    shape: &'a Shape,
    links: &'a Links,
    needs: Vec<bool>,
    home: u32,
    /// The labels of each device's streams, and by label when the stream is free.
    streams: HashMap<u32, Vec<u32>>,
    free_us: Vec<f64>,
    ends_us: Vec<f64>,
    /// The streams of each node; none for nodes of the host.
    placed: Vec<Vec<u32>>,
}

impl<'a> List<'a> {
    fn new(policy: &'a CriticalPath, shape: &'a Shape, links: &'a Links) -> Self {
        let needs = needs::stream_needs(shape);
        let home = home_device(shape, links);
        let (ends_us, placed) = (vec![0.0; links.nodes()], vec![Vec::new(); links.nodes()]);
        Self { policy, shape, links, needs, home, streams: HashMap::new(), free_us: Vec::new(), ends_us, placed }
    }

    /// Puts `node` where it ends first. Returns its streams.
    fn place(&mut self, node: NodeId) -> Vec<u32> {
        let cost_us = self.shape.nodes()[node.index()].cost_us;
        let home = [self.home];
        let devices: &[u32] = match (self.needs[node.index()], self.shape.nodes()[node.index()].devices()) {
            (false, _) => &[],
            (true, []) => &home,
            (true, devices) => devices,
        };
        let streams: Vec<u32> = devices.iter().map(|&device| self.stream_for(node, device)).collect();
        let starts = streams.iter().map(|&stream| self.start_us(node, Some(stream)));
        let start_us = starts.reduce(f64::max).unwrap_or_else(|| self.start_us(node, None));
        streams.iter().for_each(|&stream| self.free_us[stream as usize] = start_us + cost_us);
        self.ends_us[node.index()] = start_us + cost_us;
        self.placed[node.index()].clone_from(&streams);
        streams
    }

    /// Returns the stream of `device` on which `node` starts first; among equals one that has an input of it, then the first.
    fn stream_for(&mut self, node: NodeId, device: u32) -> u32 {
        let opened = self.streams.entry(device).or_default();
        // One more than are in use, for a node that is better off there.
        if opened.len() < self.policy.streams as usize && opened.last().is_none_or(|&last| self.free_us[last as usize] > 0.0) {
            opened.push(self.free_us.len() as u32);
            self.free_us.push(0.0);
        }
        let has_input = |stream: u32| self.links.into.of(node).iter().any(|source| self.placed[source.index()].contains(&stream));
        let key = |stream: u32| (self.start_us(node, Some(stream)), !has_input(stream));
        let streams = self.streams[&device].iter().copied();
        streams
            .min_by(|&one, &other| key(one).partial_cmp(&key(other)).expect("costs are finite"))
            .expect("a device has a stream")
    }

    /// When `node` could start on `stream`, or on the host.
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
