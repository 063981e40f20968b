//! Anabranch itself, as one of the peers: the graph is compiled once per shape, and the plan run many times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anabranch::graph::Each;
use anabranch::policy::PerOperator;
use anabranch::{Executor, Graph, Inputs, Value};
use futures::executor::block_on;

use crate::job::{spin, time_runs};
use crate::peers::{Load, Payload, Peer};
use crate::shapes::Shape;

/// Name of our column.
pub(crate) const NAME: &str = "anabranch";

/// Runs of the counting graph, before the clock starts.
const COUNTED_RUNS: u32 = 3;

pub(crate) struct Ours;

impl Ours {
    pub(crate) fn new() -> Self {
        Self
    }
}

impl Peer for Ours {
    fn name(&self) -> &'static str {
        NAME
    }

    fn run(&mut self, shape: &Shape, load: &Load) -> Option<f64> {
        let exec = Executor::builder().workers(load.workers.threads()).build().expect("an executor starts");
        if load.is_checked {
            count(shape, &exec);
        }
        if load.is_checked && load.payload == Payload::Values {
            check_values(shape, &exec);
        }
        let graph = graph(shape, load.payload, Duration::from_nanos(load.work_ns));
        let plan = graph.compile_with(&PerOperator).expect("shapes are valid graphs");
        let run_once = || drop(block_on(exec.run(&plan, Inputs::new())).expect("no node fails"));
        run_once();
        let figure = time_runs(shape.len(), load.runs, run_once);
        block_on(exec.shutdown()).expect("nothing runs any more");
        Some(figure)
    }
}

/// A graph of nodes without values, with the edges of `shape`. `body` makes the closure of each node.
fn ordered<F: Fn() + Send + Sync + 'static>(shape: &Shape, mut body: impl FnMut(u32) -> F) -> Graph {
    let mut graph = Graph::new();
    let mut nodes: Vec<Value<()>> = Vec::with_capacity(shape.len());
    for node in shape.nodes() {
        let value = graph.task(node.to_string(), (), body(node));
        shape.preds(node).iter().for_each(|&pred| graph.order(&nodes[pred as usize], &value));
        nodes.push(value);
    }
    graph
}

/// The graph that is timed.
pub(crate) fn graph(shape: &Shape, payload: Payload, work: Duration) -> Graph {
    match payload {
        Payload::Empty if work.is_zero() => ordered(shape, |_| || {}),
        Payload::Empty => ordered(shape, |_| move || spin(work)),
        Payload::Assorted => assorted(shape),
        Payload::Values => summing(shape, &seen(shape), false),
    }
}

/// A graph of nodes without values and without work, with one closure for each kind of node that `summing`
/// distinguishes.
fn assorted(shape: &Shape) -> Graph {
    let is_sink = sinks(shape);
    let mut graph = Graph::new();
    let mut nodes: Vec<Value<()>> = Vec::with_capacity(shape.len());
    for node in shape.nodes() {
        let (name, preds) = (node.to_string(), shape.preds(node));
        let value = match (preds.len(), is_sink[node as usize]) {
            (0, false) => graph.task(name, (), nothing::<0>),
            (1, false) => graph.task(name, (), nothing::<1>),
            (2, false) => graph.task(name, (), nothing::<2>),
            (3, false) => graph.task(name, (), nothing::<3>),
            (_, false) => graph.task(name, (), nothing::<4>),
            (0, true) => graph.task(name, (), nothing::<5>),
            (1, true) => graph.task(name, (), nothing::<6>),
            (2, true) => graph.task(name, (), nothing::<7>),
            (3, true) => graph.task(name, (), nothing::<8>),
            (_, true) => graph.task(name, (), nothing::<9>),
        };
        preds.iter().for_each(|&pred| graph.order(&nodes[pred as usize], &value));
        nodes.push(value);
    }
    graph
}

/// Does nothing, in code of its own.
fn nothing<const KIND: u8>() {
    _ = std::hint::black_box(KIND);
}

/// Checks that every node runs exactly once per run.
fn count(shape: &Shape, exec: &Executor) {
    let counts: Arc<[AtomicU32]> = shape.nodes().map(|_| AtomicU32::new(0)).collect();
    let graph = ordered(shape, |node| {
        let counts = counts.clone();
        move || _ = counts[node as usize].fetch_add(1, Ordering::Relaxed)
    });
    let plan = graph.compile_with(&PerOperator).expect("shapes are valid graphs");
    for _ in 0..COUNTED_RUNS {
        block_on(exec.run(&plan, Inputs::new())).expect("no node fails");
    }
    let is_right = counts.iter().all(|count| count.load(Ordering::Relaxed) == COUNTED_RUNS);
    assert!(is_right, "every node must run exactly once per run");
}

/// Checks that values flow, with a twin of the timed graph that stores every value.
fn check_values(shape: &Shape, exec: &Executor) {
    let seen = seen(shape);
    let plan = summing(shape, &seen, true).compile_with(&PerOperator).expect("shapes are valid graphs");
    block_on(exec.run(&plan, Inputs::new())).expect("no node fails");
    let sum = seen.iter().map(|value| value.load(Ordering::Relaxed)).fold(0, u64::wrapping_add);
    assert_eq!(sum, shape.checksum(), "values must flow along every edge");
}

/// A cell for the value of every node.
fn seen(shape: &Shape) -> Arc<[AtomicU64]> {
    shape.nodes().map(|_| AtomicU64::new(0)).collect()
}

fn sinks(shape: &Shape) -> Vec<bool> {
    let mut is_sink = vec![true; shape.len()];
    shape.nodes().flat_map(|node| shape.preds(node)).for_each(|&pred| is_sink[pred as usize] = false);
    is_sink
}

/// A graph whose nodes add up the values that they read, plus one. Sinks store their value, because it leaves
/// the graph there; the others do so only if `is_seen`.
fn summing(shape: &Shape, seen: &Arc<[AtomicU64]>, is_seen: bool) -> Graph {
    let is_sink = sinks(shape);
    let mut graph = Graph::new();
    let mut nodes: Vec<Value<u64>> = Vec::with_capacity(shape.len());
    for node in shape.nodes() {
        let name = node.to_string();
        let read: Vec<Value<u64>> = shape.preds(node).iter().map(|&pred| nodes[pred as usize]).collect();
        if !is_sink[node as usize] && !is_seen {
            nodes.push(add(&mut graph, name, &read, |sum| sum.wrapping_add(1)));
            continue;
        }
        let seen = seen.clone();
        let note = move |sum: u64| seen[node as usize].store(sum.wrapping_add(1), Ordering::Relaxed);
        if is_sink[node as usize] {
            add(&mut graph, name, &read, note);
            // No node reads a sink, so the placeholder for its value is never used.
            nodes.push(nodes.first().copied().unwrap_or_else(|| graph.task("unused", (), || 0)));
        } else {
            nodes.push(add(&mut graph, name, &read, move |sum| {
                note(sum);
                sum.wrapping_add(1)
            }));
        }
    }
    graph
}

/// Adds a node whose body gets the sum of the values that it reads.
fn add<R, F>(graph: &mut Graph, name: String, read: &[Value<u64>], body: F) -> Value<R>
where
    R: Send + Sync + 'static,
    F: Fn(u64) -> R + Send + Sync + 'static,
{
    match read {
        [] => graph.task(name, (), move || body(0)),
        [a] => graph.task(name, a, move |a: &u64| body(*a)),
        [a, b] => graph.task(name, (a, b), move |a: &u64, b: &u64| body(a.wrapping_add(*b))),
        [a, b, c] => graph.task(name, (a, b, c), move |a: &u64, b: &u64, c: &u64| body(a.wrapping_add(*b).wrapping_add(*c))),
        many => graph.task(name, many, move |all: Each<'_, u64>| body(all.iter().fold(0, |sum, &value| sum.wrapping_add(value)))),
    }
}
