//! The drain of an executor: what begins before it ends well, what begins after it is refused, and the drain
//! hears of the last end.

use std::sync::Arc;

use super::harness::{block_on, check_within, join, spawn};
use super::polls::{chain_of_units, check_cheap, executor, run_once};
use super::runs::poll_once;
use super::vars::Gate;
use crate::policy::Single;
use crate::sync::{Mutex, lock};
use crate::{Engine, Executor, Flow, Graph, Inputs, Op, Plan};

/// Waits for the work of an executor, while another thread begins some.
fn drain_beside(exec: &Executor, work: impl FnOnce() + Send + 'static) {
    let other = spawn(work);
    block_on(exec.drain()).expect("this is outside of its runs");
    join(other);
    assert_eq!((exec.in_flight(), exec.stats().flows_in_flight), (0, 0));
}

#[test]
fn a_flow_that_begins_during_a_drain_ends_well_or_is_refused() {
    check_within(2, || {
        let exec = executor(0);
        let other = exec.clone();
        drain_beside(&exec, move || {
            let ended = block_on(other.flow(async |_: &Flow| Ok(())));
            assert!(ended.is_ok() || ended.is_err_and(|error| error.is_shut_down()));
        });
    });
}

#[test]
fn a_run_at_once_that_begins_during_a_drain_ends_well_or_is_refused() {
    check_cheap(2, chain_of_units, |plan, _| {
        let exec = executor(0);
        run_once(&exec, plan);
        let other = (exec.clone(), plan.clone());
        drain_beside(&exec, move || {
            let ended = block_on(other.0.run(&other.1, Inputs::new()));
            assert!(ended.is_ok() || ended.is_err_and(|error| error.is_shut_down()));
        });
    });
}

#[test]
fn what_a_flow_makes_during_a_drain_ends_well() {
    check_cheap(2, chain_of_units, |plan, _| {
        let exec = executor(0);
        run_once(&exec, plan);
        let (inside, plan) = (exec.clone(), plan.clone());
        drain_beside(&exec, move || {
            let mut has_begun = false;
            let ended = block_on(inside.flow(async |f: &Flow| {
                has_begun = true;
                inside.run(&plan, Inputs::new()).await?;
                f.get(&f.task("task", (), || 1)).await
            }));
            match ended {
                Ok(one) => assert_eq!(*one, 1),
                Err(error) => assert!(error.is_shut_down() && !has_begun),
            }
        });
    });
}

/// A plan whose run waits for a gate, and pushes an operation then.
fn pushing(engine: &Engine, gate: &Arc<Gate>) -> Plan {
    let (mut g, engine, gate) = (Graph::new(), engine.clone(), gate.clone());
    let opened = g.future("gate", (), move || {
        let gate = gate.clone();
        async move { Ok(gate.opened().await) }
    });
    g.task("push", &opened, move |_: &()| {
        let pushed = engine.try_push(Op::task("operation", (), (), || ()));
        assert!(pushed.is_ok(), "the run has begun before the drain ended");
    });
    g.compile_with(&Single).expect("the graph is right")
}

#[test]
fn an_operation_of_a_run_that_outlives_the_operation_that_made_it_ends_well() {
    check_within(2, || {
        let exec = executor(0);
        let engine = Engine::new(&exec).expect("the executor has room");
        let (begin, gate, begun) = (Arc::new(Gate::default()), Arc::new(Gate::default()), Arc::new(Mutex::new(None)));
        let (plan, inside, begins, makes) = (pushing(&engine, &gate), exec.clone(), begin.clone(), begun.clone());
        let make = Op::future("make", (), (), async move || {
            begins.opened().await;
            let mut run = inside.run(&plan, Inputs::new());
            assert!(!poll_once(&mut run));
            *lock(&makes) = Some(run);
            Ok(())
        });
        let made = block_on(engine.push(make)).expect("the engine is open");
        drain_beside(&exec, move || {
            begin.open();
            block_on(made).expect("nothing goes wrong");
            gate.open();
            let run = lock(&begun).take().expect("it was made");
            block_on(run).expect("it has begun before the drain ended");
        });
    });
}
