//! Runs over many items: an iteration that becomes free × the phases that begin there × the wake of the
//! consumer; a close × the last items × a drop; an item that fails × the next one in its iteration; a cancel
//! × the creation of the run's memory; an item that begins × a cancel, where items wait for later items.

use std::pin::pin;
use std::task::Poll;

use futures::{Stream, StreamExt, stream};

use super::harness::{Task, block_on, check_within, join, spawn};
use crate::pipe::{Beat, Phases};
use crate::{Executor, Pipeline, Ranked, Result};

/// One item in flight. Each phase adds one.
pub(super) fn adding(phases: u32) -> Pipeline<u32, u32> {
    let pipeline = Pipeline::new("adding", &Ranked::default(), |g, item| {
        let mut value = item;
        for phase in 0..phases {
            value = g.task(format!("add {phase}"), &value, |x: &u32| x + 1);
        }
        value
    });
    let phased = pipeline.and_then(|pipeline| pipeline.phases(Phases::Each));
    phased.and_then(|pipeline| pipeline.in_flight(1)).expect("the pipeline is right")
}

fn workers(workers: usize) -> Executor {
    Executor::builder().workers(workers).build().expect("threads start")
}

/// Awaits all results.
fn collect<T>(results: impl Stream<Item = Result<T>>) -> Vec<Result<T>> {
    block_on(results.collect())
}

fn values(results: Vec<Result<u32>>) -> Vec<u32> {
    results.into_iter().map(|result| result.expect("nothing fails")).collect()
}

// Seen to fail without the fence in `Item::set_done` (a deadlock; not with one interruption), and with an
// item that ends before the edges of its phase are followed (a word that was freed).
#[test]
fn an_iteration_is_used_again_when_its_item_is_over() {
    let pipeline = adding(1).serial();
    check_within(2, move || {
        let results = collect(workers(1).pipe(&pipeline, stream::iter(1..=2)));
        assert_eq!(values(results), [2, 3]);
    });
}

// Seen to fail without the signal in `Item::set_done` (a deadlock), and with an item that ends before the
// edges of its phase are followed (a word that was freed).
#[test]
fn a_phase_may_still_leave_when_the_next_one_ends_its_item() {
    let pipeline = adding(2).serial();
    check_within(2, move || {
        let results = collect(workers(2).pipe(&pipeline, stream::iter(1..=1)));
        assert_eq!(values(results), [3]);
    });
}

// Seen to fail (a deadlock) without the closes in the drop of `Items` and in `RunInner::cancel`.
#[test]
fn a_dropped_consumer_leaves_the_last_item_to_its_worker() {
    let pipeline = adding(1);
    check_within(2, move || {
        let exec = workers(1);
        let task = Task::new();
        {
            let mut results = pin!(exec.pipe(&pipeline, stream::iter(1..=1)));
            let _ = task.poll_future(pin!(results.next()));
        }
        block_on(exec.idle()).expect("this is no node");
        assert_eq!(exec.in_flight(), 0);
    });
}

// Seen to fail (more steps than a model may have) with a poll that loops until a cancel by another thread is
// done.
#[test]
fn a_cancel_from_elsewhere_ends_the_stream_once() {
    let pipeline = adding(1);
    check_within(2, move || {
        let exec = workers(1);
        let results = exec.pipe(&pipeline, stream::iter(1..=1));
        let canceller = results.canceller();
        let cancelling = spawn(move || canceller.cancel());
        let results = collect(results);
        join(cancelling);
        match &results[..] {
            [Ok(2)] => {}
            [Ok(2), Err(error)] | [Err(error)] => assert!(error.is_cancelled()),
            others => unreachable!("{others:?}"),
        }
        block_on(exec.idle()).expect("this is no node");
    });
}

// Seen to fail (the second item fails, too) without `forget_failure`.
#[test]
fn an_item_that_fails_leaves_nothing_to_the_next_one() {
    let pipeline = Pipeline::new("failing", &Ranked::default(), move |g, item| {
        let checked = g.try_task("checked", &item, |item: &u32| if *item == 1 { Err("one".into()) } else { Ok(*item) });
        g.task("passed", &checked, |item: &u32| *item)
    });
    let pipeline = pipeline.and_then(|pipeline| pipeline.in_flight(1)).expect("the pipeline is right");
    check_within(2, move || {
        let results = collect(workers(1).pipe(&pipeline, stream::iter(1..=2)));
        assert!(results[0].is_err() && matches!(results[1], Ok(2)), "{results:?}");
    });
}

// Seen to fail (a deadlock) without the close in `RunInner::cancel`.
#[test]
fn a_shutdown_ends_a_stream_that_nobody_polls() {
    let pipeline = adding(1);
    check_within(2, move || {
        let exec = workers(1);
        let task = Task::new();
        let mut results = pin!(exec.pipe(&pipeline, stream::iter(1..=1)));
        let polled = task.poll_future(pin!(results.next()));
        block_on(exec.shutdown()).expect("this is no node");
        let rest = collect(results);
        assert!(matches!(polled, Poll::Pending | Poll::Ready(Some(Ok(_)))));
        assert!(rest.last().is_none_or(|last| last.as_ref().map_or_else(crate::Error::is_shut_down, |_| true)), "{rest:?}");
    });
}

/// Polls a stream of one item once, while another thread cancels it. It ends without a further poll.
fn cancel_beside_a_poll(pipeline: &Pipeline<u32, u32>) {
    let exec = workers(1);
    let task = Task::new();
    // The source does not end, so the consumer does not end the items.
    let mut results = pin!(exec.pipe(pipeline, stream::iter(1..=1).chain(stream::pending())));
    let canceller = results.canceller();
    let cancelling = spawn(move || canceller.cancel());
    let polled = task.poll_future(pin!(results.next()));
    join(cancelling);
    block_on(exec.idle()).expect("this is no node");
    let is_right = |result: &Result<u32>| result.as_ref().map_or_else(crate::Error::is_cancelled, |sum| *sum > 1);
    assert!(!matches!(&polled, Poll::Ready(first) if !first.as_ref().is_some_and(is_right)), "{polled:?}");
    assert!(collect(results).iter().all(is_right));
}

// Seen to fail (a deadlock) without the fence in `make_iterations`, and without the fence in
// `drive_cancelled`. Not seen to fail without the close beside the first fence: with the fence, the rest of
// the poll sees the cancel. Also seen to fail when room that was reserved for items that did not come is not
// released.
#[test]
fn a_cancel_beside_the_start_ends_a_stream_that_nobody_polls_again() {
    let pipeline = adding(1);
    check_within(2, move || cancel_beside_a_poll(&pipeline));
}

// Seen to fail (a deadlock) with an `enter` that releases its lock before the item is counted, and without
// the end of items in `RunInner::cancel`.
#[test]
fn an_item_that_begins_beside_a_cancel_does_not_wait_for_those_behind_it() {
    let pipeline = adding(3).in_flight(3).and_then(|pipeline| pipeline.beat(Beat::Lockstep)).expect("the pipeline is right");
    check_within(2, move || cancel_beside_a_poll(&pipeline));
}
