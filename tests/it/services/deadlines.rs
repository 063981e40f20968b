//! Deadlines of runs, calls and flows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anabranch::{Error, Executor, Flow, Function, Graph, Inputs, Plan, Value, inputs};
use futures::channel::oneshot;

use super::{letter, one_at_a_time, waiting};
use crate::support::{Deed, Tally, block_on, executor, executors, hooked, panic_quietly, plan, poll_once, poll_with, until};

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(5)
}

fn is_late(error: &Error) -> bool {
    assert_eq!(
        error.to_string(),
        "the run or flow was cancelled, because it was not over at its deadline: give it more time, or less to do"
    );
    error.is_past_deadline() && error.is_cancelled() && !error.is_shut_down()
}

#[test]
fn a_run_that_waits_ends_at_its_deadline() {
    // Seen to fail (nothing woke the future) without a timer.
    for exec in executors() {
        let (sender, inputs) = letter();
        let begin = Instant::now();
        let run = exec.run(&waiting(), inputs).deadline(begin + Duration::from_millis(5));
        assert!(is_late(&block_on(run).unwrap_err()));
        assert!(begin.elapsed() >= Duration::from_millis(5));
        block_on(exec.idle()).unwrap();
        // Its node's future was dropped while pending.
        assert!(sender.is_canceled());
    }
}

#[test]
fn a_run_does_not_begin_behind_its_deadline() {
    // Seen to fail with a deadline that is checked only after a pending poll.
    for exec in executors() {
        let tally = Tally::default();
        let mut g = Graph::new();
        let x = g.input::<crate::support::Counted>("x");
        let bodies = Arc::new(AtomicUsize::new(0));
        let counted = bodies.clone();
        g.task("body", &x, move |_: &crate::support::Counted| _ = counted.fetch_add(1, SeqCst));
        let run = exec.run(&plan(&g), inputs! { "x" => tally.value(1) }).deadline(Instant::now());
        assert!(is_late(&block_on(run).unwrap_err()));
        block_on(exec.idle()).unwrap();
        assert_eq!((bodies.load(SeqCst), tally.alive()), (0, 0));
    }
}

#[test]
fn a_run_that_is_over_in_time_may_be_awaited_later() {
    for workers in [1, 2] {
        let exec = executor(workers);
        let mut g = Graph::new();
        let a = g.task("a", (), || 1);
        g.output("a", &a);
        let plan = plan(&g);
        // A run may be late on a busy machine.
        until(|| {
            let deadline = Instant::now() + Duration::from_millis(50);
            let mut run = exec.run(&plan, Inputs::new()).deadline(deadline);
            let polled = poll_once(&mut run);
            until(|| exec.in_flight() == 0);
            let is_in_time = polled.is_pending() && Instant::now() < deadline;
            until(|| Instant::now() >= deadline);
            if is_in_time {
                assert_eq!(*block_on(run).unwrap().take::<i32>("a").unwrap(), 1);
            }
            is_in_time
        });
    }
}

#[test]
fn a_deadline_does_not_wait_for_what_is_running() {
    // Seen to fail (the future stayed pending) with a poll that goes on after the cancel.
    let exec = executor(1);
    let (go, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let mut g = Graph::new();
    let first = g.task("blocks", (), move || gate.lock().unwrap().recv().unwrap());
    let behind = Arc::new(AtomicUsize::new(0));
    let counted = behind.clone();
    g.task("behind", &first, move |_: &()| _ = counted.fetch_add(1, SeqCst));
    let error = block_on(exec.run(&plan(&g), Inputs::new()).deadline(soon())).unwrap_err();
    assert!(is_late(&error));
    assert_eq!(exec.in_flight(), 1);
    go.send(()).unwrap();
    block_on(exec.idle()).unwrap();
    assert_eq!(behind.load(SeqCst), 0);
}

#[test]
fn a_run_that_waits_for_room_leaves_the_queue_at_its_deadline() {
    for exec in one_at_a_time() {
        let plan = waiting();
        let ((first_sender, first), (_second_sender, second), (third_sender, third)) = (letter(), letter(), letter());
        let (mut first, mut third) = (exec.run(&plan, first), exec.run(&plan, third));
        assert!(poll_once(&mut first).is_pending());
        let mut second = exec.run(&plan, second).deadline(soon());
        assert!(poll_once(&mut second).is_pending() && poll_once(&mut third).is_pending());
        assert!(is_late(&block_on(second).unwrap_err()));
        assert_eq!(exec.stats().runs_waiting, 1);
        first_sender.send(1).unwrap();
        third_sender.send(3).unwrap();
        block_on(first).unwrap();
        assert_eq!(*block_on(third).unwrap().take::<u32>("word").unwrap(), 3);
    }
}

#[test]
fn the_futures_of_nodes_tell_the_deadline() {
    for exec in executors() {
        let (_sender, inputs) = letter();
        let run = exec.run(&waiting(), inputs).deadline(soon());
        let node = run.node("wait");
        assert!(is_late(&block_on(run).unwrap_err()));
        assert!(is_late(&block_on(node).unwrap_err()));
    }
}

#[test]
fn a_call_has_a_deadline() {
    let never = Function::new("never", |g: &mut Graph, x: Value<u32>| {
        g.future("never", &x, async |_: Arc<u32>| std::future::pending::<anabranch::Result<u32, anabranch::BoxError>>().await)
    });
    let never = never.unwrap();
    for exec in executors() {
        assert!(is_late(&block_on(exec.call(&never, 1).deadline(soon())).unwrap_err()));
    }
}

#[test]
fn a_flow_ends_at_its_deadline_with_all_that_it_has_pushed() {
    // Seen to fail (nothing woke the future) without a timer.
    for exec in executors() {
        let (sender, receiver) = oneshot::channel::<()>();
        let flow = exec.flow(async move |f: &Flow| {
            let x = f.future("wait", (), move || async move { Ok(receiver.await?) });
            f.get(&x).await.map(|_| ())
        });
        assert!(is_late(&block_on(flow.deadline(soon())).unwrap_err()));
        until(|| sender.is_canceled());
    }
}

#[test]
fn a_flow_that_was_cancelled_before_its_deadline_says_so() {
    // Seen to fail with a poll that checks the deadline first.
    for exec in executors() {
        let mut flow = Box::pin(exec.flow(async |_: &Flow| Ok(std::future::pending::<()>().await)).deadline(soon()));
        let deadline = soon();
        assert!(poll_once(&mut flow).is_pending());
        flow.cancel();
        until(|| Instant::now() >= deadline);
        let error = block_on(flow).unwrap_err();
        assert!(error.is_cancelled() && !error.is_past_deadline());
    }
}

#[test]
fn a_flow_that_is_over_in_time_has_its_value() {
    for exec in executors() {
        let flow = exec.flow(async |f: &Flow| Ok(*f.get(&f.value("x", 1)).await?));
        assert_eq!(block_on(flow.deadline(Instant::now() + Duration::from_secs(3600))).unwrap(), 1);
    }
}

/// A plan of one node that counts.
fn counting(bodies: &Arc<AtomicUsize>) -> Plan {
    let mut g = Graph::new();
    let bodies = bodies.clone();
    g.task("count", (), move || _ = bodies.fetch_add(1, SeqCst));
    plan(&g)
}

#[test]
fn a_waker_that_panics_harms_no_other_deadline() {
    // Seen to fail (nothing woke the second run) without a guard around the wake.
    let exec = Executor::inline();
    let ((_first_sender, first), (_second_sender, second)) = (letter(), letter());
    let plan = waiting();
    let (mut first, second) = (exec.run(&plan, first).deadline(soon()), exec.run(&plan, second).deadline(soon()));
    let has_rung = Arc::new(AtomicUsize::new(0));
    let rung = has_rung.clone();
    let waker = hooked(move |deed| {
        if deed == Deed::Wake {
            rung.fetch_add(1, SeqCst);
            panic_quietly("a waker");
        }
    });
    assert!(poll_with(&mut first, &waker).is_pending());
    assert!(is_late(&block_on(second).unwrap_err()));
    until(|| has_rung.load(SeqCst) > 0);
    assert!(is_late(&block_on(first).unwrap_err()));
}

#[test]
fn deadlines_do_not_keep_executors() {
    let exec = Executor::inline();
    let bodies = Arc::new(AtomicUsize::new(0));
    let run = exec.run(&counting(&bodies), Inputs::new()).deadline(Instant::now() + Duration::from_secs(3600));
    drop(exec);
    let error = block_on(run).unwrap_err();
    assert!(error.is_shut_down() && !error.is_past_deadline());
    assert_eq!(bodies.load(SeqCst), 0);
}
