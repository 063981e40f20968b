//! Runs over many items: an iteration that becomes free × the phases that begin there × the wake of the
//! consumer; a close × the last items × a drop; an item that fails × the next one in its iteration.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use futures::{Stream, StreamExt, stream};

use super::harness::{Task, block_on, check_within, join, spawn};
use crate::pipe::Phases;
use crate::{Executor, Pipeline, Ranked};

/// Two phases, each with the items in order: the first counts, the second adds up.
fn counted(slots: u32) -> Pipeline<u32, u32> {
    let pipeline = Pipeline::new("counted", &Ranked::default(), |g, item| {
        let (mut count, mut sum) = (g.state("count", || 0), g.state("sum", || 0));
        let counted = g.task("counted", (&mut count, &item), |count: &mut u32, item: &u32| {
            *count += 1;
            10 * *count + item
        });
        g.task("summed", (&mut sum, &counted), |sum: &mut u32, counted: &u32| {
            *sum += counted;
            *sum
        })
    });
    let phased = pipeline.and_then(|pipeline| pipeline.phases(Phases::Each));
    phased.and_then(|pipeline| pipeline.in_flight(slots)).expect("the pipeline is right")
}

fn two_workers() -> Executor {
    Executor::builder().workers(2).build().expect("threads start")
}

/// Awaits all results.
fn collect<T>(results: impl Stream<Item = T>) -> Vec<T> {
    block_on(results.collect())
}

#[test]
fn an_iteration_is_used_again_when_its_item_is_over() {
    let pipeline = counted(1);
    check_within(1, move || {
        let exec = two_workers();
        let results = collect(exec.pipe(&pipeline, stream::iter(1..=2)));
        let results: Vec<u32> = results.into_iter().map(|result| result.expect("nothing fails")).collect();
        assert_eq!(results, [11, 33]);
    });
}

#[test]
fn two_items_go_through_two_phases_side_by_side() {
    let pipeline = counted(2);
    check_within(1, move || {
        let exec = two_workers();
        let results = collect(exec.pipe(&pipeline, stream::iter(1..=3)));
        let results: Vec<u32> = results.into_iter().map(|result| result.expect("nothing fails")).collect();
        assert_eq!(results, [11, 33, 66]);
    });
}

#[test]
fn a_dropped_consumer_leaves_the_last_items_to_their_workers() {
    let pipeline = counted(2);
    check_within(1, move || {
        let exec = two_workers();
        let task = Task::new();
        {
            let mut results = pin!(exec.pipe(&pipeline, stream::iter(1..=2)));
            let _ = task.poll_future(pin!(results.next()));
        }
        block_on(exec.idle()).expect("this is no node");
        assert_eq!(exec.in_flight(), 0);
    });
}

#[test]
fn a_cancel_from_elsewhere_ends_the_stream_once() {
    let pipeline = counted(2);
    check_within(1, move || {
        let exec = two_workers();
        let results = exec.pipe(&pipeline, stream::iter(1..=2));
        let canceller = results.canceller();
        let cancelling = spawn(move || canceller.cancel());
        let results = collect(results);
        join(cancelling);
        let is_cancelled = |result: &crate::Result<u32>| result.as_ref().is_err_and(|error| error.is_cancelled());
        let given = results.iter().take_while(|result| result.is_ok()).count();
        assert!(results.len() <= given + 1 && results.iter().skip(given).all(is_cancelled), "{results:?}");
        block_on(exec.idle()).expect("this is no node");
    });
}

#[test]
fn an_item_that_fails_leaves_nothing_to_the_next_one() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let pipeline = Pipeline::new("failing", &Ranked::default(), move |g, item| {
        let checked = g.try_task("checked", &item, |item: &u32| if *item == 1 { Err("one".into()) } else { Ok(*item) });
        g.task("counted", &checked, move |item: &u32| {
            counted.fetch_add(1, Ordering::Relaxed);
            *item
        })
    });
    let pipeline = pipeline.and_then(|pipeline| pipeline.phases(Phases::Each)?.in_flight(1)).expect("the pipeline is right");
    check_within(1, move || {
        let exec = two_workers();
        calls.store(0, Ordering::Relaxed);
        let results = collect(exec.pipe(&pipeline, stream::iter(1..=2)));
        assert!(results[0].is_err() && matches!(results[1], Ok(2)), "{results:?}");
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_shutdown_ends_a_stream_that_nobody_polls() {
    let pipeline = counted(2);
    check_within(1, move || {
        let exec = two_workers();
        let task = Task::new();
        let mut results = pin!(exec.pipe(&pipeline, stream::iter(1..=2)));
        let polled = task.poll_future(pin!(results.next()));
        block_on(exec.shutdown()).expect("this is no node");
        let rest = collect(results);
        let is_over = |result: &crate::Result<u32>| result.as_ref().is_err_and(|error| error.is_shut_down());
        assert!(matches!(polled, Poll::Pending | Poll::Ready(Some(Ok(_)))));
        assert!(rest.last().is_none_or(is_over), "{rest:?}");
    });
}
