//! Whole runs: the real executor, its workers and its futures, on plans of one or two nodes. Other models
//! check one protocol; these check all of them together: every run ends, every waker is called, and every
//! value is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use super::harness::{block_on, block_on_in_turns, check, check_within, join, spawn};
use crate::device::host::Barrier;
use crate::policy::{PerOperator, Single};
use crate::sync::{self, Mutex, lock, spin_loop};
use crate::{Executor, Graph, Inputs, Plan, inputs};

/// The number of values that are alive.
#[derive(Clone, Default)]
pub(super) struct Alive(Arc<AtomicU32>);

/// A value that is counted.
pub(super) struct Counted(Alive);

impl Alive {
    pub(super) fn count(&self) -> u32 {
        // ORDERING: SeqCst costs nothing in a model. It pairs with the changes of the count.
        self.0.load(Ordering::SeqCst)
    }

    /// Asserts that no value of the previous execution is alive, once all of its threads have ended.
    pub(super) fn assert_none(&self) {
        while cfg!(not(anabranch_loom)) && self.count() > 0 {
            // The workers of the previous round may still be ending.
            std::thread::yield_now();
        }
        assert_eq!(self.count(), 0, "a value of the execution before is alive");
    }

    pub(super) fn value(&self) -> Counted {
        // ORDERING: SeqCst costs nothing in a model. It pairs with the loads of the count.
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted(self.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // ORDERING: SeqCst costs nothing in a model. It pairs with the loads of the count.
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs a model of a plan whose values are counted. After each execution, once all of its threads have ended,
/// no value may be alive.
pub(super) fn check_values(preemptions: usize, plan: fn(&Alive) -> Plan, model: impl Fn(&Plan, &Alive) + Send + Sync + 'static) {
    let alive = Alive::default();
    let plan = plan(&alive);
    check_within(preemptions, move || {
        alive.assert_none();
        model(&plan, &alive);
    });
}

fn workers(workers: usize) -> Executor {
    Executor::builder().workers(workers).max_in_flight(1).build().expect("the settings are in range")
}

/// A plan of one task.
fn one_task(alive: &Alive) -> Plan {
    let (mut g, alive) = (Graph::new(), alive.clone());
    let a = g.task("a", (), move || alive.value());
    g.output("a", &a);
    g.compile_with(&PerOperator).expect("the graph is right")
}

pub(super) fn poll_once(future: &mut (impl Future + Unpin)) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// The event that an async node waits for. Another thread fires it.
#[derive(Default)]
struct Source(Mutex<(bool, Option<Waker>)>);

impl Source {
    fn fire(&self) {
        let waker = {
            let mut state = lock(&self.0);
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn fired(&self) {
        std::future::poll_fn(|cx| {
            let mut state = lock(&self.0);
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A plan of one async node, which waits for its source.
fn one_future(alive: &Alive) -> Plan {
    let (mut g, alive) = (Graph::new(), alive.clone());
    let source = g.input::<Arc<Source>>("source");
    let a = g.future("a", &source, move |source: Arc<Arc<Source>>| {
        let value = alive.value();
        async move {
            source.fired().await;
            Ok(value)
        }
    });
    g.output("a", &a);
    g.compile_with(&PerOperator).expect("the graph is right")
}

// Seen to fail with any of: a `land` that signals before the verdict is there; a `submit` that wakes no
// worker, or wakes before it pushes (a deadlock).
#[test]
fn a_run_that_a_worker_completes_ends() {
    check_values(2, one_task, |plan, _| {
        let exec = workers(1);
        block_on(exec.run(plan, Inputs::new())).expect("nothing goes wrong");
    });
}

// Seen to fail with any of: a `Run::drop` that does not check twice; no fence in `Limbo::hold`; a `land` that
// does not collect (each: the values stay); a `close` that does not stop the pool (a deadlock).
#[test]
fn a_run_that_is_dropped_while_a_worker_runs_it_frees_its_values() {
    check_values(2, one_task, |plan, alive| {
        let exec = workers(1);
        let mut run = exec.run(plan, Inputs::new());
        poll_once(&mut run);
        drop(run);
        // No later call frees the values: the worker or the drop must do it.
        // ORDERING: SeqCst costs nothing in a model. It pairs with the changes of the count.
        while alive.0.load(Ordering::SeqCst) > 0 {
            spin_loop();
        }
    });
}

// Seen to fail with a `land` that signals before the verdict is there.
#[test]
fn a_run_that_is_cancelled_while_a_worker_runs_it_ends() {
    check_values(2, one_task, |plan, _| {
        let exec = workers(1);
        let mut run = exec.run(plan, Inputs::new());
        if poll_once(&mut run) {
            return;
        }
        run.cancel();
        if let Err(error) = block_on(run) {
            assert!(error.is_cancelled());
        }
    });
}

// Seen to fail with a `refuse` that does not collect: the dropped run stays in limbo.
#[test]
fn a_run_that_never_started_and_is_dropped_while_it_is_cancelled_leaves_nothing() {
    let plan = one_task(&Alive::default());
    check(move || {
        let exec = Executor::inline();
        let run = exec.run(&plan, Inputs::new());
        let canceller = run.canceller();
        // Loom does not see the Weak of std. Without a word that both threads change, it would try only one
        // order.
        let both = Arc::new(sync::AtomicU32::new(0));
        let seen = both.clone();
        let cancelling = spawn(move || {
            // ORDERING: Relaxed: only the order of the two stores matters, to loom.
            seen.store(1, Ordering::Relaxed);
            canceller.cancel();
        });
        both.store(2, Ordering::Relaxed);
        drop(run);
        join(cancelling);
        assert_eq!(exec.in_limbo(), 0);
    });
}

// Seen to fail with a run that is not announced to the pool before it is admitted: the workers end, and it
// waits for ever.
#[test]
fn a_run_whose_executor_is_dropped_ends() {
    check_values(2, one_task, |plan, _| {
        let exec = workers(1);
        let run = exec.run(plan, Inputs::new());
        let dropping = spawn(move || drop(exec));
        if let Err(error) = block_on(run) {
            assert!(error.is_shut_down());
        }
        join(dropping);
    });
}

// Seen to fail with any of: no second `start` after the registration; an `end_flight` that wakes no run (a
// deadlock).
#[test]
fn a_run_that_waits_for_its_turn_gets_it() {
    check_values(2, one_task, |plan, _| {
        let exec = workers(1);
        let mut first = exec.run(plan, Inputs::new());
        poll_once(&mut first);
        block_on(exec.run(plan, Inputs::new())).expect("nothing goes wrong");
    });
}

// Seen to fail with a poll that does not check for woken nodes after it registered (a deadlock).
#[test]
fn an_async_node_that_is_woken_is_polled() {
    check_values(3, one_future, |plan, _| {
        let (exec, source) = (Executor::inline(), Arc::new(Source::default()));
        let run = exec.run(plan, inputs! { "source" => source.clone() });
        let firing = spawn(move || source.fire());
        block_on(run).expect("nothing goes wrong");
        join(firing);
    });
}

// Seen to fail with the same change as the model of an inline run (a deadlock).
#[test]
fn an_async_node_that_a_worker_hands_over_is_polled() {
    check_values(2, one_future, |plan, _| {
        let (exec, source) = (workers(1), Arc::new(Source::default()));
        source.fire();
        block_on(exec.run(plan, inputs! { "source" => source })).expect("nothing goes wrong");
    });
}

// Seen to fail with any of: no fence in `drive`; none in `drive_cancelled`; no check for a cancel after a
// poll; a `close` that does not cancel (each: a deadlock).
#[test]
fn an_async_node_that_is_handed_over_during_a_shutdown_is_ended() {
    check_values(2, one_future, |plan, _| {
        let exec = workers(1);
        let run = exec.run(plan, inputs! { "source" => Arc::new(Source::default()) });
        let dropping = spawn(move || drop(exec));
        let error = block_on(run).expect_err("its source never fires");
        assert!(error.is_shut_down());
        join(dropping);
    });
}

// Seen to fail with any of: no check for a cancel after a hand-over; a `Run::drop` that does not cancel (the
// run stays in flight).
#[test]
fn an_async_node_that_is_handed_over_while_its_run_is_dropped_is_ended() {
    check_values(2, one_future, |plan, _| {
        let exec = workers(1);
        let mut run = exec.run(plan, inputs! { "source" => Arc::new(Source::default()) });
        poll_once(&mut run);
        drop(run);
        while exec.in_flight() > 0 {
            spin_loop();
        }
    });
}

// Failed at first: the run was live before its first programs were queued, so a second task found no work and
// slept. Seen to fail with any of: that; no second `drive` after the registration; a run without a frame yet
// that counts as one without work.
#[test]
fn an_inline_run_goes_on_after_a_poll_in_another_task_that_does_not_come_back() {
    let mut g = Graph::new();
    let a = g.task("a", (), || 1);
    let b = g.task("b", &a, |a: &i32| a + 1);
    let c = g.task("c", &b, |b: &i32| b + 1);
    g.output("c", &c);
    let plan = g.compile_with(&PerOperator).expect("the graph is right");
    check_within(3, move || {
        let exec = Executor::inline();
        let run = exec.run(&plan, Inputs::new());
        let mut node = run.node("c");
        let other = spawn(move || poll_once(&mut node));
        block_on(run).expect("nothing goes wrong");
        join(other);
    });
}

/// A task that runs until it may end.
fn stay(may_end: &Arc<sync::AtomicBool>) {
    // ORDERING: Acquire pairs with the Release in `await_a_before_b`.
    while !may_end.load(Ordering::Acquire) {
        spin_loop();
    }
}

/// Awaits node "a" of a run in which task "b", which comes later, ends only after that: with a barrier that
/// works, and with one that is refused.
fn await_a_before_b(plan: Plan) {
    for barrier in [Barrier::new(), Barrier::refused()] {
        let plan = plan.clone();
        check_within(2, move || {
            let builder = Executor::builder().workers(1).max_in_flight(1).barrier(barrier);
            let (exec, may_end) = (builder.build().expect("the settings are in range"), Arc::new(sync::AtomicBool::new(false)));
            let mut run = exec.run(&plan, inputs! { "may end" => may_end.clone() });
            assert!(!poll_once(&mut run));
            block_on_in_turns(run.node("a")).expect("nothing goes wrong");
            // ORDERING: Release pairs with the Acquire in `stay`.
            may_end.store(true, Ordering::Release);
            block_on(run).expect("nothing goes wrong");
        });
    }
}

// Seen to fail with any of: no light barrier before the load of the state; no signal there; no record of the
// step; no `catch_up`; a node future that does not wake itself when the barrier is refused.
#[test]
fn a_node_that_is_done_says_so_while_its_program_goes_on() {
    let mut g = Graph::new();
    let may_end = g.input::<Arc<sync::AtomicBool>>("may end");
    let a = g.task("a", (), || ());
    let b = g.task("b", (&a, &may_end), |_: &(), may_end: &Arc<sync::AtomicBool>| stay(may_end));
    g.output("b", &b);
    await_a_before_b(g.compile_with(&Single).expect("the graph is right"));
}

// Seen to fail with any of: no light barrier in `store_place`; no signal there; a `catch_up` that does not
// check places.
#[test]
fn a_node_that_is_done_says_so_while_its_program_is_parked() {
    let mut g = Graph::new();
    let may_end = g.input::<Arc<sync::AtomicBool>>("may end");
    let a = g.task("a", (), || ());
    let b = g.task("b", &may_end, |may_end: &Arc<sync::AtomicBool>| stay(may_end));
    let c = g.task("c", (&a, &b), |_: &(), _: &()| ());
    g.output("c", &c);
    await_a_before_b(g.compile_with(&PerOperator).expect("the graph is right"));
}

// Seen to fail with any of: no second `drive` after the registration; an ended node whose place is not stored
// (each: a deadlock).
#[test]
fn an_async_node_goes_on_after_a_poll_in_another_task_that_does_not_come_back() {
    check_values(2, one_future, |plan, _| {
        let (exec, source) = (Executor::inline(), Arc::new(Source::default()));
        let run = exec.run(plan, inputs! { "source" => source.clone() });
        let mut node = run.node("a");
        let other = spawn(move || poll_once(&mut node));
        let firing = spawn(move || source.fire());
        block_on(run).expect("nothing goes wrong");
        join(other);
        join(firing);
    });
}

// Seen to fail with a `close` that does not cancel (a deadlock).
#[test]
fn an_inline_run_that_is_shut_down_while_it_is_polled_ends() {
    check_values(3, one_future, |plan, _| {
        let exec = Executor::inline();
        let run = exec.run(plan, inputs! { "source" => Arc::new(Source::default()) });
        let dropping = spawn(move || drop(exec));
        let error = block_on(run).expect_err("its source never fires");
        assert!(error.is_shut_down());
        join(dropping);
    });
}

// Seen to fail with any of: a `leave_queue` that wakes no run; a `Run::drop` that does not cancel (each: a
// deadlock).
#[test]
fn a_queued_run_that_is_dropped_passes_its_turn_on() {
    check_values(2, one_task, |plan, _| {
        let exec = workers(1);
        let mut first = exec.run(plan, Inputs::new());
        poll_once(&mut first);
        let mut second = exec.run(plan, Inputs::new());
        poll_once(&mut second);
        let dropping = spawn(move || drop(second));
        block_on(exec.run(plan, Inputs::new())).expect("nothing goes wrong");
        join(dropping);
    });
}

// Seen to fail with a `close` that does not stop the pool (a deadlock).
#[test]
fn a_shutdown_waits_for_runs_and_workers() {
    check_values(2, one_task, |plan, alive| {
        let exec = workers(1);
        let mut run = exec.run(plan, Inputs::new());
        poll_once(&mut run);
        drop(run);
        block_on(exec.shutdown()).expect("this is not inside of a node");
        // ORDERING: SeqCst costs nothing in a model. It pairs with the changes of the count.
        assert_eq!(alive.0.load(Ordering::SeqCst), 0, "what a dropped run left is freed");
        assert_eq!((exec.in_flight(), exec.in_limbo()), (0, 0));
    });
}

// Seen to fail with an `end_flight` that does not signal `idle` (a deadlock).
#[test]
fn an_executor_becomes_idle() {
    check_values(2, one_task, |plan, _| {
        let exec = workers(1);
        let mut run = exec.run(plan, Inputs::new());
        poll_once(&mut run);
        block_on(exec.idle()).expect("this is not inside of a node");
        assert_eq!(exec.in_flight(), 0);
    });
}

// Seen to fail with a `store_place` that leaves its step recorded.
#[test]
fn the_next_run_in_a_slot_is_not_taken_for_the_one_before() {
    let mut g = Graph::new();
    let flag = g.input::<Arc<sync::AtomicBool>>("flag");
    // ORDERING: Relaxed: the end of the node must make the store visible to its future.
    let a = g.task("a", &flag, |flag: &Arc<sync::AtomicBool>| flag.store(true, Ordering::Relaxed));
    let b = g.task("b", &a, |_: &()| ());
    g.output("b", &b);
    let plan = g.compile_with(&Single).expect("the graph is right");
    check_within(2, move || {
        let exec = workers(1);
        let flag = || Arc::new(sync::AtomicBool::new(false));
        block_on(exec.run(&plan, inputs! { "flag" => flag() })).expect("nothing goes wrong");
        let is_run = flag();
        let run = exec.run(&plan, inputs! { "flag" => is_run.clone() });
        block_on(run.node("a")).expect("nothing goes wrong");
        assert!(is_run.load(Ordering::Relaxed), "a node future ended before its node");
    });
}

// Seen to fail with any of: a countdown that ends at 2 (a value that is not there); a program that parks
// without its place (a deadlock).
#[test]
fn two_workers_share_a_diamond() {
    let mut g = Graph::new();
    let a = g.task("a", (), || 1);
    let b = g.task("b", &a, |a: &i32| a + 1);
    let c = g.task("c", &a, |a: &i32| a + 2);
    let d = g.task("d", (&b, &c), |b: &i32, c: &i32| b * c);
    g.output("d", &d);
    let plan = g.compile_with(&PerOperator).expect("the graph is right");
    check_within(1, move || {
        let exec = workers(2);
        let mut outputs = block_on(exec.run(&plan, Inputs::new())).expect("nothing goes wrong");
        assert_eq!(*outputs.take::<i32>("d").expect("it is an output"), 6);
    });
}

// Seen to fail with any of: a last run that wakes no worker when it leaves (a deadlock); no fence in
// `Limbo::hold` (a value stays).
#[test]
fn two_workers_end_with_the_last_run() {
    check_values(2, one_task, |plan, _| {
        let exec = workers(2);
        let mut run = exec.run(plan, Inputs::new());
        poll_once(&mut run);
        drop(exec);
    });
}
