//! Loops and branches without closures: their schedules, pictures and times.

use std::sync::Arc;

use anabranch::Graph;
use anabranch::graph::{Backend, Control, Shape, times};
use anabranch::plan::Span;
use anabranch::policy::Single;
use anabranch::sim::{Order, Simulation, Slots};

/// A node with a cost.
fn node(shape: &mut Shape, name: &'static str, cost_us: f64) -> anabranch::graph::NodeId {
    let node = shape.node(name, Backend::Gpu);
    shape.nodes_mut()[node.index()].cost_us = cost_us;
    node
}

fn of_one(name: &'static str, cost_us: f64) -> Arc<Shape> {
    let mut shape = Shape::new();
    node(&mut shape, name, cost_us);
    Arc::new(shape)
}

fn control(shape: &mut Shape, name: &'static str, control: Control) -> anabranch::graph::NodeId {
    let node = shape.node(name, Backend::Gpu);
    shape.nodes_mut()[node.index()].control = Some(Arc::new(control));
    node
}

/// `a`, then five times (a condition, and two nodes side by side, one of which is followed by a branch), then
/// `z`.
fn shape() -> Shape {
    let mut body = Shape::new();
    let (left, right) = (node(&mut body, "left", 2.0), node(&mut body, "right", 3.0));
    let arms = vec![of_one("one", 100.0), of_one("other", 0.5)];
    let piece = control(&mut body, "piece", Control::Branch { arms, taken: Some(1) });
    body.read(right, 0, piece);
    let add = node(&mut body, "add", 1.0);
    body.read(left, 0, add);
    body.read(piece, 0, add);
    let mut shape = Shape::new();
    let a = node(&mut shape, "a", 4.0);
    let condition = Some(of_one("residual", 1.5));
    let repeat = Control::Repeat { condition, body: Arc::new(body), iterations: 5, max_iterations: None };
    let solve = control(&mut shape, "solve", repeat);
    let z = node(&mut shape, "z", 2.0);
    shape.read(a, 0, solve);
    shape.read(solve, 0, z);
    shape
}

#[test]
fn a_control_takes_what_its_graphs_take() {
    // Seen to fail with a condition that is evaluated once for each iteration.
    let schedule = shape().schedule().unwrap();
    let expected = 4.0 + 5.0 * (3.0 + 0.5 + 1.0) + 6.0 * 1.5 + 2.0;
    let simulated = |simulation: Simulation| simulation.run().unwrap().makespan_us();
    assert_eq!(simulated(Simulation::new(&schedule)), expected);
    assert_eq!(simulated(Simulation::new(&schedule).order(Order::Seeded(3))), expected);
    assert_eq!((Span::makespan_us(&schedule.spans()), schedule.critical_path_us()), (expected, expected));
    // With one kernel at a time, the body's branches follow each other.
    let one = Slots::default().compute(1);
    assert_eq!(simulated(Simulation::new(&schedule).slots(one)), expected + 5.0 * 2.0);
    let single = shape().schedule_with(&Single).unwrap();
    assert_eq!((Span::makespan_us(&single.spans()), single.critical_path_us()), (expected + 5.0 * 2.0, expected));
}

#[test]
fn a_loop_that_would_take_for_ever_is_an_error() {
    let mut shape = Shape::new();
    let body = |body: Arc<Shape>| Control::Repeat { condition: None, body, iterations: 1_000_000_000, max_iterations: None };
    let mut inner = Shape::new();
    control(&mut inner, "inner", body(of_one("a", 1.0)));
    control(&mut shape, "outer", body(Arc::new(inner)));
    let error = Simulation::new(&shape.schedule_with(&Single).unwrap()).run().unwrap_err();
    assert_eq!(error.to_string(), "node 'outer' takes more than 10^12 us: a time is from 0 to 10^12");
}

#[test]
fn inner_graphs_are_in_the_text_of_a_plan() {
    let schedule = shape().schedule_with(&anabranch::policy::PerOperator).unwrap();
    schedule.verify().unwrap();
    let expected = "\
policy per-operator: 3 nodes, 1 stream, 0 records, 0 waits
stream 0   run a · run solve · run z

solve/condition: 1 node, 1 stream, 0 records, 0 waits
stream 0   run residual

solve/body: 4 nodes, 2 streams, 1 record, 1 wait
stream 0   run left · wait 1@1 · run add
stream 1   run right · run piece · record 1@1

solve/body/piece/arm 0: 1 node, 1 stream, 0 records, 0 waits
stream 0   run one

solve/body/piece/arm 1: 1 node, 1 stream, 0 records, 0 waits
stream 0   run other
";
    assert_eq!(schedule.to_string(), expected);
}

#[test]
fn mistakes_in_inner_shapes_are_named_by_path() {
    let mut inner = Shape::new();
    node(&mut inner, "twice", 1.0);
    node(&mut inner, "twice", 1.0);
    let mut shape = Shape::new();
    control(&mut shape, "loop", Control::Branch { arms: vec![of_one("a", 1.0), Arc::new(inner)], taken: None });
    let error = shape.schedule_with(&Single).unwrap_err();
    assert_eq!((error.is_invalid_graph(), error.node()), (true, Some("loop/arm 1/twice")));
    assert_eq!(error.to_string(), "in 'loop/arm 1': two nodes are named 'twice': node names are unique in a graph, rename one");
}

#[test]
fn a_graph_with_closures_has_the_shapes_of_its_inner_graphs() {
    let mut g = Graph::new();
    let x = g.task("x", (), || 1u64);
    let y = g.repeat("loop", &x, times(7), |b, x| b.task("add", &x, |x: &u64| x + 1));
    g.node(&y).max_iterations(9);
    g.output("y", &y);
    let plan = g.compile_with(&Single).unwrap();
    let control = plan.schedule().shape().nodes()[1].control.clone().unwrap();
    let Control::Repeat { condition: None, body, iterations: 7, max_iterations: Some(9) } = &*control else {
        panic!("{control:?}")
    };
    assert_eq!(&*body.nodes()[0].name, "add");
    assert_eq!(Span::makespan_us(&plan.schedule().spans()), 8.0);
    assert_eq!(Simulation::new(plan.schedule()).run().unwrap().makespan_us(), 8.0);
}
