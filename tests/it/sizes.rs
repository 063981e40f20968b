//! Large graphs of every form: built, compiled, run, cancelled and dropped on a small stack.

use std::thread;

use anabranch::graph::Each;
use anabranch::policy::PerOperator;
use anabranch::{Executor, Graph, Inputs, Plan, Value, take};

use crate::support::{Dice, block_on, executor, plan, poll_once, until, value_of};

/// A million in optimised builds.
const NODES: usize = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

fn name(n: usize) -> String {
    n.to_string()
}

/// Performs every operation on a graph, on a stack of 2 MiB.
fn live_and_let_die(build: fn() -> (Graph, u64)) {
    let life = move || {
        let (g, expected) = build();
        let plan = g.compile_with(&PerOperator).unwrap();
        drop(g);
        for exec in [Executor::inline(), executor(2)] {
            assert_eq!(*value_of::<u64>(block_on(exec.run(&plan, Inputs::new())), "out"), expected);
            stop_early(&exec, &plan);
        }
        assert!(plan.to_string().len() > NODES);
    };
    thread::Builder::new().stack_size(2 << 20).spawn(life).unwrap().join().unwrap();
}

fn stop_early(exec: &Executor, plan: &Plan) {
    let (mut cancelled, mut dropped) = (exec.run(plan, Inputs::new()), exec.run(plan, Inputs::new()));
    let _ = (poll_once(&mut cancelled), poll_once(&mut dropped));
    drop(dropped);
    cancelled.cancel();
    assert!(block_on(cancelled).map_or_else(|error| error.is_cancelled(), |_| true));
    until(|| exec.in_limbo() == 0);
}

#[test]
fn a_long_chain() {
    live_and_let_die(|| {
        let mut g = Graph::new();
        let mut last = g.task("first", (), || Box::new(0u64));
        for n in 1..NODES {
            last = match n % 3 {
                0 => g.task(name(n), take(&last), |last: Box<u64>| Box::new(*last + 1)),
                _ => g.task(name(n), &last, |last: &Box<u64>| Box::new(**last + 1)),
            };
        }
        let out = g.task("out", &last, |last: &Box<u64>| **last);
        g.output("out", &out);
        (g, NODES as u64 - 1)
    });
}

#[test]
fn a_wide_star() {
    live_and_let_die(|| {
        let mut g = Graph::new();
        let first = g.task("first", (), || 1u64);
        let rays: Vec<Value<u64>> = (0..NODES).map(|n| g.task(name(n), &first, |first: &u64| *first)).collect();
        let out = g.task("out", &rays[..], |rays: Each<u64>| rays.iter().sum::<u64>());
        g.output("out", &out);
        (g, NODES as u64)
    });
}

#[test]
fn a_random_graph() {
    live_and_let_die(|| {
        let (mut g, mut dice) = (Graph::new(), Dice::new(7));
        let mut values = vec![g.task("first", (), || 1u64)];
        let mut words = vec![1u64];
        for n in 1..NODES {
            let (a, b) = (n - 1 - dice.below(n.min(200)), dice.below(n));
            values.push(g.task(name(n), (&values[a], &values[b]), |a: &u64, b: &u64| a.wrapping_mul(31).wrapping_add(*b)));
            words.push(words[a].wrapping_mul(31).wrapping_add(words[b]));
        }
        let all = g.task("all", &values[..], |all: Each<u64>| all.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        g.output("out", &all);
        (g, words.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)))
    });
}

#[test]
fn a_cycle_in_a_large_graph_is_found_on_a_small_stack() {
    let life = || {
        let mut g = Graph::new();
        let first = g.task("first", (), || 1u64);
        let mut last = first;
        for n in 1..NODES {
            last = g.task(name(n), &last, |last: &u64| *last);
        }
        g.output("out", &last);
        g.order(&last, &first);
        let text = g.compile_with(&PerOperator).unwrap_err().to_string();
        assert!(text.contains(&format!("... {} more ...", NODES + 1 - 12)), "{text}");
    };
    thread::Builder::new().stack_size(2 << 20).spawn(life).unwrap().join().unwrap();
}

#[test]
fn many_async_nodes() {
    let mut g = Graph::new();
    let first = g.task("first", (), || 1u64);
    let rays: Vec<Value<u64>> = (0..NODES / 10)
        .map(|n| {
            g.future(name(n), &first, async |first: std::sync::Arc<u64>| {
                smol::future::yield_now().await;
                Ok(*first)
            })
        })
        .collect();
    let out = g.task("out", &rays[..], |rays: Each<u64>| rays.iter().sum::<u64>());
    g.output("out", &out);
    let plan = plan(&g);
    for exec in [Executor::inline(), executor(2)] {
        assert_eq!(*value_of::<u64>(block_on(exec.run(&plan, Inputs::new())), "out"), NODES as u64 / 10);
        stop_early(&exec, &plan);
    }
}

#[test]
fn many_inputs_and_outputs() {
    let mut g = Graph::new();
    let mut inputs = Inputs::new();
    for n in 0..NODES / 100 {
        let x = g.input::<u64>(name(n));
        let out = g.task(name(n), &x, |x: &u64| x + 1);
        g.output(name(n), &out);
        inputs = inputs.with(name(n), n as u64);
    }
    let mut outputs = block_on(Executor::inline().run(&plan(&g), inputs)).unwrap();
    for n in 0..NODES / 100 {
        assert_eq!(*outputs.take::<u64>(&name(n)).unwrap(), n as u64 + 1);
    }
}
