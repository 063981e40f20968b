//! Graphs that come as data, with the bodies of the program: what they compute, how they are planned, and who is named when they do not fit together.

use std::sync::Arc;

use anabranch::{
    Backend, Bodies, Control, Each, EdgeKind, Executor, Graph, Inputs, PerOperator, Plan, Policy, Ranked, Shape, Single, Value,
    above, inputs, take,
};

use crate::support::{block_on, executors, plan, value_of};

type One = Value<f64>;
type Two = (Value<f64>, Value<f64>);

/// Some arithmetic, a condition and a selector, as tasks, futures and kernels.
fn bodies() -> Bodies {
    Bodies::new()
        .node("input", |g: &mut Graph, name: &str, ()| g.input::<f64>(name))
        .node("two", |g, name, ()| g.task(name, (), || 2.0_f64))
        .node("double", |g, name, x: One| g.task(name, take(&x), |x: f64| 2.0 * x))
        .node("less", |g, name, x: One| g.future(name, &x, async |x: Arc<f64>| Ok(*x - 1.0)))
        .node("add", |g, name, (x, y): Two| g.try_task(name, (&x, &y), |x: &f64, y: &f64| Ok(x + y)))
        .node("sum", |g, name, xs: Vec<One>| g.task(name, &xs[..], |xs: Each<f64>| xs.iter().sum::<f64>()))
        .node("count", |g, name, x: One| g.task(name, &x, |x: &f64| *x as u64))
        .node("tick", |g, name, n: Value<u64>| g.task(name, &n, |n: &u64| n + 1))
        .node("look", |g, name, x: One| g.task(name, &x, |_: &f64| ()))
        .node("same", |_, _, x: One| x)
        .condition("is small", |g, name, x: One| g.task(name, &x, |x: &f64| above(100.0, *x)))
        .selector("which", |g, name, x: One| g.task(name, &x, |x: &f64| (*x as i64) % 3 - 1))
}

fn loaded(json: &str) -> Graph {
    Graph::from_shape(&Shape::from_json(json).unwrap(), &bodies()).unwrap()
}

/// Returns what is said of a graph that does not fit its bodies.
fn fault(json: &str) -> String {
    let error = Graph::from_shape(&Shape::from_json(json).unwrap(), &bodies()).unwrap_err();
    assert!(error.is_invalid_graph() && error.node().is_some(), "{error}");
    error.to_string()
}

fn outcome<T: Copy + Send + Sync + 'static>(exec: &Executor, plan: &Plan, x: f64, name: &str) -> T {
    *value_of(block_on(exec.run(plan, inputs! { "x" => x })), name)
}

/// While x is small: n becomes n + 1, and x, by what it is modulo 3, what it was, 2 x + 2, or x - 1 as often as it takes three times.
const NESTED: &str = r#"{"name": "nested", "nodes": [
    {"name": "all", "backend": "cpu", "command": "sum", "inputs": [{"node": "solve"}, {"node": "solve", "output": 2}, {"node": "x"}]},
    {"name": "x", "backend": "cpu", "command": "input"},
    {"name": "n", "backend": "cpu", "command": "count", "inputs": [{"node": "x"}], "after": ["y"]},
    {"name": "y", "backend": "cpu", "command": "two"},
    {"name": "solve", "inputs": [{"node": "x"}, {"node": "n"}, {"node": "y"}], "repeat": {
        "condition": {"nodes": [{"name": "is small", "backend": "cpu", "inputs": [{"state": 0}]}]},
        "body": {"nodes": [
            {"name": "which", "backend": "cpu", "inputs": [{"state": 0}]},
            {"name": "next", "inputs": [{"node": "which"}, {"state": 0}, {"state": 2}], "branch": {"arms": [
                {"nodes": [
                    {"name": "double", "backend": "cpu", "inputs": [{"node": "copy"}]},
                    {"name": "copy", "backend": "cpu", "command": "sum", "inputs": [{"state": 0}]},
                    {"name": "add", "backend": "cpu", "inputs": [{"node": "double"}, {"state": 1}]}
                ]},
                {"nodes": [{"name": "thrice", "inputs": [{"state": 0}], "repeat": {"iterations": 3, "body": {"nodes": [
                    {"name": "less", "backend": "cpu", "inputs": [{"state": 0}]}
                ]}}}]}
            ]}},
            {"name": "more", "backend": "cpu", "command": "add", "inputs": [{"node": "next"}, {"state": 2}]},
            {"name": "tick", "backend": "cpu", "inputs": [{"state": 1}]}
        ], "outputs": [{"node": "more"}, {"node": "tick"}]},
        "max_iterations": 1000
    }}],
    "outputs": [{"node": "all"}, {"node": "solve", "output": 1}]}"#;

/// The same in Rust: the sum of all, and n.
fn nested(start: f64) -> (f64, u64) {
    let (mut x, mut n) = (start, start as u64);
    while x < 100.0 {
        x = match x as i64 % 3 - 1 {
            -1 => x,
            0 => 2.0 * x + 2.0,
            _ => x - 3.0,
        } + 2.0;
        n += 1;
    }
    (x + 2.0 + start, n)
}

#[test]
fn loops_and_branches_in_each_other_compute_what_they_say() {
    // Seen to fail with bodies that lose the states which they give nothing for.
    for policy in [&Single as &dyn Policy, &PerOperator, &Ranked::new()] {
        let plan = loaded(NESTED).compile(policy).unwrap();
        for exec in executors().into_iter().chain((0..30).map(Executor::sim)) {
            for x in [0.0, 1.0, 2.0, 7.0, 200.0] {
                let (sum, n) = nested(x);
                assert_eq!(outcome::<f64>(&exec, &plan, x, "all"), sum, "{exec:?}, {x}");
                assert_eq!(outcome::<u64>(&exec, &plan, x, "solve 1"), n, "{exec:?}, {x}");
            }
        }
    }
}

#[test]
fn a_loaded_graph_is_planned_as_its_shape_is() {
    // Seen to fail with costs that are not taken over, and with `edges` put where their targets are.
    let json = r#"{"nodes": [
        {"name": "a", "backend": "gpu", "command": "two", "cost_us": 7},
        {"name": "b", "backend": "gpu", "command": "double", "inputs": [{"node": "a"}]},
        {"name": "c", "backend": "mixed", "command": "two", "after": ["a"], "devices": [1]},
        {"name": "d", "inputs": [{"node": "b"}, {"node": "c"}], "repeat": {"iterations": 4, "max_iterations": 9, "body": {"nodes": [
            {"name": "e", "backend": "gpu", "command": "two", "cost_us": 3},
            {"name": "f", "backend": "gpu", "command": "sum", "inputs": [{"state": 1}, {"node": "e"}, {"state": 0}]}
        ]}}}
    ], "edges": [["a", "d"], ["b", "c"]], "outputs": [{"node": "d"}]}"#;
    let (shape, graph) = (Shape::from_json(json).unwrap(), loaded(json));
    assert_eq!(graph.shape().edges(), shape.edges());
    for policy in [&Single as &dyn Policy, &PerOperator, &Ranked::new()] {
        let (expected, schedule) = (shape.schedule(policy).unwrap(), graph.compile(policy).unwrap());
        assert_eq!(schedule.schedule().to_string(), expected.to_string());
        assert_eq!(schedule.schedule().critical_path_us(), expected.critical_path_us());
    }
    let Some(Control::Repeat { iterations, max_iterations, body, .. }) = graph.shape().nodes()[3].control.as_deref() else {
        panic!("it is a loop");
    };
    assert_eq!((*iterations, *max_iterations, body.nodes()[0].backend), (4, Some(9), Backend::Gpu));
}

#[test]
fn a_loop_without_a_condition_is_repeated_as_often_as_it_says() {
    // Seen to fail with one iteration, whatever it says.
    let json = |times: u32| {
        format!(
            r#"{{"nodes": [{{"name": "two", "backend": "cpu"}}, {{"name": "grown", "inputs": [{{"node": "two"}}], "repeat": {{
            "iterations": {times}, "body": {{"nodes": [{{"name": "more", "backend": "cpu", "command": "add", "inputs": [{{"state": 0}}, {{"state": 0}}]}}]}}}}}}]}}"#
        )
    };
    for times in [0, 1, 5] {
        let plan = plan(&loaded(&json(times)));
        let grown: f64 = *value_of(block_on(Executor::inline().run(&plan, Inputs::new())), "grown");
        assert_eq!(grown, 2_f64.powi(1 + times as i32));
    }
}

#[test]
fn a_body_may_add_no_node_at_all() {
    // Seen to fail with a cost that went to the node before.
    let graph = loaded(
        r#"{"nodes": [{"name": "two", "backend": "cpu", "cost_us": 5},
        {"name": "same", "backend": "cpu", "inputs": [{"node": "two"}]},
        {"name": "add", "backend": "cpu", "inputs": [{"node": "same"}, {"node": "two"}]},
        {"name": "late", "backend": "cpu", "command": "two", "after": ["same"]}]}"#,
    );
    let costs: Vec<f64> = graph.shape().nodes().iter().map(|node| node.cost_us).collect();
    assert_eq!(costs, [5.0, 1.0, 1.0]);
    // What comes after it comes after what it gives.
    let orders = graph.shape().edges().iter().filter(|edge| edge.kind == EdgeKind::Order);
    let ends: Vec<_> = orders.map(|edge| (edge.source.index(), edge.target.index())).collect();
    assert_eq!(ends, [(0, 2)]);
    let sum: f64 = *value_of(block_on(Executor::inline().run(&plan(&graph), Inputs::new())), "add");
    assert_eq!(sum, 4.0);
}

#[test]
fn who_has_no_body_or_another_one_is_named() {
    // Seen to fail, by a panic, with bodies that are given too little.
    let after_two = |node: &str| format!(r#"{{"nodes": [{{"name": "two", "backend": "cpu"}}, {node}]}}"#);
    let reads_two = |name: &str| after_two(&format!(r#"{{"name": "{name}", "backend": "cpu", "inputs": [{{"node": "two"}}]}}"#));
    let cases = [
        (reads_two("triple"), "node 'triple' has no body: give one for its command 'triple'"),
        (reads_two("add"), "node 'add' reads 1 value, and its body takes 2"),
        (after_two(r#"{"name": "add", "backend": "cpu"}"#), "node 'add' reads 0 values, and its body takes 2"),
        (reads_two("tick"), "node 'tick' reads a `f64` as its input 0, counted from 0, and its body takes a `u64`"),
        (
            after_two(r#"{"name": "double", "backend": "cpu", "inputs": [{"node": "two", "output": 1}]}"#),
            "node 'double' reads output 1 of 'two', which has 1, counted from 0",
        ),
    ];
    for (json, expected) in cases {
        assert_eq!(fault(&json), expected, "{json}");
    }
}

#[test]
fn loops_and_branches_that_do_not_fit_are_named() {
    // Seen to fail with types of states that nobody compares.
    let around = |control: &str| {
        format!(
            r#"{{"nodes": [{{"name": "two", "backend": "cpu"}}, {{"name": "which", "backend": "cpu", "inputs": [{{"node": "two"}}]}}, {{"name": "c", {control}}}]}}"#
        )
    };
    let node = |name: &str| format!(r#"{{"nodes": [{{"name": "{name}", "backend": "cpu", "inputs": [{{"state": 0}}]}}]}}"#);
    let repeat = |inside: &str| around(&format!(r#""inputs": [{{"node": "two"}}], "repeat": {{"iterations": 1, {inside}}}"#));
    let branch = |inputs: &str, arm: &str| around(&format!(r#""inputs": [{inputs}], "branch": {{"arms": [{arm}]}}"#));
    let two_gives =
        r#"{"nodes": [{"name": "a", "backend": "cpu", "command": "two"}, {"name": "b", "backend": "cpu", "command": "two"}]}"#;
    let cases = [
        (
            around(&format!(r#""repeat": {{"iterations": 1, "body": {}}}"#, two_gives)),
            "node 'c' is a loop and reads nothing: what it reads are its states",
        ),
        (
            repeat(&format!(r#""body": {}"#, node("triple"))),
            "node 'c/body/triple' has no body: give one for its command 'triple'",
        ),
        (repeat(&format!(r#""body": {two_gives}"#)), "node 'c' gives 2 values with its body, more than it has states"),
        (
            repeat(&format!(r#""body": {}"#, node("count"))),
            "node 'c' has a `f64` as state 0, counted from 0, and its body gives a `u64` for it",
        ),
        (
            repeat(&format!(r#""body": {}, "condition": {}"#, node("double"), node("less"))),
            "node 'c' goes on by a `f64`, which does not say that: give the body that makes it by `Bodies::condition`",
        ),
        (
            repeat(&format!(r#""body": {}, "condition": {two_gives}"#, node("double"))),
            "node 'c' has a condition of 2 values: name the one that decides in its outputs",
        ),
        (
            branch(r#"{"node": "which"}"#, two_gives),
            "node 'c' is a branch, and needs two inputs or more: its selector, and what goes through it",
        ),
        (
            branch(r#"{"node": "two"}, {"node": "two"}"#, &node("double")),
            "node 'c' reads a `f64` first, which selects no arm: give the body that makes it by `Bodies::selector`",
        ),
        (
            branch(r#"{"node": "which"}, {"node": "two"}"#, &node("count")),
            "node 'c' has a `f64` as state 0, counted from 0, and its arm 0 gives a `u64` for it",
        ),
    ];
    for (json, expected) in cases {
        assert_eq!(fault(&json), expected, "{json}");
    }
}

#[test]
fn a_shape_made_by_hand_is_checked_too() {
    // Seen to fail with a limit that is one less.
    let mut shape = Shape::new();
    let node = shape.node("double", Backend::Cpu);
    shape.read_state(3, node);
    let error = Graph::from_shape(&shape, &bodies()).unwrap_err();
    assert_eq!(error.to_string(), "node 'double' reads state 3, counted from 0, and is in no loop or branch");

    let nest = |inner: Arc<Shape>| {
        let mut shape = Shape::new();
        let two = shape.node("two", Backend::Cpu);
        let around = shape.node("loop", Backend::Cpu);
        shape.read(two, 0, around);
        let repeat = Control::Repeat { condition: None, body: inner, iterations: 1, max_iterations: None };
        shape.nodes_mut()[around.index()].control = Some(Arc::new(repeat));
        Arc::new(shape)
    };
    let deep = (0..10_000).fold(Arc::new(Shape::new()), |inner, _| nest(inner));
    let error = Graph::from_shape(&deep, &bodies()).unwrap_err();
    assert_eq!(error.to_string(), "how deep graphs are nested is 65, the limit is 64");
}

#[test]
fn mistakes_of_bodies_come_out_too() {
    // Seen to fail with values that are taken for those of any graph.
    let twice = Bodies::new().node("two", |g: &mut Graph, name: &str, ()| {
        g.task(format!("{name} again"), (), || 1);
        let mut other = Graph::new();
        other.task("foreign", (), || 1)
    });
    let shape = Shape::from_json(r#"{"nodes": [{"name": "two", "backend": "cpu"}]}"#).unwrap();
    let error = Graph::from_shape(&shape, &twice).unwrap_err();
    assert_eq!(error.to_string(), "node 'two' has a body that returns a value of another graph");
}
