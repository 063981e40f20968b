//! A lane's waiter meets its signaller: each action of a waiter against each event of its point.
//!
//! ```text
//!              complete: signal(1)   fail: ring, then a point beyond   drop: the signaller goes away
//! poll         woken, or ready       woken, or ready                   pending for ever, and can leave
//! poll again   the second waker is   the same                          the same
//! drop         nothing is left       nothing is left                   nothing is left
//! ```

use std::sync::Arc;
use std::task::Poll;

use super::harness::{Plain, Task, check, join, spawn};
use crate::runtime::{Lane, WaiterKey};

#[derive(Clone, Copy, PartialEq)]
enum Waiter {
    Polls,
    PollsAgain,
    Drops,
}

#[derive(Clone, Copy, PartialEq)]
enum Signaller {
    Completes,
    Fails,
    Drops,
}

/// The signal of a failing run: a point beyond every step.
const BEYOND: u64 = u64::MAX - 1;

/// The checker. The waiter polls with the waker of each of its tasks in turn, so the last one is current.
fn meet(waiter: Waiter, signaller: Signaller) {
    check(move || {
        let (lane, work) = (Arc::new(Lane::new()), Arc::new(Plain::new(0)));
        let device = {
            let (lane, work) = (lane.clone(), work.clone());
            spawn(move || signal(signaller, &lane, &work))
        };

        let tasks = [Task::new(), Task::new()];
        let mut key = WaiterKey::default();
        let mut polled = tasks[0].poll(&lane, 1, &mut key);
        let mut current = &tasks[0];
        if waiter == Waiter::PollsAgain && polled.is_pending() {
            current = &tasks[1];
            polled = current.poll(&lane, 1, &mut key);
        }
        if polled.is_ready() {
            assert_eq!(work.get(), 1, "what came before the point is visible");
        }
        if waiter == Waiter::Drops {
            lane.forget(&mut key);
        }
        join(device);

        if waiter != Waiter::Drops {
            settle(signaller, &lane, &mut key, 1, polled, current);
        }
        lane.forget(&mut key);
        assert!(tasks.iter().all(|task| task.wakers() == 0), "every waker was given up");
        assert!(tasks.iter().all(|task| task.wakes() <= 2), "a ring and a signal wake once each");
    });
}

fn signal(signaller: Signaller, lane: &Lane, work: &Plain) {
    match signaller {
        Signaller::Completes => {
            work.set(1);
            lane.signal(1);
        }
        Signaller::Fails => {
            work.set(1);
            lane.ring();
            lane.signal(BEYOND);
        }
        Signaller::Drops => {}
    }
}

/// Checks the state after all events. A waiter that was told to wait was woken since, through its current
/// waker, and finds the point reached, unless the signaller is gone.
fn settle(signaller: Signaller, lane: &Lane, key: &mut WaiterKey, n: u64, polled: Poll<()>, current: &Task) {
    if signaller == Signaller::Drops {
        assert!(polled.is_pending() && current.wakes() == 0);
        assert_eq!(current.wakers(), 1, "it waits with its current waker, once");
        return;
    }
    if polled.is_pending() {
        assert!(current.wakes() > 0, "a wake was lost");
        assert!(current.poll(lane, n, key).is_ready(), "it was woken for nothing");
    }
    assert_eq!(current.wakers(), 0, "a waiter that is ready has left");
}

// Each of the models with "poll" was seen to fail with any of: no fence in `signal` ("a wake was lost"); no
// fence in `poll`; no second check in `poll`; `has_reached` Relaxed (a race for the word of work); a `poll`
// that is ready and does not leave. Those with "complete" also with `signal` Relaxed; those with "drop" with
// a `forget` that does nothing; those with "another waker" also with a `poll` that keeps the first waker, and
// with one that adds a second entry ("every waker was given up").
#[test]
fn poll_meets_complete() {
    meet(Waiter::Polls, Signaller::Completes);
}
#[test]
fn poll_meets_fail() {
    meet(Waiter::Polls, Signaller::Fails);
}
#[test]
fn poll_meets_drop() {
    meet(Waiter::Polls, Signaller::Drops);
}
#[test]
fn poll_with_another_waker_meets_complete() {
    meet(Waiter::PollsAgain, Signaller::Completes);
}
#[test]
fn poll_with_another_waker_meets_fail() {
    meet(Waiter::PollsAgain, Signaller::Fails);
}
#[test]
fn poll_with_another_waker_meets_drop() {
    meet(Waiter::PollsAgain, Signaller::Drops);
}
#[test]
fn drop_meets_complete() {
    meet(Waiter::Drops, Signaller::Completes);
}
#[test]
fn drop_meets_fail() {
    meet(Waiter::Drops, Signaller::Fails);
}
#[test]
fn drop_meets_drop() {
    meet(Waiter::Drops, Signaller::Drops);
}

// Seen to fail with a `signal` that wakes only waiters before its point, and without the second check in
// `poll`.
#[test]
fn one_signal_wakes_the_waiters_of_all_earlier_points() {
    check(|| {
        let lane = Arc::new(Lane::new());
        let (first, second, third) = (Task::new(), Task::new(), Task::new());
        let (mut first_key, mut second_key, mut third_key) = Default::default();
        assert!(third.poll(&lane, 3, &mut third_key).is_pending());
        let device = {
            let lane = lane.clone();
            spawn(move || lane.signal(2))
        };
        let polled = [first.poll(&lane, 1, &mut first_key), second.poll(&lane, 2, &mut second_key)];
        join(device);

        for (task, key, n, polled) in [(first, first_key, 1, polled[0]), (second, second_key, 2, polled[1])] {
            settle(Signaller::Completes, &lane, &mut { key }, n, polled, &task);
        }
        assert_eq!((third.wakes(), third.wakers()), (0, 1), "its point has not passed");
        lane.forget(&mut third_key);
        assert_eq!(third.wakers(), 0);
    });
}

// Seen to fail with a store instead of `fetch_max`.
#[test]
fn a_late_signal_does_not_take_the_lane_back() {
    check(|| {
        let lane = Arc::new(Lane::new());
        let late = {
            let lane = lane.clone();
            spawn(move || lane.signal(1))
        };
        let (task, mut key) = (Task::new(), WaiterKey::default());
        lane.signal(2);
        assert!(task.poll(&lane, 2, &mut key).is_ready());
        join(late);
        assert!(lane.has_reached(2));
    });
}

// Seen to fail with any of: `wake` reporting no waiters while the second one waits; `wake` reporting so after
// it released the lock; either fence taken away.
#[test]
fn a_waiter_that_comes_between_two_signals_is_found() {
    check(|| {
        let lane = Arc::new(Lane::new());
        let device = {
            let lane = lane.clone();
            spawn(move || {
                lane.signal(1);
                lane.signal(2);
            })
        };
        let (first, second) = (Task::new(), Task::new());
        let (mut first_key, mut second_key) = Default::default();
        let first_polled = first.poll(&lane, 1, &mut first_key);
        let second_polled = second.poll(&lane, 2, &mut second_key);
        join(device);
        settle(Signaller::Completes, &lane, &mut first_key, 1, first_polled, &first);
        settle(Signaller::Completes, &lane, &mut second_key, 2, second_polled, &second);
    });
}
