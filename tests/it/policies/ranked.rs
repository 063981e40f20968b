//! `Ranked`: the published cases, nodes on several devices, and the limit.

use anabranch::Ranked;
use anabranch::graph::{Backend, Edge, EdgeKind, Memory, NodeId, Shape};
use anabranch::plan::{Schedule, StreamKind};
use anabranch::policy::Policy;

use super::shape_of;
use super::shapes::fan;

#[test]
fn ranked_gives_the_published_assignments() {
    // Seen to fail with equal commands left apart.
    let file: serde_json::Value = serde_json::from_str(include_str!("../cases/ranked.json")).expect("JSON");
    let cases = file.as_array().expect("a list of cases");
    assert_eq!(cases.len(), 11);
    for case in cases {
        let (shape, name) = (shape_of(&case["graph"]), &case["graph"]["name"]);
        let schedule = shape.schedule().expect("a schedule");
        let numbers = |value: &serde_json::Value| value.as_array().expect("a list").iter().map(number).collect::<Vec<u32>>();
        for node in shape.ids() {
            let expected = numbers(&case["expected"][&*shape.nodes()[node.index()].name]);
            assert_eq!(schedule.streams_of(node).collect::<Vec<_>>(), expected, "{name}, node {}", node.index());
        }
        let order: Vec<&str> = schedule.order().iter().map(|node| &*shape.nodes()[node.index()].name).collect();
        assert_eq!(case["order"], serde_json::json!(order), "{name}");
        let devices = numbers(&case["stream_devices"]).into_iter().map(StreamKind::Device);
        assert!((0..schedule.streams()).map(|stream| schedule.kind(stream)).eq(devices), "{name}");
    }
}

fn number(value: &serde_json::Value) -> u32 {
    value.as_u64().expect("a number") as u32
}

/// Returns the number of nodes that the fullest stream runs between the ends of a fan.
fn middle_of(schedule: &Schedule) -> usize {
    let nodes = schedule.order().len();
    let middle = |stream| schedule.order()[1..nodes - 1].iter().filter(|&&node| schedule.stream_of(node) == stream).count();
    (0..schedule.streams()).map(middle).max().expect("streams")
}

#[test]
fn a_limit_is_kept_and_balances() {
    // Seen to fail with chains that run on to the join at once.
    for (width, max, expected) in [(8, 4, 2), (8, 8, 1), (9, 4, 3), (100, 7, 15), (8, 1, 8)] {
        let schedule = fan(width).schedule_with(&Ranked::default().max_streams(max)).expect("a schedule");
        assert!(schedule.streams() <= max);
        assert_eq!(middle_of(&schedule), expected, "{width} on {max}: {schedule}");
    }
}

#[test]
fn what_a_stream_did_before_a_fan_does_not_count() {
    // Seen to fail with the summed cost alone.
    let mut shape = fan(8);
    let ids: Vec<NodeId> = (0..5).map(|node| shape.node(format!("before{node}"), Backend::Gpu)).collect();
    ids.windows(2).for_each(|pair| shape.read(pair[0], 0, pair[1]));
    let source = shape.ids().next().expect("the source");
    shape.read(ids[4], 0, source);
    let schedule = shape.schedule_with(&Ranked::default().max_streams(4)).expect("a schedule");
    let in_middle = |stream| shape.ids().skip(1).take(8).filter(|&node| schedule.stream_of(node) == stream).count();
    assert!((0..4).all(|stream| in_middle(stream) == 2), "{schedule}");
}

#[test]
fn a_limit_that_is_not_reached_changes_nothing() {
    let shape = fan(8);
    let text = |policy: Ranked| shape.schedule_with(&policy).expect("a schedule").to_string();
    assert_eq!(text(Ranked::default()), text(Ranked::default().max_streams(8)));
}

#[test]
fn a_limit_below_the_devices_is_refused() {
    let mut shape = fan(2);
    shape.nodes_mut()[1].devices = Some([1].into());
    let error = shape.schedule_with(&Ranked::default().max_streams(1)).expect_err("two devices");
    assert_eq!(error.to_string(), "policy 'ranked' has at most 1 streams for 2 devices: give it one for each");
    assert_eq!(shape.schedule_with(&Ranked::default().max_streams(2)).expect("a schedule").streams(), 2);
    assert!(shape.schedule_with(&Ranked::default().max_streams(0)).is_err());
}

#[test]
fn a_node_on_two_devices_waits_on_both() {
    // Seen to fail without waits for the part on the reader's device.
    let mut shape = Shape::new();
    let names = [("a0", vec![0]), ("a1", vec![1]), ("sum", vec![0, 1]), ("b1", vec![1]), ("b0", vec![0]), ("c0", vec![0])];
    let ids = names.map(|(name, devices)| {
        let id = shape.node(name, Backend::Gpu);
        shape.nodes_mut()[id.index()].devices = Some(devices.into());
        id
    });
    for (source, target) in [(0, 2), (1, 2), (2, 3), (2, 4), (2, 5)] {
        shape.read(ids[source], 0, ids[target]);
    }
    let schedule = shape.schedule().expect("a schedule");
    let expected = "\
policy ranked: 6 nodes, 3 streams, 3 records, 3 waits
stream 0               run a0 · record 0@1 · wait 1@1 · run sum · record 0@2 · run b0
stream 1 on device 1   run a1 · record 1@1 · wait 0@1 · run sum · run b1
stream 2               wait 0@2 · run c0
";
    assert_eq!(schedule.to_string(), expected);
    schedule.verify().expect("a correct plan");
}

#[test]
fn policies_for_one_device_are_split_over_several() {
    // Seen to fail with one stream for both devices.
    let mut shape = fan(3);
    shape.nodes_mut()[2].devices = Some([1].into());
    shape.nodes_mut()[3].devices = Some([0, 1].into());
    let schedule = shape.schedule_with(&anabranch::policy::Single).expect("a schedule");
    let streams = |node: usize| schedule.streams_of(shape.ids().nth(node).expect("a node")).collect::<Vec<_>>();
    assert_eq!([streams(0), streams(1), streams(2), streams(3), streams(4)], [vec![0], vec![0], vec![1], vec![0, 1], vec![0]]);
    assert_eq!([schedule.kind(0), schedule.kind(1)], [StreamKind::Device(0), StreamKind::Device(1)]);
    schedule.verify().expect("a correct plan");
}

#[test]
fn policies_are_told_of_streams_and_orders_that_cannot_be() {
    struct Fixed(anabranch::policy::Assignment);
    impl Policy for Fixed {
        fn name(&self) -> &str {
            "fixed"
        }

        fn assign(&self, _: &Shape) -> anabranch::Result<anabranch::policy::Assignment> {
            Ok(self.0.clone())
        }
    }
    let shape = fan(1);
    let ids: Vec<NodeId> = shape.ids().collect();
    let fault = |change: &dyn Fn(&mut anabranch::policy::Assignment)| {
        let mut assignment = anabranch::policy::Assignment::none(&shape);
        ids.iter().for_each(|&node| assignment.set(node, 0));
        change(&mut assignment);
        shape.schedule_with(&Fixed(assignment)).map(|schedule| schedule.to_string()).map_err(|error| error.to_string())
    };
    assert!(fault(&|_| {}).is_ok());
    let text = |change: &dyn Fn(&mut anabranch::policy::Assignment)| fault(change).expect_err("a fault");
    assert_eq!(
        text(&|answer| answer.set_all(ids[1], &[0, 1])),
        "policy 'fixed' put node 'm0' on 2 streams, and it spans 1 device: give it one stream, or one for each"
    );
    let order = |order: &[usize]| order.iter().map(|&node| ids[node]).collect::<Vec<_>>();
    assert_eq!(
        text(&|answer| answer.set_order(order(&[0, 2, 1]))),
        "policy 'fixed' ordered node 'join' before 'm0', which it depends on"
    );
    assert_eq!(text(&|answer| answer.set_order(order(&[0, 1]))), "policy 'fixed' left node 'join' out of its order");
    assert_eq!(text(&|answer| answer.set_order(order(&[0, 1, 1, 2]))), "policy 'fixed' ordered node 'm0' twice");
}

#[test]
fn who_reads_only_a_shape_waits_for_no_device_work() {
    // Seen to fail with all edges waited for.
    let mut shape = Shape::new();
    let (upload, size) = (shape.node("upload", Backend::Mixed), shape.node("size", Backend::Cpu));
    let (length, text) = (shape.node("length", Backend::Cpu), shape.node("text", Backend::Cpu));
    let metadata = |source, target, memory| Edge::new(source, target, EdgeKind::Data { output: 0, memory, metadata: true });
    shape.edge(metadata(upload, size, Some(Memory::Gpu)));
    shape.edge(metadata(text, length, Some(Memory::Cpu)));
    let schedule = shape.schedule().expect("a schedule");
    let expected = "\
policy ranked: 4 nodes, 1 stream and 2 host streams, 0 records, 0 waits
stream 0   run upload
host 0     run size
host 1     run text · run length
";
    assert_eq!(schedule.to_string(), expected);
    assert!(schedule.order().iter().position(|&node| node == upload) < schedule.order().iter().position(|&node| node == size));
    schedule.verify().expect("a correct plan");
}
