//! Random shapes: many small ones and a few large ones. The seed determines the shape.

use std::ops::Range;

use anabranch::graph::{Backend, Edge, EdgeKind, Memory, NodeId, Shape};
use anabranch::plan::Schedule;

use super::policies;

/// Steele, Lea and Flood's SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((word ^ (word >> 31)) as u128 * bound as u128) >> 64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// A shape of 1 to `nodes_max` nodes with every feature of shapes: nodes in any order, all backends, parallel
/// edges, several outputs of a node, order-only and metadata-only edges, declared outputs or none, several
/// devices, commands, costs.
pub(crate) fn random_shape(seed: u64, nodes_max: usize) -> Shape {
    let mut draw = Draw(seed);
    let count = 1 + draw.below(nodes_max);
    let (fan_in, reach) = (1 + draw.below(4), 1 + draw.below(count));
    let backends = [&[Backend::Cpu][..], &[Backend::Gpu], &[Backend::Cpu, Backend::Gpu, Backend::Mixed]][draw.below(3)];
    let mut shape = Shape::new();
    let mut ids: Vec<NodeId> =
        (0..count).map(|node| shape.node(format!("n{node}"), backends[draw.below(backends.len())])).collect();
    if draw.one_in(2) {
        (1..count).for_each(|place| ids.swap(place, draw.below(place + 1)));
    }
    for place in 1..count {
        for _ in 0..draw.below(fan_in + 1) {
            let (source, target) = (ids[place - 1 - draw.below(reach.min(place))], ids[place]);
            let memory = draw.one_in(4).then_some(Memory::Cpu);
            let kind = match draw.below(8) {
                0 => EdgeKind::Order,
                draws => EdgeKind::Data { output: draw.below(3) as u32, memory, metadata: draws == 1 },
            };
            shape.edge(Edge::new(source, target, kind));
        }
    }
    if draw.one_in(3) {
        let lists: [&[u32]; 6] = [&[0], &[1], &[0, 1], &[2, 0], &[], &[0, 1, 2]];
        shape.nodes_mut().iter_mut().for_each(|node| node.devices = Some(lists[draw.below(6)].into()));
    }
    if draw.one_in(2) {
        let commands = ["add", "mul", "sum"];
        shape.nodes_mut().iter_mut().for_each(|node| node.command = Some(commands[draw.below(3)].into()));
        shape.nodes_mut().iter_mut().for_each(|node| node.cost_us = draw.below(9) as f64);
    }
    if draw.one_in(2) {
        (0..1 + draw.below(4)).for_each(|output| shape.output(ids[draw.below(count)], output as u32 % 2));
    }
    shape
}

/// One source, `width` nodes after it, and one node after those.
pub(crate) fn fan(width: usize) -> Shape {
    let mut shape = Shape::new();
    let source = shape.node("source", Backend::Gpu);
    let middle: Vec<NodeId> = (0..width).map(|node| shape.node(format!("m{node}"), Backend::Gpu)).collect();
    let join = shape.node("join", Backend::Gpu);
    middle.iter().for_each(|&node| shape.read(source, 0, node));
    middle.iter().for_each(|&node| shape.read(node, 0, join));
    shape
}

/// Checks many small shapes, some larger ones, and a few of the largest size for which searches are exact,
/// with all policies.
pub(super) fn for_many_shapes(mut check: impl FnMut(&Shape, &Schedule, &str)) {
    let groups: [(Range<u64>, usize); 3] = [(0..400, 40), (400..460, 300), (460..466, 2_000)];
    for (seed, nodes_max) in groups.into_iter().flat_map(|(seeds, nodes_max)| seeds.map(move |seed| (seed, nodes_max))) {
        let shape = random_shape(seed, nodes_max);
        for policy in policies() {
            let schedule = shape.schedule_with(policy).expect("a schedule");
            check(&shape, &schedule, &format!("seed {seed}, up to {nodes_max} nodes, policy {}", policy.name()));
        }
    }
}
