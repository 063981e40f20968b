//! Exchanges that take their values.

use std::sync::Arc;

use anabranch::comm::World;
use anabranch::graph::times;
use anabranch::scope::{Product, Sum};
use anabranch::{Executor, Graph, Inputs, Value, take};
use futures::executor::block_on;

use super::exchanges::{in_a_flow, in_a_graph};
use super::{all, each_rank, run_ranks};

#[test]
fn exchanges_give_the_same_whether_they_read_or_take() {
    for (ranks, length, takes) in [(1, 3, true), (2, 0, true), (3, 5, true), (3, 5, false), (4, 20_000, true)] {
        all(each_rank(ranks, async |world| in_a_graph(&world, length, takes).await));
    }
}

#[test]
fn operations_of_flows_take_what_something_else_keeps() {
    // Seen to fail when only the sole owner could take: a value of `get`, or one that is sent, is kept.
    for (ranks, length) in [(1, 3), (2, 4), (3, 20_000)] {
        all(each_rank(ranks, async |world| in_a_flow(&world, length).await));
    }
}

fn world() -> World {
    World::local(1).unwrap().remove(0)
}

#[test]
fn integers_wrap_around() {
    // Seen to panic, though over MPI they wrap around.
    let most = all(run_ranks(2, |_| vec![u64::MAX, 3], |g, x, _| g.all_reduce("sum", &x, Sum)));
    assert_eq!(most, [[u64::MAX - 1, 6], [u64::MAX - 1, 6]]);
    assert_eq!(all(run_ranks(2, |_| i32::MIN, |g, x, _| g.all_reduce("product", &x, Product))), [0, 0]);
}

#[test]
fn an_exchange_takes_what_async_nodes_and_the_caller_keep() {
    // Seen to be an error of `compile_for`, and one of the run.
    let mut g = Graph::new();
    let x = g.input::<Vec<u64>>("x");
    let reader = g.future("reader", &x, async |x: Arc<Vec<u64>>| Ok(x));
    let sum = g.all_reduce("sum", take(&x), Sum);
    g.output("reader", &reader);
    g.output("sum", &sum);
    let (exec, plan, kept) = (Executor::inline(), g.compile_for(&world()).unwrap(), Arc::new(vec![1_u64, 2]));
    for inputs in [Inputs::new().with_arc("x", kept.clone()), Inputs::new().with("x", vec![1_u64, 2])] {
        let mut outputs = block_on(exec.run(&plan, inputs)).unwrap();
        assert_eq!((&*outputs.take::<Vec<u64>>("sum").unwrap(), &*kept), (&vec![1, 2], &vec![1, 2]));
        assert_eq!(**outputs.take::<Arc<Vec<u64>>>("reader").unwrap(), [1, 2]);
    }
}

#[test]
fn an_exchange_does_not_take_an_output_or_what_a_loop_keeps() {
    // Seen to compile, and the run to panic, when an async node read the value before it was an output.
    let fault = |build: fn(&mut Graph, &Value<Vec<f64>>)| {
        let mut g = Graph::new();
        let x = g.input::<Vec<f64>>("x");
        build(&mut g, &x);
        let sum = g.all_reduce("sum", take(&x), Sum);
        g.output("sum", &sum);
        g.compile_for(&world()).unwrap_err().to_string()
    };
    let output = fault(|g, x| {
        let reader = g.future("reader", x, async |x: Arc<Vec<f64>>| Ok(x.len()));
        g.output("x", x);
        g.output("reader", &reader);
    });
    insta::assert_snapshot!(output, @"'sum' takes 'x' by value, but the output 'x' shares it as an Arc: read it by reference instead");
    let kept = fault(|g, x| {
        let reader = g.future("reader", x, async |x: Arc<Vec<f64>>| Ok(x.len()));
        let end = g.repeat("loop", x, times(2), |b, x| b.task("next", &x, |x: &Vec<f64>| x[1..].to_vec()));
        g.output("reader", &reader);
        g.output("end", &end);
    });
    insta::assert_snapshot!(kept, @"'sum' takes 'x' by value, but the loop or branch 'loop' shares it as an Arc: read it by reference instead");
    let twice = fault(|g, x| {
        let again = g.all_reduce("again", take(x), Sum);
        g.output("again", &again);
    });
    insta::assert_snapshot!(twice, @"'again' and 'sum' both take 'x' by value: only one node can, let the other read it by reference");
}

#[test]
fn a_section_has_nodes_that_take_what_they_alone_share() {
    // Seen to fail: the section marked the value as shared by the node that takes it.
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let y = g.task("y", &x, |x: &u64| vec![*x; 3]);
    let z = g.future("z", take(&y), async |y: Vec<u64>| Ok(y.len()));
    g.output("z", &z);
    let plan = g.section(&[], &["z"]).unwrap().compile().unwrap();
    let mut outputs = block_on(Executor::inline().run(&plan, Inputs::new().with("x", 1_u64))).unwrap();
    assert_eq!(*outputs.take::<usize>("z").unwrap(), 3);
}
