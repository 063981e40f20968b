//! `try_run` reserves a place among the runs in flight at once. Also panic payloads in the library's own
//! steps.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use anabranch::policy::Single;
use anabranch::{Engine, Executor, Graph, Inputs, Op, Plan, inputs};
use futures::FutureExt;
use futures::executor::block_on;

use crate::support::poll_once;

fn plan() -> Plan {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let y = g.task("double", &x, |x: &u64| x * 2);
    g.output("y", &y);
    g.compile_with(&Single).unwrap()
}

#[test]
fn a_run_that_was_let_in_holds_its_place_before_it_is_polled() {
    for workers in [0, 1] {
        let exec = Executor::builder().workers(workers).max_in_flight(1).build().unwrap();
        let run = exec.try_run(&plan(), inputs! { "x" => 1_u64 }).unwrap();
        let (error, inputs) = exec.try_run(&plan(), inputs! { "x" => 2_u64 }).unwrap_err().into_parts();
        assert!(error.is_busy(), "{error}");
        drop(run);
        let mut outputs = block_on(exec.try_run(&plan(), inputs).unwrap()).unwrap();
        assert_eq!(*outputs.take::<u64>("y").unwrap(), 4);
        block_on(exec.shutdown()).unwrap();
    }
}

#[test]
fn a_dropped_run_holds_its_place_until_its_task_has_ended() {
    // Seen to fail with a drop that gives the place back itself.
    let exec = Executor::builder().workers(1).max_in_flight(1).build().unwrap();
    let (began, has_begun) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    let may_end = Mutex::new(may_end);
    let mut g = Graph::new();
    let y = g.task("waits", (), move || {
        began.send(()).unwrap();
        may_end.lock().unwrap().recv().unwrap()
    });
    g.output("y", &y);
    let mut run = exec.try_run(&g.compile_with(&Single).unwrap(), Inputs::new()).unwrap();
    assert!(poll_once(&mut run).is_pending());
    has_begun.recv().unwrap();
    drop(run);
    assert_eq!(exec.in_flight(), 1);
    assert!(exec.try_run(&plan(), inputs! { "x" => 1_u64 }).unwrap_err().error().is_busy());
    end.send(()).unwrap();
    block_on(exec.idle()).unwrap();
    assert!(block_on(exec.try_run(&plan(), inputs! { "x" => 1_u64 }).unwrap()).is_ok());
}

#[test]
fn a_reserved_run_ends_with_its_executor() {
    // Seen to hang at the shutdown when a cancelled run kept its reserved place.
    for workers in [0, 2] {
        let exec = Executor::builder().workers(workers).build().unwrap();
        let run = exec.try_run(&plan(), inputs! { "x" => 1_u64 }).unwrap();
        block_on(exec.shutdown()).unwrap();
        assert!(block_on(run).unwrap_err().is_shut_down());
        assert!(exec.try_run(&plan(), Inputs::new()).unwrap_err().error().is_shut_down());
    }
}

#[test]
fn a_reserved_run_with_wrong_inputs_gives_its_place_back() {
    let exec = Executor::builder().workers(1).max_in_flight(1).build().unwrap();
    assert!(block_on(exec.try_run(&plan(), Inputs::new()).unwrap()).is_err());
    assert!(block_on(exec.try_run(&plan(), inputs! { "x" => 1_u64 }).unwrap()).is_ok());
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new("the payload of a panic panics too"));
    }
}

struct BombWaker;

impl Wake for BombWaker {
    fn wake(self: Arc<Self>) {
        resume_unwind(Box::new(Bomb));
    }
}

#[test]
fn a_waker_that_panics_with_a_bomb_harms_no_other_waiter() {
    // Seen to hang (the second waiter was never woken) when the payload was dropped unshielded.
    let exec = Executor::builder().workers(1).build().unwrap();
    for _ in 0..50 {
        let run = exec.run(&plan(), inputs! { "x" => 1_u64 });
        let (mut bombed, waited) = (run.node("double"), run.node("double"));
        let bomb = Waker::from(Arc::new(BombWaker));
        let polled: Poll<_> = bombed.poll_unpin(&mut Context::from_waker(&bomb));
        drop(polled);
        block_on(waited).unwrap();
        block_on(run).unwrap();
    }
    block_on(exec.shutdown()).unwrap();
}

#[test]
fn a_refusal_is_an_error_that_has_what_was_refused() {
    fn refused(exec: &Executor, engine: &Engine) -> anabranch::Result<()> {
        drop(exec.try_run(&plan(), inputs! { "x" => 2_u64 })?);
        engine.try_push(Op::task("add", (), (), || ()))?;
        Ok(())
    }
    let exec = Executor::builder().workers(0).max_in_flight(1).build().unwrap();
    let engine = Engine::new(&exec).unwrap();
    let first = exec.try_run(&plan(), inputs! { "x" => 1_u64 }).unwrap();
    assert!(refused(&exec, &engine).unwrap_err().is_busy());
    let refusal = exec.try_run(&plan(), inputs! { "x" => 2_u64 }).unwrap_err();
    assert_eq!(refusal.to_string(), refusal.error().to_string());
    assert!(format!("{refusal:?}").starts_with("Refused { error: "), "{refusal:?}");
    drop(first);
    assert!(block_on(exec.try_run(&plan(), refusal.into_inner()).unwrap()).is_ok());
    block_on(exec.shutdown()).unwrap();
    let refusal = engine.try_push(Op::task("late", (), (), || ())).unwrap_err();
    assert!(refusal.error().is_shut_down());
    assert_eq!(refusal.into_inner().name(), "late");
}
