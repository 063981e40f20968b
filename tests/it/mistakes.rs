//! Mistakes in a graph, in the inputs of a run, or in requests for outputs. Each error names the place.

use std::sync::Arc;

use anabranch::graph::{Backend, Shape};
use anabranch::policy::Single;
use anabranch::{Engine, Error, Executor, Graph, HostStream, Inputs, Op, Value, inputs, take};

use crate::support::{block_on, chain, executors, plan};

/// Returns the message of the error from compiling the graph.
fn mistake(build: impl FnOnce(&mut Graph)) -> String {
    let mut g = Graph::new();
    build(&mut g);
    let error = g.compile_with(&Single).unwrap_err();
    assert!(error.is_invalid_graph());
    error.to_string()
}

/// Adds a task that returns 1. It is an output, so no node need read it.
fn one(g: &mut Graph, name: &'static str) -> Value<u64> {
    let value = g.task(name, (), || 1u64);
    g.output(name, &value);
    value
}

#[test]
fn one_cycle_is_printed() {
    let text = mistake(|g| {
        let a = one(g, "a");
        let b = chain(g, &a, 3);
        let c = g.task("c", &b, |b: &u64| *b);
        g.output("c", &c);
        g.order(&c, &a);
        let [d, e] = ["d", "e"].map(|name| one(g, name));
        g.order(&d, &e);
        g.order(&e, &d);
    });
    assert_eq!(
        text,
        "the nodes 'a' -> 'link 1' -> 'link 2' -> 'link 3' -> 'c' -> 'a' wait for each other in a cycle: \
         remove one of these edges"
    );
}

#[test]
fn a_long_cycle_is_shortened() {
    let text = mistake(|g| {
        let a = one(g, "a");
        let b = chain(g, &a, 100);
        g.output("b", &b);
        g.order(&b, &a);
    });
    assert_eq!(
        text,
        "the nodes 'a' -> 'link 1' -> 'link 2' -> 'link 3' -> 'link 4' -> 'link 5' -> ... 90 more ... -> 'link 96' -> \
         'link 97' -> 'link 98' -> 'link 99' -> 'link 100' -> 'a' wait for each other in a cycle: remove one of these edges"
    );
}

#[test]
fn a_cycle_that_taking_closes_is_found() {
    let text = mistake(|g| {
        let x = one_of_block(g);
        let taken = g.task("taker", take(&x), |x: Vec<u64>| x.len());
        let read = g.task("reader", (&x, &taken), |x: &Vec<u64>, n: &usize| x.len() + n);
        g.output("read", &read);
    });
    let expected = "'taker' takes 'x' by value, so it comes after 'reader', which reads it too: that closes the cycle \
         'taker' -> 'reader' -> 'taker'. Let 'taker' read 'x' by reference, or 'reader' not wait for 'taker'";
    assert_eq!(text, expected);
}

fn one_of_block(g: &mut Graph) -> Value<Vec<u64>> {
    g.task("x", (), || vec![1])
}

#[test]
fn an_edge_to_itself_is_named() {
    let text = mistake(|g| {
        let a = one(g, "a");
        g.order(&a, &a);
    });
    assert_eq!(text, "node 'a' has an edge to itself: remove it");
}

#[test]
fn names_are_unique() {
    let nodes = mistake(|g| (0..2).for_each(|_| _ = g.task("a", (), || ())));
    assert_eq!(nodes, "two nodes are named 'a': node names are unique in a graph, rename one");
    let inputs = mistake(|g| (0..2).for_each(|_| _ = g.input::<u64>("x")));
    assert_eq!(inputs, "two inputs are named 'x': rename one");
    let outputs = mistake(|g| {
        let a = one(g, "a");
        g.output("a", &a);
    });
    assert_eq!(outputs, "two outputs are named 'a': rename one");
}

#[test]
fn what_nobody_reads_is_named() {
    let node = mistake(|g| {
        let a = one(g, "a");
        g.task("b", &a, |a: &u64| *a);
    });
    assert_eq!(
        node,
        "nothing reads the value of 'b': make it an output (in a pipeline: return it from the closure), read it, or let the node return ()"
    );
    let input = mistake(|g| _ = g.input::<u64>("x"));
    assert_eq!(input, "nothing reads the input 'x': read it in a node, or remove it");
}

/// Returns the message for a node that uses a value of another graph.
fn foreign(name: &str) -> String {
    format!(
        "'{name}' uses a value of another graph: read a value only in the graph that made it, or in its inner graphs; let the closure of a loop or branch return what is read outside"
    )
}

#[test]
fn a_value_of_another_graph_is_refused() {
    let mut other = Graph::new();
    let x = one(&mut other, "x");
    let read = mistake(|g| _ = g.task("a", &x, |_: &u64| ()));
    assert_eq!(read, foreign("a"));
    let taken = mistake(|g| _ = g.future("a", take(&x), async |_: u64| Ok(())));
    assert_eq!(taken, foreign("a"));
    let output = mistake(|g| g.output("out", &x));
    assert_eq!(output, foreign("out"));
    let order = mistake(|g| {
        let a = one(g, "a");
        g.order(&x, &a);
    });
    assert_eq!(order, foreign("a"));
}

#[test]
fn a_value_is_taken_once() {
    let twice = mistake(|g| {
        let x = one_of_block(g);
        ["a", "b"].into_iter().for_each(|name| _ = g.task(name, take(&x), |_: Vec<u64>| ()));
    });
    assert_eq!(twice, "'a' and 'b' both take 'x' by value: only one node can, let the other read it by reference");
}

#[test]
fn who_takes_a_value_cannot_read_it_too() {
    let text = "'a' takes 'x' by value and reads it too: read the taken value instead";
    let taken_first = mistake(|g| {
        let x = one_of_block(g);
        g.task("a", (take(&x), &x), |_: Vec<u64>, _: &Vec<u64>| ());
    });
    assert_eq!(taken_first, text);
    let read_first = mistake(|g| {
        let x = g.input::<Vec<u64>>("x");
        g.kernel("a", (&x, take(&x)), |_: &mut HostStream, _: &Vec<u64>, _: Vec<u64>| ());
    });
    assert_eq!(read_first, text);
    let sliced = mistake(|g| {
        let x = one_of_block(g);
        g.task("a", (&[x][..], take(&x)), |_: anabranch::graph::Each<Vec<u64>>, _: Vec<u64>| ());
    });
    assert_eq!(sliced, text);
    let twice = mistake(|g| {
        let x = one_of_block(g);
        g.task("a", (take(&x), take(&x)), |_: Vec<u64>, _: Vec<u64>| ());
    });
    assert_eq!(twice, "'a' and 'a' both take 'x' by value: only one node can, let the other read it by reference");
}

#[test]
fn what_is_shared_cannot_be_taken() {
    let output = mistake(|g| {
        let x = one_of_block(g);
        g.task("a", take(&x), |_: Vec<u64>| ());
        g.output("out", &x);
    });
    assert_eq!(output, "'a' takes 'x' by value, but the output 'out' shares it as an Arc: read it by reference instead");
    let future = mistake(|g| {
        let x = g.input::<Vec<u64>>("x");
        g.future("b", &x, async |_: Arc<Vec<u64>>| Ok(()));
        g.task("a", take(&x), |_: Vec<u64>| ());
    });
    assert_eq!(future, "'a' takes 'x' by value, but the async node 'b' shares it as an Arc: read it by reference instead");
}

#[test]
fn names_have_a_limit() {
    let long = "n".repeat(257);
    let expected = "the length in bytes of the name 'nnnnnnnnnnnnnnnnnnnnnnnn...' is 257, the limit is 256";
    assert_eq!(mistake(|g| _ = g.task(long.clone(), (), || ())), expected);
    assert_eq!(mistake(|g| _ = g.input::<u64>(long.clone())), expected);
    assert_eq!(
        mistake(|g| {
            let a = one(g, "a");
            g.output(long.clone(), &a);
        }),
        expected
    );
}

#[test]
fn a_cost_is_a_number_of_microseconds() {
    for (cost_us, text) in [(f64::NAN, "NaN"), (-1.0, "-1"), (f64::INFINITY, "inf")] {
        let error = mistake(|g| {
            let a = one(g, "a");
            g.node(&a).cost_us(cost_us);
        });
        assert_eq!(error, format!("the cost of node 'a' is {text} us: a cost is from 0 to 10^12"));
    }
}

#[test]
fn an_input_is_not_a_node() {
    let text = mistake(|g| {
        let x = g.input::<u64>("x");
        g.output("x", &x);
        g.node(&x).backend(Backend::Gpu);
    });
    assert_eq!(text, "'x' is an input, not a node: it has no backend, command, cost or phase, and it waits for nothing");
}

#[test]
fn an_edge_to_nowhere_is_named() {
    let (mut shape, mut other) = (Shape::new(), Shape::new());
    let a = shape.node("a", Backend::Cpu);
    let far = (0..8).map(|n| other.node(format!("{n}"), Backend::Cpu)).last().unwrap();
    shape.order(a, far);
    let error = shape.schedule_with(&Single).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an edge from node 'a' names node number 7, counted from 0, but the graph has 1: use the ids of this graph"
    );
}

#[test]
fn the_first_mistake_is_reported() {
    let text = mistake(|g| {
        g.input::<u64>("x");
        g.input::<u64>("x");
        let x = one_of_block(g);
        ["a", "b"].into_iter().for_each(|name| _ = g.task(name, take(&x), |_: Vec<u64>| ()));
    });
    assert_eq!(text, "two inputs are named 'x': rename one");
}

/// A plan with an input "size" that is read and an input "block" that is taken.
fn with_inputs() -> Graph {
    let mut g = Graph::new();
    let size = g.input::<u64>("size");
    let block = g.input::<Vec<u64>>("block");
    let taken = g.task("taken", (&size, take(&block)), |size: &u64, block: Vec<u64>| block.len() as u64 + size);
    g.output("out", &taken);
    g
}

/// Returns the error of a run with these inputs; every executor gives the same.
fn refusal(g: &Graph, inputs: impl Fn() -> Inputs) -> String {
    let errors: Vec<Error> = executors().iter().map(|exec| block_on(exec.run(&plan(g), inputs())).unwrap_err()).collect();
    let texts: Vec<String> = errors.iter().map(Error::to_string).collect();
    assert!(texts.iter().all(|text| *text == texts[0] && !errors[0].is_invalid_graph()));
    texts[0].clone()
}

#[test]
fn inputs_must_be_the_plans() {
    let refusal = |inputs: fn() -> Inputs| refusal(&with_inputs(), inputs);
    let unknown = refusal(|| inputs! { "size" => 1u64, "block" => vec![1u64], "blok" => 1u8 });
    assert_eq!(unknown, "the plan has no input named 'blok'; it has 'size', 'block'");
    let missing = refusal(|| inputs! { "size" => 1u64 });
    assert_eq!(missing, "input 'block' was not given: add it to inputs! { \"block\" => ... }");
    let twice = refusal(|| inputs! { "size" => 1u64, "block" => vec![1u64], "size" => 2u64 });
    assert_eq!(twice, "input 'size' was given twice: give it once");
    let mistyped = refusal(|| inputs! { "size" => 1u32, "block" => vec![1u64] });
    assert_eq!(mistyped, "input 'size' has the type `u64`, but a `u32` was given: convert it to `u64`");
    let shared = refusal(|| inputs! { "size" => 1u64 }.with_arc("block", Arc::new(vec![1u64])));
    assert_eq!(shared, "input 'block' is taken by value by node 'taken': give it by value, in a flow's call as take(&var)");
}

#[test]
fn outputs_are_asked_for_by_name_and_type_and_once() {
    let exec = Executor::inline();
    let run = exec.run(&plan(&with_inputs()), inputs! { "size" => 1u64, "block" => vec![1u64] });
    let mut outputs = block_on(run).unwrap();
    let text = |error: Error| error.to_string();
    assert_eq!(outputs.take::<u64>("ou").map_err(text).unwrap_err(), "the plan has no output named 'ou'; it has 'out'");
    assert_eq!(
        outputs.take::<u32>("out").map_err(text).unwrap_err(),
        "output 'out' has the type `u64`, not `u32`: ask for `u64`"
    );
    assert_eq!(*outputs.take::<u64>("out").unwrap(), 2);
    assert_eq!(
        outputs.take::<u64>("out").map_err(text).unwrap_err(),
        "output 'out' was already taken: keep the value of the first take"
    );
}

#[test]
fn an_unknown_node_comes_with_a_suggestion() {
    let exec = Executor::inline();
    let mut g = Graph::new();
    one(&mut g, "Resize");
    let run = exec.run(&plan(&g), Inputs::new());
    let near = block_on(run.node("resize")).unwrap_err();
    assert_eq!(near.to_string(), "there is no node named 'resize'; did you mean 'Resize'?");
    let far = block_on(run.node("blur")).unwrap_err();
    assert_eq!(far.to_string(), "there is no node named 'blur'; the nodes: 'Resize'");
    assert!(block_on(run).is_ok());
    let mut g = Graph::new();
    for name in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"] {
        one(&mut g, name);
    }
    let far = block_on(exec.run(&plan(&g), Inputs::new()).node("blur")).unwrap_err();
    let text = "there is no node named 'blur'; the nodes: '0', '1', '2', '3', '4', '5', '6', '7' and 2 more";
    assert_eq!(far.to_string(), text);
}

#[test]
fn settings_have_a_range() {
    let text = |built: anabranch::Result<Executor>| built.unwrap_err().to_string();
    let workers = Executor::builder().workers(257).build();
    assert_eq!(text(workers), "the number of workers must be from 0 to 256, not 257");
    let none = Executor::builder().workers(0).max_in_flight(0).build();
    assert_eq!(text(none), "max_in_flight must be from 1 to 65024, not 0");
    let many = Executor::builder().workers(0).max_in_flight(65_025).build();
    assert_eq!(text(many), "max_in_flight must be from 1 to 65024, not 65025");
    let long = Executor::builder().poll_budget(std::time::Duration::from_millis(1)).build();
    assert_eq!(text(long), "poll_budget, in microseconds, must be from 0 to 100, not 1000");
}

// Seen to fail (with a panic) when the workers have one slot fewer than there are runs and engines.
#[test]
fn an_executor_for_as_many_runs_as_possible_has_its_engines() {
    for workers in [0, 1] {
        let exec = Executor::builder().workers(workers).max_in_flight(65_024).build().unwrap();
        let engines: Vec<Engine> = (0..256).map(|_| Engine::new(&exec).unwrap()).collect();
        block_on(async { engines[255].push(Op::task("op", (), (), || ())).await?.await }).unwrap();
    }
}
