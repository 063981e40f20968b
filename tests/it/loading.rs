//! Graphs as data, with bodies from the program: their results, their plans, and the nodes named in errors
//! when the two do not fit together.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

use anabranch::graph::{Backend, Bodies, Control, Each, EdgeKind, Shape, above};
use anabranch::policy::{PerOperator, Policy, Single};
use anabranch::{Executor, Graph, Inputs, Name, Plan, Ranked, Value, inputs, take};

use crate::support::{block_on, executors, plan, value_of};

type One = Value<f64>;
type Two = (Value<f64>, Value<f64>);

/// Some arithmetic, a condition and a selector, as tasks, futures and kernels.
fn bodies() -> Bodies {
    Bodies::new()
        .node("input", |g: &mut Graph, name: &Name, ()| g.input::<f64>(name))
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

/// Returns the error of a graph that does not fit its bodies.
fn fault(json: &str) -> String {
    let error = Graph::from_shape(&Shape::from_json(json).unwrap(), &bodies()).unwrap_err();
    assert!(error.is_invalid_graph() && error.node().is_some(), "{error}");
    error.to_string()
}

fn outcome<T: Copy + Send + Sync + 'static>(exec: &Executor, plan: &Plan, x: f64, name: &str) -> T {
    *value_of(block_on(exec.run(plan, inputs! { "x" => x })), name)
}

/// While x is small: n becomes n + 1. Depending on x modulo 3, x stays, becomes 2 x + 2, or is decremented
/// three times.
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
    // Seen to fail with bodies that lose the states for which they give nothing.
    for policy in [&Single as &dyn Policy, &PerOperator, &Ranked::default()] {
        let plan = loaded(NESTED).compile_with(policy).unwrap();
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
    for policy in [&Single as &dyn Policy, &PerOperator, &Ranked::default()] {
        let (expected, schedule) = (shape.schedule_with(policy).unwrap(), graph.compile_with(policy).unwrap());
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
    // Seen to fail with one iteration, regardless of the number given.
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
    // A node ordered after it is ordered after the value that it gives.
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
    // Seen to fail with types of states that are not compared.
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
    // Seen to fail with values that are accepted as those of any graph.
    let twice = Bodies::new().node("two", |g: &mut Graph, name: &Name, ()| {
        g.task(format!("{name} again"), (), || 1);
        let mut other = Graph::new();
        other.task("foreign", (), || 1)
    });
    let shape = Shape::from_json(r#"{"nodes": [{"name": "two", "backend": "cpu"}]}"#).unwrap();
    let error = Graph::from_shape(&shape, &twice).unwrap_err();
    assert_eq!(error.to_string(), "node 'two' has a body that returns a value of another graph");
}

/// A loop around a branch, with a node that changes graphs: outermost, in the body, in the condition, in the
/// arm.
fn changing_shape(changes: &str) -> Shape {
    let command = |place: &str| if place == changes { "change" } else { "same" };
    let text = format!(
        r#"{{"nodes": [{{"name": "x", "backend": "cpu"}}, {{"name": "n0", "command": "{}", "backend": "cpu", "inputs": [{{"node": "x"}}]}},
        {{"name": "which", "backend": "cpu"}},
        {{"name": "loop", "inputs": [{{"node": "n0"}}, {{"node": "which"}}], "repeat": {{"max_iterations": 4, "condition": {{"nodes": [
            {{"name": "n1", "command": "{}", "backend": "cpu", "inputs": [{{"state": 0}}]}},
            {{"name": "more", "backend": "cpu", "inputs": [{{"node": "n1"}}]}}
        ]}}, "body": {{"nodes": [
            {{"name": "n2", "command": "{}", "backend": "cpu", "inputs": [{{"state": 0}}]}},
            {{"name": "fork", "inputs": [{{"state": 1}}, {{"node": "n2"}}], "branch": {{"arms": [{{"nodes": [
                {{"name": "n3", "command": "{}", "backend": "cpu", "inputs": [{{"state": 0}}]}}
            ]}}]}}}}
        ]}}}}}}]}}"#,
        command("n0"),
        command("loop/condition/n1"),
        command("loop/body/n2"),
        command("loop/body/fork/arm 0/n3")
    );
    Shape::from_json(&text).unwrap()
}

/// Bodies, one of which applies `change` to its graph.
fn changing_bodies(change: impl Fn(&mut Graph) + Send + Sync + 'static) -> Bodies {
    Bodies::new()
        .node("x", |g: &mut Graph, name: &Name, ()| g.input::<Box<u64>>(name))
        .selector("which", |g, name, ()| g.task(name, (), || 0_usize))
        .condition("more", |g, name, x: Value<Box<u64>>| g.task(name, &x, |x: &Box<u64>| **x < 3))
        .node("same", |g, name, x: Value<Box<u64>>| g.task(name, &x, |x: &Box<u64>| Box::new(**x + 1)))
        .node("change", move |g, name, x: Value<Box<u64>>| {
            g.task(name, &x, |_: &Box<u64>| ());
            change(g);
            g.task("new", (), || Box::new(1_u64))
        })
}

#[test]
fn a_body_from_a_file_that_puts_another_graph_in_the_place_of_its_own_is_named() {
    // Seen to fail without the check after each body: numbers of one graph were used in another, and a text
    // read as the address of a number.
    thread_local! { static KEPT: RefCell<Vec<Graph>> = const { RefCell::new(Vec::new()) }; }
    let changes: [fn(&mut Graph); 4] = [
        |g| {
            *g = Graph::new();
            g.input::<[usize; 2]>("other");
        },
        // An address that was that of the old graph.
        |g| {
            drop(mem::take(g));
            *g = Graph::new();
        },
        // A graph that the same bodies have loaded, and one that was taken from them before.
        |g| *g = Graph::from_shape(&changing_shape("none"), &changing_bodies(|_| ())).unwrap(),
        |g| {
            KEPT.with_borrow_mut(|kept| {
                let other = kept.pop().unwrap_or_default();
                kept.push(mem::replace(g, other));
            });
        },
    ];
    for change in changes {
        let bodies = changing_bodies(change);
        for place in ["n0", "loop/condition/n1", "loop/body/n2", "loop/body/fork/arm 0/n3", "n0"] {
            let error = Graph::from_shape(&changing_shape(place), &bodies).unwrap_err();
            let fault = "has a body that replaces the graph that it is given: add to that graph, and do not replace it";
            assert_eq!((error.to_string(), error.node()), (format!("node '{place}' {fault}"), Some(place)));
        }
    }
    let plan = plan(&Graph::from_shape(&changing_shape("none"), &changing_bodies(|_| ())).unwrap());
    let outputs = block_on(Executor::inline().run(&plan, inputs! { "x" => Box::new(0_u64) }));
    assert_eq!(**value_of::<Box<u64>>(outputs, "loop"), 3);
}

/// A loop of a loop of a branch of a buffer, which each of them takes, or only reads.
fn taking(take: &str) -> String {
    let take = format!(", \"take\": {take}");
    format!(
        r#"{{"nodes": [{{"name": "start", "backend": "cpu"}}, {{"name": "zero", "backend": "cpu"}},
        {{"name": "out", "inputs": [{{"node": "start"{take}}}, {{"node": "zero"}}], "repeat": {{"iterations": 5, "body": {{"nodes": [
            {{"name": "look", "backend": "cpu", "inputs": [{{"state": 0}}]}},
            {{"name": "inner", "inputs": [{{"state": 0{take}}}, {{"state": 1}}], "repeat": {{"iterations": 3, "body": {{"nodes": [
                {{"name": "fork", "inputs": [{{"state": 1}}, {{"state": 0{take}}}], "branch": {{"arms": [{{"nodes": [
                    {{"name": "push", "backend": "cpu", "inputs": [{{"state": 0}}]}}
                ]}}]}}}}
            ]}}}}}}
        ], "outputs": [{{"node": "inner"}}]}}}}}}
        ], "outputs": [{{"node": "out"}}]}}"#
    )
}

/// Bodies that push onto a buffer in place.
fn pushing() -> Bodies {
    Bodies::new()
        .node("start", |g: &mut Graph, name: &Name, ()| g.task(name, (), || Vec::<usize>::with_capacity(100)))
        .selector("zero", |g, name, ()| g.task(name, (), || 0_usize))
        .node("look", |g, name, x: Value<Vec<usize>>| g.task(name, &x, |x: &Vec<usize>| assert!(x.len().is_multiple_of(3))))
        .node("push", |g, name, x: Value<Vec<usize>>| {
            g.task(name, take(&x), |mut x: Vec<usize>| {
                x.push(x.as_ptr().addr());
                x
            })
        })
}

#[test]
fn a_loop_from_a_file_runs_in_place_where_it_takes_its_states() {
    // Seen to fail with states that are read, regardless of the file: `compile` refused it.
    let shape = Shape::from_json(&taking("true")).unwrap();
    assert_eq!(Shape::from_json(&shape.to_json()).unwrap(), shape);
    let graph = Graph::from_shape(&shape, &pushing()).unwrap();
    for exec in executors() {
        let pushed: Arc<Vec<usize>> = value_of(block_on(exec.run(&plan(&graph), Inputs::new())), "out");
        assert_eq!(pushed.len(), 15, "{exec:?}");
        assert!(pushed.iter().all(|address| *address == pushed[0]), "{exec:?}: {pushed:x?}");
    }
    let read = Graph::from_shape(&Shape::from_json(&taking("false")).unwrap(), &pushing()).unwrap();
    let error = read.compile_with(&Single).unwrap_err();
    assert_eq!(error.node(), Some("out/body/inner/body/fork/arm 0/push"));
    let expected = "'out/body/inner/body/fork/arm 0/push' takes state 0 of 'fork' (state 0 around it) by value, but \
         'out/body/inner/body/fork' only reads what the state begins with: give that to it as `take(&value)` (in JSON, \"take\": true)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn others_read_what_is_taken_before_it_is_in_the_shape_too() {
    // Seen to fail with orders that only graphs with bodies have.
    let json = r#"{"nodes": [{"name": "two", "backend": "cpu"},
        {"name": "loop", "inputs": [{"node": "two", "take": true}], "repeat": {"iterations": 2, "body": {"nodes": [
            {"name": "double", "backend": "cpu", "inputs": [{"state": 0}]}
        ]}}},
        {"name": "less", "backend": "cpu", "inputs": [{"node": "two"}, {"node": "two"}], "command": "add"}], "outputs": [{"node": "loop"}, {"node": "less"}]}"#;
    let shape = Shape::from_json(json).unwrap();
    let (schedule, plan) = (shape.schedule_with(&PerOperator).unwrap(), loaded(json).compile_with(&PerOperator).unwrap());
    assert_eq!(schedule.to_string(), plan.schedule().to_string());
    assert_eq!(plan.schedule().shape().schedule_with(&PerOperator).unwrap().shape(), plan.schedule().shape());
    let order = schedule.shape().edges().last().unwrap();
    assert_eq!((order.source.index(), order.target.index(), order.kind), (2, 1, EdgeKind::Order));
    let cycle = json.replace(r#"{"node": "two"}, {"node": "two"}"#, r#"{"node": "two"}, {"node": "loop"}"#);
    let shape = Shape::from_json(&cycle).unwrap();
    let expected = "'loop' takes 'two' by value, so it comes after 'less', which reads it too: that closes the cycle \
         'loop' -> 'less' -> 'loop'. Let 'loop' read 'two' by reference, or 'less' not wait for 'loop'";
    for error in [shape.schedule_with(&Single).unwrap_err(), loaded(&cycle).compile_with(&Single).unwrap_err()] {
        assert_eq!((error.to_string(), error.node()), (expected.to_owned(), Some("loop")));
    }
}

#[test]
fn takes_of_shapes_made_by_hand_are_checked() {
    // Seen to fail without `check_takes`.
    let mut shape = Shape::new();
    let [x, y] = ["x", "y"].map(|name| shape.node(name, Backend::Cpu));
    shape.read(x, 0, y);
    shape.take_input(y, 0);
    let text = |shape: &Shape| shape.schedule_with(&Single).unwrap_err().to_string();
    assert_eq!(text(&shape), "node 'y' takes an input, but is no loop or branch: the body of any other node says what it takes");
    let branch = Control::Branch { arms: Vec::new(), taken: None };
    shape.nodes_mut()[y.index()].control = Some(Arc::new(branch));
    assert_eq!(text(&shape), "node 'y' takes its selector: let it only read that");
    let repeat = Control::Repeat { condition: None, body: Arc::new(Shape::new()), iterations: 1, max_iterations: None };
    shape.nodes_mut()[y.index()].control = Some(Arc::new(repeat));
    shape.schedule_with(&Single).unwrap();
    shape.take_input(y, 7);
    assert_eq!(text(&shape), "node 'y' takes its input 7, counted from 0, but has 1: take one of these");
}

#[test]
fn a_body_that_is_there_for_its_effect_gives_nothing() {
    // Seen to fail with an empty list that is taken for none.
    let json = |outputs: &str| {
        format!(
            r#"{{"nodes": [{{"name": "two", "backend": "cpu"}}, {{"name": "loop", "inputs": [{{"node": "two"}}], "repeat": {{"iterations": 3,
            "body": {{"nodes": [{{"name": "look", "backend": "cpu", "inputs": [{{"state": 0}}]}}]{outputs}}}}}}}]}}"#
        )
    };
    let graph = loaded(&json(", \"outputs\": []"));
    assert_eq!(*value_of::<f64>(block_on(Executor::inline().run(&plan(&graph), Inputs::new())), "loop"), 2.0);
    let expected = "node 'loop' has a `f64` as state 0, counted from 0, and its body gives a `()` for it: if nothing is to come out of there, \
         write \"outputs\": []";
    assert_eq!(fault(&json("")), expected);
}

#[test]
fn a_loop_may_have_no_iterations_at_most() {
    // Seen to fail with an iteration that is expected beside a condition.
    let json = r#"{"nodes": [{"name": "two", "backend": "cpu"}, {"name": "loop", "inputs": [{"node": "two"}], "repeat": {"max_iterations": 0,
        "condition": {"nodes": [{"name": "is small", "backend": "cpu", "inputs": [{"state": 0}]}]},
        "body": {"nodes": [{"name": "double", "command": "less", "backend": "cpu", "inputs": [{"state": 0}]}]}}}]}"#;
    let shape = Shape::from_json(json).unwrap();
    assert_eq!(Shape::from_json(&shape.to_json()).unwrap(), shape);
    let error = block_on(Executor::inline().run(&plan(&loaded(json)), Inputs::new())).unwrap_err();
    let expected = "loop 'loop' would go on after 0 iterations: raise its max_iterations, or find out why it does not end";
    assert_eq!(error.to_string(), expected);
}

fn with_outputs(outputs: &str) -> anabranch::Result<Graph> {
    let json = format!(
        r#"{{"nodes": [{{"name": "x", "backend": "cpu", "command": "two"}}, {{"name": "two 1", "backend": "cpu", "command": "two"}},
        {{"name": "two", "inputs": [{{"node": "x"}}, {{"node": "two 1"}}], "repeat": {{"iterations": 1, "body": {{"nodes": [
            {{"name": "double", "command": "less", "backend": "cpu", "inputs": [{{"state": 0}}]}}]}}}}}}], "outputs": [{outputs}]}}"#
    );
    Graph::from_shape(&Shape::from_json(&json)?, &bodies())
}

#[test]
fn two_outputs_of_one_name_are_a_mistake() {
    // Seen to make a graph with both.
    let error = with_outputs(r#"{"node": "two 1"}, {"node": "two", "output": 1}"#).unwrap_err();
    assert_eq!(error.to_string(), "two outputs are named 'two 1': rename one");
}

#[test]
fn a_value_that_is_listed_twice_is_one_output() {
    // Seen to be a mistake, of two outputs of one name.
    let graph = with_outputs(r#"{"node": "two"}, {"node": "two"}"#).unwrap();
    let outputs = block_on(Executor::inline().run(&plan(&graph), Inputs::new())).unwrap();
    assert_eq!(outputs.names().collect::<Vec<_>>(), ["two"]);
}
