//! Wakers are foreign code: they may submit, cancel and drop runs while they are woken, and panic in every
//! operation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Waker;

use anabranch::{Executor, Graph, Inputs, Plan, Run};
use futures::channel::oneshot;
use tokio_test::{assert_pending, task};

use crate::support::{
    Deed, block_on, chain, executor, executors, hooked, panic_quietly, plan, poll_once, poll_with, until, value_of,
};

/// A plan of eleven tasks with an async node in between.
fn eleven() -> Plan {
    let mut g = Graph::new();
    let x = g.task("x", (), || 0u64);
    let first = chain(&mut g, &x, 5);
    let yields = g.future("yields", &first, |first: Arc<u64>| async move {
        smol::future::yield_now().await;
        Ok(*first)
    });
    let out = chain(&mut g, &yields, 5);
    g.output("out", &out);
    plan(&g)
}

fn is_ten(run: Run) {
    assert_eq!(*value_of::<u64>(block_on(run), "out"), 10);
}

/// Returns a waker that panics when the deed is done to it.
fn touchy(deed: Deed) -> Waker {
    hooked(move |done| {
        if done == deed {
            panic_quietly("do not touch");
        }
    })
}

#[test]
fn a_waker_may_submit_cancel_and_drop_runs() {
    // Seen to hang when a waker was woken under the lock of a lane, or of the runs in flight.
    let plan = eleven();
    for exec in executors() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let others = Mutex::new((0..60).map(|_| exec.run(&plan, Inputs::new())).collect::<Vec<Run>>());
        let (inside, counted, own_plan) = (exec.clone(), wakes.clone(), plan.clone());
        let waker = hooked(move |deed| {
            let Some(mut others) = others.try_lock().ok().filter(|others| deed == Deed::Wake && others.len() > 3) else { return };
            let (mut submitted, cancelled, dropped) = (others.pop().unwrap(), others.pop().unwrap(), others.pop().unwrap());
            drop(others);
            let _ = (poll_once(&mut submitted), poll_once(&mut inside.idle()), inside.in_flight(), inside.in_limbo());
            cancelled.cancel();
            drop((dropped, submitted, inside.run(&own_plan, Inputs::new())));
            counted.fetch_add(1, SeqCst);
        });
        for _ in 0..50 {
            let mut run = exec.run(&plan, Inputs::new());
            let mut nodes = ["link 3", "yields", "link 10"].map(|name| run.node(name));
            let is_ready = |run: &mut Run| poll_with(run, &waker).is_ready();
            nodes.iter_mut().for_each(|node| _ = poll_with(node, &waker));
            until(|| is_ready(&mut run));
        }
        // Without workers a run ends in its first poll.
        assert!(exec.workers() == 0 || wakes.load(SeqCst) > 5);
        block_on(exec.idle()).unwrap();
        is_ten(exec.run(&plan, Inputs::new()));
    }
}

#[test]
fn a_waker_may_drop_the_run_that_wakes_it() {
    let plan = eleven();
    for exec in executors() {
        for name in ["x", "link 3", "yields", "link 10"] {
            let run = exec.run(&plan, Inputs::new());
            let (mut node, mut last) = (run.node(name), run.node("link 10"));
            let own = Mutex::new(Some(run));
            let waker = hooked(move |deed| {
                if deed == Deed::Wake {
                    drop(own.try_lock().ok().and_then(|mut own| own.take()));
                }
            });
            let _ = poll_with(&mut node, &waker);
            until(|| poll_once(&mut last).is_ready());
            drop(waker);
        }
        until(|| exec.in_limbo() == 0 && exec.in_flight() == 0);
        is_ten(exec.run(&plan, Inputs::new()));
    }
}

#[test]
fn a_waker_that_panics_when_woken_keeps_nobody_else_asleep() {
    let plan = eleven();
    for exec in executors() {
        let touchy = touchy(Deed::Wake);
        for _ in 0..20 {
            let (run, other) = (exec.run(&plan, Inputs::new()), exec.run(&plan, Inputs::new()));
            let mut nodes = ["link 3", "yields"].map(|name| run.node(name));
            nodes.iter_mut().for_each(|node| _ = poll_with(node, &touchy));
            is_ten(other);
            block_on(run.node("link 10")).unwrap();
            is_ten(run);
        }
        assert_eq!(exec.in_flight(), 0);
    }
}

#[test]
fn a_waker_that_panics_when_cloned_panics_its_own_poll() {
    let plan = eleven();
    for exec in executors() {
        let touchy = touchy(Deed::Clone);
        let (mut run, other) = (exec.run(&plan, Inputs::new()), exec.run(&plan, Inputs::new()));
        let mut node = run.node("link 10");
        for _ in 0..3 {
            let _ = catch_unwind(AssertUnwindSafe(|| _ = poll_with(&mut run, &touchy)));
            let _ = catch_unwind(AssertUnwindSafe(|| poll_with(&mut node, &touchy)));
        }
        is_ten(other);
        assert!(block_on(node).is_ok());
        let idle = catch_unwind(AssertUnwindSafe(|| poll_with(&mut exec.idle(), &touchy).is_ready()));
        assert!(idle.is_err());
        block_on(exec.shutdown()).unwrap();
    }
}

#[test]
fn a_waker_that_panics_when_dropped_harms_nobody() {
    let plan = eleven();
    for exec in executors() {
        let touchy = touchy(Deed::Drop);
        let mut run = exec.run(&plan, Inputs::new());
        let mut nodes = ["link 3", "yields", "link 10"].map(|name| run.node(name));
        for _ in 0..3 {
            nodes.iter_mut().for_each(|node| _ = poll_with(node, &touchy));
            if poll_with(&mut run, &touchy).is_ready() {
                break;
            }
        }
        drop(nodes);
        drop(run);
        let mut idle = exec.idle();
        let _ = poll_with(&mut idle, &touchy);
        drop(idle);
        is_ten(exec.run(&plan, Inputs::new()));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(touchy))).is_err(), "the test's own");
    }
}

#[test]
fn a_run_that_is_next_is_woken_through_its_waker() {
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).max_in_flight(1).build().unwrap();
        let (opens, opened) = oneshot::channel::<u64>();
        let opened = Mutex::new(Some(opened));
        let mut g = Graph::new();
        let out = g.future("waits", (), move || {
            let opened = opened.lock().unwrap().take().unwrap();
            async move { Ok(opened.await?) }
        });
        g.output("out", &out);
        let [mut first, mut second] = [&plan(&g), &eleven()].map(|plan| task::spawn(exec.run(plan, Inputs::new())));
        assert_pending!(first.poll());
        assert_pending!(second.poll());
        opens.send(10).unwrap();
        until(|| first.is_woken());
        is_ten(first.into_inner());
        until(|| second.is_woken());
        is_ten(second.into_inner());
    }
}

/// Panics when it is dropped.
struct Grudge;

impl Drop for Grudge {
    fn drop(&mut self) {
        panic_quietly("never");
    }
}

#[test]
fn what_a_worker_frees_last_may_panic() {
    // Seen to fail when `finish` released the run unshielded: the panic ended the worker.
    let exec = executor(1);
    let (grudge, (open, gate)) = (Grudge, mpsc::channel::<()>());
    let gate = Mutex::new(gate);
    let mut g = Graph::new();
    g.task("a", (), move || {
        let _held = &grudge;
        gate.lock().unwrap().recv().unwrap();
    });
    let run = Arc::new(Mutex::new(Some(exec.run(&plan(&g), Inputs::new()))));
    drop(g);
    let own = run.clone();
    let waker = hooked(move |deed| {
        if deed == Deed::Wake {
            drop(own.lock().unwrap().take());
        }
    });
    assert!(poll_with(run.lock().unwrap().as_mut().unwrap(), &waker).is_pending());
    open.send(()).unwrap();
    until(|| run.lock().unwrap().is_none());
    is_ten(exec.run(&eleven(), Inputs::new()));
    block_on(exec.shutdown()).unwrap();
}
