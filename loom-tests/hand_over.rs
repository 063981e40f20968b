//! A program hands an async node over while its run is cancelled and polled: somebody ends the node, and only
//! one does.
//!
//! The steps of `exec::conduct` and `exec::asyncs`, on the real state, wake set and lock, without a graph
//! around them. The same on whole runs is in `runs`.

use std::sync::Arc;

use super::harness::{Turns, check, check_within, join, spawn};
use crate::run::state::State;
use crate::runtime::{Lane, WakeSet};
use crate::sync::{Mutex, MutexGuard, Ordering, fence};

struct Run {
    state: State,
    wakes: Arc<WakeSet>,
    driver: Mutex<Node>,
    turns: Turns,
}

/// The run's one async node, which is never ready of its own.
#[derive(Default)]
struct Node {
    is_polled: bool,
    is_done: bool,
    ends: u32,
}

impl Node {
    fn end(&mut self) {
        self.is_done = true;
        self.ends += 1;
    }
}

impl Run {
    fn new() -> Arc<Self> {
        let wakes = WakeSet::new(1, Arc::new(Lane::new()));
        Arc::new(Self { state: State::new(0), wakes, driver: Mutex::default(), turns: Turns::new() })
    }

    /// As `Conductor::hand_over`.
    fn hand_over(&self) {
        self.wakes.wake(0);
        if self.state.is_cancelled() {
            self.drive_cancelled();
        }
    }

    /// As `RunInner::cancel`.
    fn cancel(&self) {
        if self.state.cancel(0) {
            self.drive_cancelled();
        }
    }

    /// As `RunInner::drive`.
    fn drive(&self) {
        let Some(mut node) = self.try_driver() else { return };
        self.wakes.pop_all(|_| match node.is_done {
            true => {}
            false if self.state.is_cancelled() => node.end(),
            false => node.is_polled = true,
        });
        self.leave(node);
        fence(Ordering::SeqCst);
        if self.state.is_cancelled() {
            self.drive_cancelled();
        }
    }

    /// As `RunInner::drive_cancelled`: who finds the lock taken leaves, who held it looks again.
    fn drive_cancelled(&self) {
        fence(Ordering::SeqCst);
        loop {
            let Some(mut node) = self.try_driver() else { return };
            self.wakes.pop_all(|_| {
                if !node.is_done {
                    node.end()
                }
            });
            if node.is_polled && !node.is_done {
                node.end();
            }
            self.leave(node);
            if !self.wakes.has_woken() {
                return;
            }
        }
    }

    fn try_driver(&self) -> Option<MutexGuard<'_, Node>> {
        let driver = self.driver.try_lock().ok();
        if driver.is_none() {
            self.turns.take();
        }
        driver
    }

    fn leave(&self, node: MutexGuard<'_, Node>) {
        self.turns.take();
        drop(node);
    }

    fn settle(&self) {
        let node = crate::sync::lock(&self.driver);
        assert_eq!(node.ends, 1, "a cancelled run ends its nodes once");
    }
}

// Seen to fail with any of: no look at the state after the hand-over; no second look in `drive_cancelled`; no
// fence in `WakeSet::has_woken`; no fence in `Lane::ring`.
#[test]
fn a_node_that_is_handed_over_during_a_cancel_is_ended_once() {
    check(|| {
        let run = Run::new();
        let program = {
            let run = run.clone();
            spawn(move || run.hand_over())
        };
        run.cancel();
        join(program);
        run.settle();
    });
}

// Failed at first: `drive` and `drive_cancelled` had no fences, so that of "let go of the lock, look for a
// cancel" and "cancel, try the lock" neither side saw the other. Seen to fail with any of: one fence less; no
// look at the state after a poll; an abort of the woken only; a poll that ends a node that is done.
#[test]
fn a_node_that_is_polled_during_a_cancel_is_ended_once() {
    check(|| {
        let run = Run::new();
        run.hand_over();
        let poll = {
            let run = run.clone();
            spawn(move || run.drive())
        };
        run.cancel();
        join(poll);
        run.settle();
        // A waker that outlived its future.
        run.wakes.wake(0);
        run.drive();
        run.settle();
    });
}

// Seen to fail with all of the above.
#[test]
fn a_node_that_is_handed_over_and_polled_during_a_cancel_is_ended_once() {
    check_within(3, || {
        let run = Run::new();
        let program = {
            let run = run.clone();
            spawn(move || run.hand_over())
        };
        let poll = {
            let run = run.clone();
            spawn(move || run.drive())
        };
        run.cancel();
        join(program);
        join(poll);
        run.settle();
    });
}
