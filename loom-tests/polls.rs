//! Cheap work that polls and pushes do themselves, beside the workers. In a model all work counts as cheap,
//! and a poll has time for two nodes.

use std::sync::Arc;
use std::time::Duration;

use super::harness::{block_on, check_within, join, spawn};
use super::runs::{Alive, Counted, poll_once};
use crate::policy::{PerOperator, Single};
use crate::sync::{AtomicBool, Ordering, spin_loop};
use crate::{Engine, Executor, Graph, Inputs, Op, Plan};

pub(super) fn executor(workers: usize) -> Executor {
    let builder = Executor::builder().workers(workers).max_in_flight(1);
    builder.poll_budget(Duration::from_micros(20)).build().expect("the settings are in range")
}

/// Runs a model of a plan whose values are counted. After each execution no value may be alive.
pub(super) fn check_cheap(preemptions: usize, plan: fn(&Alive) -> Plan, model: impl Fn(&Plan, &Alive) + Send + Sync + 'static) {
    let alive = Alive::default();
    check_within(preemptions, move || {
        alive.assert_none();
        // The plan is made here, because its spare blocks contain words of the model.
        model(&plan(&alive), &alive);
    });
}

/// A plan of three tasks in a chain: a poll runs two, and a worker the last one.
fn chain(alive: &Alive) -> Plan {
    let (mut g, alive) = (Graph::new(), alive.clone());
    let a = g.task("a", (), {
        let alive = alive.clone();
        move || alive.value()
    });
    let b = g.task("b", &a, |_: &Counted| ());
    let c = g.task("c", &b, move |_: &()| alive.value());
    g.output("c", &c);
    g.compile_with(&Single).expect("the graph is right")
}

/// A plan of two tasks and a third that waits for both, on two streams: a poll runs two of the tasks.
fn join_of_two(alive: &Alive) -> Plan {
    let (mut g, alive) = (Graph::new(), alive.clone());
    let [a, b] = ["a", "b"].map(|name| {
        let alive = alive.clone();
        g.task(name, (), move || alive.value())
    });
    let c = g.task("c", (&a, &b), |_: &Counted, _: &Counted| ());
    g.output("c", &c);
    g.compile_with(&PerOperator).expect("the graph is right")
}

/// Runs the plan once. After that, the plan has a spare block.
pub(super) fn run_once(exec: &Executor, plan: &Plan) {
    block_on(exec.run(plan, Inputs::new())).expect("nothing goes wrong");
}

// Seen to fail with a poll that keeps the programs that it has no time for (a deadlock).
#[test]
fn a_run_that_a_poll_begins_and_a_worker_ends_is_complete() {
    check_cheap(2, chain, |plan, _| {
        run_once(&executor(1), plan);
    });
}

// Seen to fail with a poll that keeps the first of the programs that it has no time for.
#[test]
fn programs_that_a_poll_and_a_worker_run_meet() {
    check_cheap(2, join_of_two, |plan, _| {
        run_once(&executor(1), plan);
    });
}

// Seen to fail with a cancel that ends the run itself.
#[test]
fn a_run_is_cancelled_while_a_poll_and_a_worker_run_it() {
    check_cheap(2, chain, |plan, _| {
        let exec = executor(1);
        let run = exec.run(plan, Inputs::new());
        let canceller = run.canceller();
        let thread = spawn(move || canceller.cancel());
        let ended = block_on(run);
        assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()));
        join(thread);
    });
}

// Seen to fail with a drop that does not leave the run to limbo.
#[test]
fn a_run_that_a_poll_has_begun_is_dropped_while_a_worker_ends_it() {
    check_cheap(2, chain, |plan, alive| {
        let exec = executor(1);
        let mut run = exec.run(plan, Inputs::new());
        poll_once(&mut run);
        drop(run);
        while alive.count() > 0 {
            spin_loop();
        }
    });
}

// Seen to fail with a check of the program that counts its current step as done.
#[test]
fn a_node_is_awaited_while_a_poll_and_a_worker_run_it() {
    check_within(1, || {
        let (mut g, has_run) = (Graph::new(), Arc::new(AtomicBool::new(false)));
        let a = g.task("a", (), || ());
        let b = g.task("b", &a, {
            let has_run = has_run.clone();
            // ORDERING: Relaxed: the end of the node must make the store visible to its future.
            move |_: &()| has_run.store(true, Ordering::Relaxed)
        });
        g.task("c", &b, |_: &()| ());
        let plan = g.compile_with(&Single).expect("the graph is right");
        let exec = executor(1);
        let run = exec.run(&plan, Inputs::new());
        let node = run.node("b");
        let thread = spawn(move || {
            block_on(node).expect("it does not fail");
            assert!(has_run.load(Ordering::Relaxed));
        });
        block_on(run).expect("nothing goes wrong");
        join(thread);
    });
}

// Seen to fail with tickets of a late run that are not submitted (a deadlock).
#[test]
fn a_run_at_once_that_takes_longer_goes_on_at_a_worker() {
    check_cheap(1, chain, |plan, _| {
        let exec = executor(1);
        run_once(&exec, plan);
        run_once(&exec, plan);
    });
}

// Seen to fail with workers that are notified of the run after it is counted (a deadlock).
#[test]
fn a_shutdown_meets_a_run_at_once_that_takes_longer() {
    for workers in [0, 1] {
        check_cheap(1, chain, move |plan, _| {
            let exec = executor(workers);
            run_once(&exec, plan);
            let run = exec.run(plan, Inputs::new());
            let thread = spawn(move || drop(exec.shutdown()));
            let ended = block_on(run);
            assert!(ended.is_ok() || ended.is_err_and(|error| error.is_shut_down()));
            join(thread);
        });
    }
}

// Seen to fail with a block that is given back by an owner that is not the last.
#[test]
fn a_late_canceller_does_not_reach_the_next_run() {
    check_cheap(1, chain, |plan, _| {
        let exec = executor(1);
        let run = exec.run(plan, Inputs::new());
        let canceller = run.canceller();
        block_on(run).expect("it is not cancelled");
        let thread = spawn(move || canceller.cancel());
        run_once(&exec, plan);
        join(thread);
        run_once(&exec, plan);
    });
}

// Seen to fail with a block that is given back by an owner that is not the last.
#[test]
fn a_late_future_of_a_node_does_not_reach_the_next_run() {
    check_cheap(1, chain, |plan, _| {
        let exec = executor(1);
        run_once(&exec, plan);
        let run = exec.run(plan, Inputs::new());
        let node = run.node("b");
        block_on(run).expect("nothing goes wrong");
        let thread = spawn(move || block_on(node).expect("it has run"));
        run_once(&exec, plan);
        join(thread);
    });
}

// Seen to fail with a list that keeps the block that is taken.
#[test]
fn two_threads_use_the_blocks_of_one_plan() {
    check_cheap(1, chain, |plan, _| {
        let exec = executor(1);
        let other = (exec.clone(), plan.clone());
        let thread = spawn(move || run_once(&other.0, &other.1));
        run_once(&exec, plan);
        join(thread);
        run_once(&exec, plan);
    });
}

// Seen to fail with a turn that does not start operations that were posted in the meantime (a deadlock).
#[test]
fn operations_that_two_pushes_run_are_in_order() {
    check_within(1, || {
        let exec = executor(1);
        let engine = Engine::new(&exec).expect("the executor has room");
        let x = engine.var("x", 1);
        let push = |engine: &Engine, x: &crate::Var<u32>, times: u32| {
            let op = Op::task("op", x, x, move |x: &u32| x * times);
            block_on(engine.push(op)).and_then(block_on).expect("nothing goes wrong");
        };
        let other = (engine.clone(), x.clone());
        let thread = spawn(move || push(&other.0, &other.1, 3));
        push(&engine, &x, 2);
        join(thread);
        assert_eq!(*block_on(x.read()).expect("nothing goes wrong"), 6);
        drop((x, engine));
    });
}

// Seen to fail with an end of a run at once that does not answer (a deadlock).
#[test]
fn a_wait_for_an_idle_executor_hears_of_the_end_of_a_run_at_once() {
    check_cheap(2, chain_of_units, |plan, _| {
        let exec = executor(0);
        run_once(&exec, plan);
        let other = (exec.clone(), plan.clone());
        let thread = spawn(move || run_once(&other.0, &other.1));
        block_on(exec.idle()).expect("this is outside of its runs");
        join(thread);
        assert_eq!(exec.in_flight(), 0);
    });
}

// Seen to fail with a wait that answers for all waits when it finds the executor idle (a deadlock).
#[test]
fn two_waits_for_an_idle_executor_hear_of_it_though_runs_come_and_go() {
    check_cheap(3, chain_of_units, |plan, _| {
        let exec = executor(0);
        // Two runs at once take two blocks.
        let (first, second) = (exec.run(plan, Inputs::new()), exec.run(plan, Inputs::new()));
        block_on(first).and_then(|_| block_on(second)).expect("nothing goes wrong");
        let (runs, waits) = ((exec.clone(), plan.clone()), exec.clone());
        let runs = spawn(move || run_once(&runs.0, &runs.1));
        let waits = spawn(move || block_on(waits.idle()).expect("this is outside of its runs"));
        block_on(exec.idle()).expect("this is outside of its runs");
        run_once(&exec, plan);
        join(runs);
        join(waits);
    });
}

// Seen to fail with a run that is queued although the run at once has ended meanwhile, and with one that is
// queued without a request (deadlocks).
#[test]
fn a_run_that_waits_for_room_hears_of_the_end_of_a_run_at_once() {
    check_cheap(2, chain_of_units, |plan, _| {
        let exec = executor(0);
        run_once(&exec, plan);
        let other = (exec.clone(), plan.clone());
        let thread = spawn(move || run_once(&other.0, &other.1));
        let run = exec.run(plan, Inputs::new());
        // A run with a canceller is no run at once.
        let _canceller = run.canceller();
        block_on(run).expect("nothing goes wrong");
        join(thread);
    });
}

/// A plan of plain calls.
pub(super) fn chain_of_units(_: &Alive) -> Plan {
    let mut g = Graph::new();
    let a = g.task("a", (), || ());
    g.task("b", &a, |_: &()| ());
    g.compile_with(&Single).expect("the graph is right")
}
