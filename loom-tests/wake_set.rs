//! The wake set of an inline run: no wake is lost between its waker and the poll that it causes, and no
//! future is polled twice for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::harness::{Task, check, join, spawn};
use crate::runtime::{Lane, Resumes, WaiterKey, WakeSet};
use crate::sync;

/// A set whose futures have parked once. The program of a future has its index.
fn set_of(futures: u32) -> (Arc<Lane>, Arc<WakeSet>) {
    let lane = Arc::new(Lane::new());
    let set = WakeSet::new(0..futures, Resumes::Poll(lane.clone()));
    (0..futures).for_each(|index| {
        set.parking(index).begin();
        assert!(set.parking(index).try_park());
    });
    (lane, set)
}

/// Takes the woken futures, and polls each, which parks it again.
fn poll_all(set: &WakeSet, mut poll: impl FnMut(u32)) {
    let mut woken = Vec::new();
    set.take(|index| woken.push(index));
    for index in woken {
        set.parking(index).begin();
        poll(index);
        if !set.parking(index).try_park() {
            set.resume(index);
        }
    }
}

/// A future's side of a wake. `done` counts events before the wakes, and the poll reads it.
struct Woken {
    done: sync::AtomicU32,
}

impl Woken {
    fn new() -> Arc<Self> {
        Arc::new(Self { done: sync::AtomicU32::new(0) })
    }

    fn seen(&self) -> u32 {
        // ORDERING: Relaxed: the wake must make it visible.
        self.done.load(Ordering::Relaxed)
    }
}

// Seen to fail with any of: a `begin` that stores; a `park` whose swap is Relaxed; a `wake` that is not
// AcqRel (each: the last poll saw 1 of 2).
#[test]
fn a_poll_sees_what_was_done_before_the_wake_that_found_its_future_woken() {
    check(|| {
        let (_lane, set) = set_of(1);
        let future = Woken::new();
        let source = {
            let (waker, future) = (set.waker(0), future.clone());
            spawn(move || {
                for done in 1..=2 {
                    // ORDERING: Relaxed: the wake must make it visible.
                    future.done.store(done, Ordering::Relaxed);
                    waker.wake_by_ref();
                }
            })
        };
        let (mut polls, mut seen) = (0, 0);
        let mut poll = |_| (polls, seen) = (polls + 1, future.seen());
        poll_all(&set, &mut poll);
        poll_all(&set, &mut poll);
        join(source);
        poll_all(&set, &mut poll);
        assert_eq!(seen, 2, "the poll that the last wake causes sees it");
        assert!((1..=2).contains(&polls), "at most one poll for a wake");
        assert!(!set.has_woken());
    });
}

// Seen to fail with the same changes.
#[test]
fn two_sources_that_wake_one_future_cause_a_poll_that_sees_both() {
    check(|| {
        let (_lane, set) = set_of(1);
        let futures = [Woken::new(), Woken::new()];
        let sources = futures.clone().map(|future| {
            let waker = set.waker(0);
            spawn(move || {
                // ORDERING: Relaxed: the wake must make it visible.
                future.done.store(1, Ordering::Relaxed);
                waker.wake();
            })
        });
        let (mut polls, mut seen) = (0, 0);
        let mut poll = |_| (polls, seen) = (polls + 1, futures[0].seen() + futures[1].seen());
        poll_all(&set, &mut poll);
        sources.into_iter().for_each(join);
        poll_all(&set, &mut poll);
        assert_eq!(seen, 2);
        assert!((1..=2).contains(&polls));
    });
}

// Seen to fail with any of: the push Relaxed; the take Relaxed (each: a future is polled repeatedly, or
// never); a push without an exchange.
#[test]
fn futures_that_are_woken_at_once_are_each_polled_once() {
    check(|| {
        let (_lane, set) = set_of(2);
        let sources = [0, 1].map(|index| {
            let waker = set.waker(index);
            spawn(move || waker.wake())
        });
        let polls = [AtomicU32::new(0), AtomicU32::new(0)];
        // ORDERING: Relaxed: a count of the model.
        let poll = |index: u32| _ = polls[index as usize].fetch_add(1, Ordering::Relaxed);
        poll_all(&set, poll);
        sources.into_iter().for_each(join);
        poll_all(&set, poll);
        assert_eq!(polls.map(AtomicU32::into_inner), [1, 1]);
    });
}

// Seen to fail with any of: no signal after a push; no fence in `Lane::ring`.
#[test]
fn a_task_that_was_told_to_wait_is_woken_by_its_future() {
    check(|| {
        let (lane, set) = set_of(1);
        let source = {
            let waker = set.waker(0);
            spawn(move || waker.wake())
        };
        // The order of a run's poll: poll the woken futures, register, check whether more were woken since.
        let (task, mut key) = (Task::new(), WaiterKey::default());
        let mut polls = 0;
        poll_all(&set, |_| polls += 1);
        assert!(task.poll(&lane, 1, &mut key).is_pending());
        let is_more = set.has_woken();
        join(source);
        assert!(polls == 1 || is_more || task.wakes() > 0, "a wake was lost");
        poll_all(&set, |_| polls += 1);
        assert_eq!(polls, 1);
        lane.forget(&mut key);
    });
}

// Seen to fail with a clone that takes two counts. Valgrind, which also runs this, finds a count that is too
// low.
#[test]
fn a_waker_may_outlive_whoever_else_knew_the_set() {
    check(|| {
        let (lane, set) = set_of(1);
        let weak = Arc::downgrade(&set);
        let waker = set.waker(0);
        let late = {
            let waker = waker.clone();
            spawn(move || {
                waker.wake_by_ref();
                drop(waker.clone());
                waker.wake();
            })
        };
        set.take(|_| {});
        drop(set);
        drop(waker);
        drop(lane);
        join(late);
        assert_eq!(weak.strong_count(), 0, "the last waker frees the set");
    });
}
