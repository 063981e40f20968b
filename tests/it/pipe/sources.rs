//! Sources: when they are polled, and sources that never yield, never end, panic, or wake spuriously.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use anabranch::pipe::Beat;
use futures::{Stream, StreamExt, future, stream};

use super::{Tallied, chained, each_run, poll_next, sums};
use crate::support::{Alarm, block_on, executors, panic_quietly, until};

/// Counts the polls and the items of a source.
#[derive(Default)]
struct Seen {
    polls: AtomicUsize,
    given: AtomicUsize,
}

/// Watches a source.
fn seen<S: Stream + Unpin>(seen: &Arc<Seen>, mut source: S) -> impl Stream<Item = S::Item> + Unpin + use<S> {
    let seen = seen.clone();
    stream::poll_fn(move |cx| {
        seen.polls.fetch_add(1, SeqCst);
        let polled = source.poll_next_unpin(cx);
        seen.given.fetch_add(usize::from(matches!(polled, Poll::Ready(Some(_)))), SeqCst);
        polled
    })
}

#[test]
fn a_source_that_never_yields_is_polled_only_when_the_results_are() {
    // Seen to fail with a poll that wakes its own task while no item is in flight.
    for (exec, pipeline) in each_run(3) {
        let counts = Arc::new(Seen::default());
        let mut results = exec.pipe(&pipeline, seen(&counts, stream::pending::<u64>()));
        let (alarm, waker) = Alarm::new();
        for polls in 1..=5 {
            assert!(Pin::new(&mut results).poll_next(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!((counts.polls.load(SeqCst), alarm.rings()), (polls, 0), "{exec:?}");
        }
        assert_eq!(exec.in_flight(), 1);
        drop(results);
        until(|| exec.in_flight() == 0);
    }
}

#[test]
fn a_source_that_yields_forever_is_left_when_the_results_are() {
    let tally = Tallied::default();
    for exec in executors() {
        let source = stream::iter(0..).map(|item| tally.word(item, item));
        let results = exec.pipe(&sums(&tally, 1), source).take(50).map(|sum| sum.unwrap().get());
        let expected = (0..50).map(|last| last * (last + 1) / 2).collect::<Vec<u64>>();
        assert_eq!(block_on(results.collect::<Vec<_>>()), expected);
        until(|| tally.alive() == 0 && exec.in_flight() == 0);
    }
}

#[test]
fn a_source_that_panics_has_ended_with_an_error_in_the_place_of_its_next_item() {
    // Seen to hang with a source that is polled again.
    for (exec, pipeline) in each_run(3) {
        for good in [0, 1, 2, 5, 9] {
            let source = stream::iter(0..).map(move |item| if item == good { panic_quietly("no more") } else { item });
            let results = block_on(exec.pipe(&pipeline, source).collect::<Vec<_>>());
            assert_eq!(results.len() as u64, good + 1);
            assert!(results.iter().flatten().copied().eq((0..good).map(|x| x + 3)));
            let error = results.last().unwrap().as_ref().unwrap_err();
            let message = format!("item #{good}: the source of the items panicked: no more");
            assert_eq!((error.to_string(), error.is_panic(), error.item()), (message, true, Some(good)));
        }
    }
}

#[test]
fn an_error_of_a_source_counts_as_an_item() {
    // Seen to fail with the number of the iteration, and with one that skips the items of its poll.
    for (exec, pipeline) in each_run(3) {
        let source = stream::iter(0..30).map(|item| if item % 4 == 3 { Err("none") } else { Ok(item) });
        let results = block_on(exec.try_pipe(&pipeline, source).collect::<Vec<_>>());
        let found: Vec<Option<u64>> =
            results.into_iter().map(|result| result.map_or_else(|error| error.item(), |_| None)).collect();
        assert!(found.into_iter().eq((0..30).map(|item| (item % 4 == 3).then_some(item))), "{exec:?}");
    }
}

#[test]
fn a_source_may_wake_for_nothing() {
    for (exec, pipeline) in each_run(2) {
        let mut turn = 0;
        let source = stream::poll_fn(move |cx| {
            turn += 1;
            cx.waker().wake_by_ref();
            let waker = cx.waker().clone();
            waker.wake_by_ref();
            match turn {
                turn if turn % 3 != 0 => Poll::Pending,
                turn if turn > 60 => Poll::Ready(None),
                turn => Poll::Ready(Some(turn)),
            }
        });
        let results = block_on(exec.pipe(&pipeline, source).map(Result::unwrap).collect::<Vec<_>>());
        assert!(results.into_iter().eq((1..=20).map(|item| 3 * item + 2)), "{exec:?}");
    }
}

#[test]
fn a_consumer_that_stops_has_at_most_the_items_in_flight_taken() {
    // Seen to fail with one slot more.
    for (exec, chained) in each_run(3) {
        for (slots, beat) in [(1, Beat::Elastic), (3, Beat::Elastic), (5, Beat::Lockstep)] {
            let (counts, pipeline) = (Arc::new(Seen::default()), chained.clone().in_flight(slots).unwrap().beat(beat).unwrap());
            let mut results = exec.pipe(&pipeline, seen(&counts, stream::iter(0..)));
            for taken in 1..4 {
                block_on(results.next()).unwrap().unwrap();
                assert!(counts.given.load(SeqCst) <= slots as usize + taken, "{exec:?}: {slots} slots");
            }
            let polls = counts.polls.load(SeqCst);
            block_on(smol::unblock(|| std::thread::yield_now()));
            assert_eq!(counts.polls.load(SeqCst), polls, "{exec:?}: nobody polls the source but the consumer");
        }
    }
}

/// A plan of one task.
fn nothing() -> anabranch::Plan {
    let mut g = anabranch::Graph::new();
    g.task("nothing", (), || ());
    crate::support::plan(&g)
}

#[test]
fn an_item_that_is_slow_wakes_the_consumer_once() {
    // Seen to fail with an end of each item that wakes the consumer.
    for exec in executors().into_iter().filter(|exec| exec.workers() > 0) {
        let (counts, (open, gate)) = (Arc::new(Seen::default()), std::sync::mpsc::channel::<()>());
        let (gate, ended) = (std::sync::Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
        let ends = ended.clone();
        let pipeline = super::each(|g, item| {
            g.task("waits", &item, move |x: &u64| {
                if *x == 0 {
                    gate.lock().unwrap().recv().unwrap();
                }
                ends.fetch_add(1, SeqCst);
                *x
            })
        });
        let mut results = exec.pipe(&pipeline, seen(&counts, stream::iter(0..)));
        let (alarm, waker) = Alarm::new();
        assert!(Pin::new(&mut results).poll_next(&mut Context::from_waker(&waker)).is_pending());
        let polls = counts.polls.load(SeqCst);
        // Another worker ends the later items. A run follows the last one, so its end is complete, too.
        until(|| exec.workers() == 1 || ended.load(SeqCst) == 3);
        until(|| exec.workers() == 1 || block_on(exec.run(&nothing(), anabranch::Inputs::new())).is_ok());
        assert_eq!((polls, counts.given.load(SeqCst), alarm.rings()), (4, 4, 0), "as many as there are slots");
        open.send(()).unwrap();
        until(|| alarm.rings() == 1);
        assert_eq!(counts.polls.load(SeqCst), polls);
        assert_eq!(block_on(results.by_ref().take(9).map(Result::unwrap).collect::<Vec<_>>()), (0..9).collect::<Vec<_>>());
    }
}

#[test]
fn a_source_that_becomes_ready_wakes_the_consumer() {
    for (exec, pipeline) in each_run(3) {
        let (send, source) = futures::channel::mpsc::unbounded();
        let results = exec.pipe(&pipeline, source);
        let sender = std::thread::spawn(move || (0..20).for_each(|item| send.unbounded_send(item).unwrap()));
        assert_eq!(block_on(results.map(Result::unwrap).collect::<Vec<_>>()), (3..23).collect::<Vec<_>>());
        sender.join().unwrap();
    }
}

#[test]
fn an_error_of_the_source_is_an_error_in_its_place() {
    for (exec, pipeline) in each_run(2) {
        let source = stream::iter([Ok(1), Err("broken"), Ok(2), Ok(3), Err("broken"), Err("broken")]);
        let results = block_on(exec.try_pipe(&pipeline, source).collect::<Vec<_>>());
        let found: Vec<Option<u64>> = results.iter().map(|result| result.as_ref().ok().copied()).collect();
        assert_eq!(found, [Some(3), None, Some(4), Some(5), None, None], "{exec:?}");
        // Seen to fail with a message that does not say what to do.
        let text = "item #1: the source gave an error instead of this item (skip it, and later items follow): broken";
        assert_eq!(format!("{:#}", results[1].as_ref().unwrap_err()), text);
    }
}

#[test]
fn nothing_is_polled_before_the_results_are() {
    let polls = Arc::new(Seen::default());
    for exec in executors() {
        let mut results = exec.pipe(&chained(1), seen(&polls, stream::iter(0..)));
        assert_eq!((polls.polls.load(SeqCst), exec.in_flight()), (0, 0));
        results.cancel();
        assert!(matches!(poll_next(&mut results), Poll::Ready(Some(Err(error))) if error.is_cancelled()));
        assert_eq!(polls.polls.load(SeqCst), 0);
        drop(future::ready(results));
    }
}
