//! `MinStreams` and `CriticalPath`: the fewest streams, and the best use of a given number.

use anabranch::graph::{Backend, NodeId, Shape};
use anabranch::plan::StreamKind;
use anabranch::policy::{CriticalPath, MinStreams};

use super::shapes::random_shape;

fn gpu_shape(nodes: usize, edges: impl IntoIterator<Item = (usize, usize)>) -> Shape {
    let mut shape = Shape::new();
    let ids: Vec<NodeId> = (0..nodes).map(|node| shape.node(format!("n{node}"), Backend::Gpu)).collect();
    edges.into_iter().for_each(|(source, target)| shape.read(ids[source], 0, ids[target]));
    shape
}

/// Returns the largest number of nodes that are mutually unordered, by trying all sets of `nodes`.
fn width(shape: &Shape, nodes: &[usize]) -> u32 {
    let count = shape.nodes().len();
    let mut after = vec![vec![false; count]; count];
    shape.edges().iter().for_each(|edge| after[edge.source.index()][edge.target.index()] = true);
    for middle in 0..count {
        for source in 0..count {
            for target in 0..count {
                after[source][target] |= after[source][middle] && after[middle][target];
            }
        }
    }
    let is_independent = |set: &u32| {
        let members: Vec<usize> =
            nodes.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, &node)| node).collect();
        members.iter().all(|&one| members.iter().all(|&other| !after[one][other]))
    };
    (0..1u32 << nodes.len()).filter(is_independent).map(u32::count_ones).max().expect("the empty set")
}

#[test]
fn min_streams_uses_as_many_as_the_graph_is_wide() {
    // All graphs of up to 6 nodes, in an order that can be run. Seen to fail with the first matches only.
    for nodes in 1..=6 {
        let pairs: Vec<(usize, usize)> = (0..nodes).flat_map(|target| (0..target).map(move |source| (source, target))).collect();
        for edges in 0..1u32 << pairs.len() {
            let has = |pair: &usize| edges >> pair & 1 == 1;
            let shape = gpu_shape(nodes, (0..pairs.len()).filter(has).map(|pair| pairs[pair]));
            let schedule = shape.schedule_with(&MinStreams).expect("a schedule");
            assert_eq!(schedule.streams(), width(&shape, &(0..nodes).collect::<Vec<_>>()), "{schedule}");
        }
    }
}

#[test]
fn min_streams_uses_the_width_on_each_device() {
    // Seen to fail with the first matches only.
    for seed in 0..2_000 {
        let shape = random_shape(seed, 14);
        let schedule = shape.schedule_with(&MinStreams).expect("a schedule");
        let kinds: Vec<StreamKind> = (0..schedule.streams()).map(|stream| schedule.kind(stream)).collect();
        for device in 0..3 {
            let kind = StreamKind::Device(device);
            let is_there = |node: &NodeId| schedule.streams_of(*node).any(|stream| schedule.kind(stream) == kind);
            let nodes: Vec<usize> = shape.ids().filter(is_there).map(NodeId::index).collect();
            let streams = kinds.iter().filter(|&&other| other == kind).count() as u32;
            assert_eq!(streams, width(&shape, &nodes), "seed {seed}, device {device}");
        }
    }
}

#[test]
fn min_streams_says_when_it_is_greedy() {
    let shape = gpu_shape(5_000, (1..5_000).map(|node| (node - 1, node)));
    let schedule = shape.schedule_with(&MinStreams).expect("a schedule");
    assert!(schedule.to_string().starts_with("policy min-streams (greedy, above 4096 nodes): 5000 nodes, 1 stream,"));
}

#[test]
fn the_critical_path_comes_first() {
    // Two short nodes precede the long chain in the shape; on two streams they share one. Seen to fail with
    // nodes taken in the order of the shape.
    let mut shape = gpu_shape(4, [(2, 3)]);
    shape.nodes_mut().iter_mut().zip([4.0, 4.0, 5.0, 5.0]).for_each(|(node, cost_us)| node.cost_us = cost_us);
    let expected = "\
policy critical-path (at most 2 streams, 5 us per hand-off): 4 nodes, 2 streams, 0 records, 0 waits
stream 0   run n2 · run n3
stream 1   run n0 · run n1
";
    assert_eq!(shape.schedule_with(&CriticalPath::default().streams(2)).expect("a schedule").to_string(), expected);
}

#[test]
fn a_node_moves_only_if_that_pays() {
    // Three nodes after one: moving one costs 5, doing it later costs 4. Seen to fail without the hand-off's
    // cost.
    let mut shape = gpu_shape(3, [(0, 1), (0, 2)]);
    shape.nodes_mut().iter_mut().for_each(|node| node.cost_us = 4.0);
    let streams = |policy: CriticalPath| shape.schedule_with(&policy).expect("a schedule").streams();
    assert_eq!(
        (streams(CriticalPath::default().streams(2)), streams(CriticalPath::default().streams(2).hand_off_us(3.0))),
        (1, 2)
    );
}

#[test]
fn critical_path_keeps_to_its_streams_on_each_device() {
    for seed in 0..300 {
        let schedule = random_shape(seed, 60).schedule_with(&CriticalPath::default().streams(2)).expect("a schedule");
        for device in 0..3 {
            let on_device = |stream: &u32| schedule.kind(*stream) == StreamKind::Device(device);
            assert!((0..schedule.streams()).filter(on_device).count() <= 2, "seed {seed}");
        }
    }
}

#[test]
fn critical_path_refuses_what_cannot_be() {
    let shape = gpu_shape(1, []);
    let text = |policy: CriticalPath| shape.schedule_with(&policy).expect_err("refused").to_string();
    assert_eq!(text(CriticalPath::default().streams(0)), "policy 'critical-path' has no streams: give it at least one");
    let text = text(CriticalPath::default().streams(1).hand_off_us(f64::NAN));
    assert_eq!(text, "policy 'critical-path' has a hand-off of NaN us: a cost is from 0 to 10^12");
}

#[test]
fn critical_path_takes_any_number_of_streams() {
    // A hundred thousand streams for as many nodes. With a check of every stream for every node, 20,000
    // streams took 7.5 s, optimised.
    let schedule = gpu_shape(100_000, []).schedule_with(&CriticalPath::default().streams(u32::MAX)).expect("a schedule");
    assert_eq!(schedule.streams(), 100_000);
}
