//! The rows, by this library.

use std::time::Instant;

use anabranch::graph::Each;
use anabranch::policy::{CriticalPath, Single};
use anabranch::{Engine, Executor, Flow, Function, Graph, Inputs, Op, Plan, Value, Var, inputs};
use futures::executor::block_on;

use crate::rows::{CHAIN, FAN, FAN_UNITS, HANDED, HANDED_UNITS, Kind, Row};
use crate::vars;
use crate::work::{Work, untimed_ns};
use crate::workload::Workload;

const OPERATIONS: usize = 100_000;

pub(crate) fn figure(row: &Row, work: Work) -> f64 {
    let exec = Executor::builder().workers(row.workers).build().expect("threads start");
    let is_quick = row.workers == 0;
    let count = |quick: u32, slow: u32| if is_quick { quick } else { slow };
    let run = |plan: &Plan, times: u32| time(times, || drop(block_on(exec.run(plan, Inputs::new())).expect("no node fails")));
    let ns = match row.kind {
        Kind::Empty => run(&chain(1, |_| ()), 20_000),
        Kind::One => one(&exec, count(20_000, 2_000)),
        Kind::Chain => run(&chain(CHAIN, move |_| work.run(1)), count(5_000, 2_000)),
        Kind::Fan => run(&fan(move || work.run(FAN_UNITS)), 100),
        Kind::HandOver => run(&chain(1, move |_| work.run_timed(HANDED_UNITS)), HANDED),
        Kind::ExecutorCall => calls(&exec, count(20_000, 2_000)),
        Kind::FlowCall => {
            let function = add_one();
            in_flow(&exec, count(20_000, 2_000), |f, x| f.call(&function, &x))
        }
        Kind::CallAhead => calls_ahead(&exec, 10_000),
        Kind::Step => in_flow(&exec, 5_000, |f, x| {
            drop(f.node(Op::task("add", &x, &x, add)));
            x
        }),
        Kind::Operation => vars::run(&Workload::awaited(5_000), row.workers, 1),
        Kind::Loop => iteration(&exec, 100_000),
        Kind::Wide => vars::run(&Workload::random(OPERATIONS / 5), row.workers, 1),
        Kind::Bulk => bulks(&exec, OPERATIONS),
    };
    row.figure(ns, work)
}

/// Returns the ns of one of `times` calls. A tenth as many calls before them are not timed.
fn time(times: u32, mut one: impl FnMut()) -> f64 {
    (0..times / 10).for_each(|_| one());
    untimed_ns(|| (0..times).for_each(|_| one())) / f64::from(times)
}

fn add(x: &u64) -> u64 {
    x + 1
}

/// A plan of nodes in sequence, without values.
fn chain(nodes: usize, work: impl Fn(usize) + Clone + Send + Sync + 'static) -> Plan {
    let mut g = Graph::new();
    let node = |g: &mut Graph, number: usize, before: Option<&Value<()>>| {
        let work = work.clone();
        match before {
            Some(before) => g.task(number.to_string(), before, move |_: &()| work(number)),
            None => g.task(number.to_string(), (), move || work(number)),
        }
    };
    let first = node(&mut g, 0, None);
    (1..nodes).fold(first, |before, number| node(&mut g, number, Some(&before)));
    g.compile_with(&Single).expect("it is right")
}

/// A plan of one node, eight nodes side by side after it, and one node after those.
fn fan(work: impl Fn() + Clone + Send + Sync + 'static) -> Plan {
    let mut g = Graph::new();
    let of = |_| work.clone();
    let root = g.task("root", (), work.clone());
    let leaves: Vec<Value<()>> =
        (0..FAN).map(of).enumerate().map(|(leaf, work)| g.task(format!("leaf {leaf}"), &root, move |_: &()| work())).collect();
    g.task("join", &leaves[..], move |_: Each<()>| work());
    g.compile_with(&CriticalPath::default()).expect("it is right")
}

fn one(exec: &Executor, times: u32) -> f64 {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let y = g.task("add", &x, add);
    g.output("y", &y);
    let plan = g.compile_with(&Single).expect("it is right");
    let mut x = 0;
    time(times, || {
        x = *block_on(exec.run(&plan, inputs! { "x" => x }))
            .and_then(|mut outputs| outputs.take::<u64>("y"))
            .expect("it is there")
    })
}

fn add_one() -> Function<Value<u64>, Value<u64>> {
    Function::new("add", |g: &mut Graph, x: Value<u64>| g.task("add", &x, add)).expect("it is right")
}

fn calls(exec: &Executor, times: u32) -> f64 {
    let (function, mut x) = (add_one(), 0);
    time(times, || x = *block_on(exec.call(&function, x)).expect("nothing fails"))
}

/// Returns the ns per step. Each step is awaited before the next.
fn in_flow(exec: &Executor, steps: u32, step: impl Fn(&Flow, Var<u64>) -> Var<u64>) -> f64 {
    let timed = exec.flow(async |f: &Flow| {
        let (mut x, mut start) = (f.value("x", 0), Instant::now());
        for number in 0..steps + steps / 10 {
            if number == steps / 10 {
                start = Instant::now();
            }
            x = step(f, x);
            f.get(&x).await?;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(steps))
    });
    block_on(timed).expect("nothing fails")
}

fn calls_ahead(exec: &Executor, calls: u32) -> f64 {
    let (function, runs) = (add_one(), 5);
    let run = || {
        let called = exec.flow(async |f: &Flow| {
            let last = (0..calls).fold(f.value("x", 0), |x, _| f.call(&function, &x));
            Ok(*f.get(&last).await?)
        });
        assert_eq!(block_on(called).expect("nothing fails"), u64::from(calls));
    };
    run();
    time(runs, run) / f64::from(calls)
}

/// Returns the ns per operation, in bulks of 100 on 1,000 variables.
fn bulks(exec: &Executor, operations: usize) -> f64 {
    let engine = Engine::new(exec).expect("it has room");
    let vars: Vec<Var<u64>> = (0..1000).map(|_| engine.var("x", 0)).collect();
    let push_all = || {
        block_on(async {
            let mut bulk = engine.bulk(100);
            for x in vars.iter().cycle().take(operations) {
                bulk.push(Op::task("add", x, x, add)).await.expect("it is right");
            }
            bulk.end().await.expect("it is right");
            engine.idle().await.expect("nothing fails");
        });
    };
    // Five calls are too few for `time` to leave a tenth untimed.
    push_all();
    time(5, push_all) / operations as f64
}

fn iteration(exec: &Executor, iterations: u64) -> f64 {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let more = move |x: &u64| *x < iterations;
    let x = g.repeat("loop", &x, move |c, x| c.task("more", &x, more), |b, x| b.task("add", &x, add));
    g.output("x", &x);
    let plan = g.compile_with(&Single).expect("it is right");
    time(20, || drop(block_on(exec.run(&plan, inputs! { "x" => 0_u64 })).expect("nothing fails"))) / iterations as f64
}
