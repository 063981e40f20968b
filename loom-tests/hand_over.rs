//! An async node is polled by a worker, woken, and cancelled: its future ends once, whichever thread ends it.
//!
//! The steps of `run::async_nodes`, on the real state and parking, without a graph. `runs` has the same on
//! whole runs.

use std::sync::Arc;

use super::harness::{JoinHandle, check, check_within, join, spawn};
use crate::run::state::State;
use crate::runtime::Parking;
use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

struct Run {
    state: State,
    is_live: AtomicBool,
    parking: Parking,
    has_begun: AtomicBool,
    /// Whether the event that the future waits for has happened.
    is_ready: AtomicBool,
    ends: AtomicU32,
}

impl Run {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: State::new(0),
            is_live: AtomicBool::new(false),
            parking: Parking::new(),
            has_begun: AtomicBool::new(false),
            is_ready: AtomicBool::new(false),
            ends: AtomicU32::new(0),
        })
    }

    /// As `Interpreter::poll_node`, by the thread that has the program. Polls again if the node was woken
    /// meanwhile.
    fn poll_node(&self) {
        loop {
            self.parking.begin();
            // ORDERING: Relaxed: the thread that has the program is the only user of `has_begun`. The SeqCst
            // fence pairs with the one in `cancel`.
            if !self.has_begun.load(Ordering::Relaxed) {
                self.has_begun.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
            }
            // ORDERING: Relaxed: the wake must make it visible.
            if self.state.is_cancelled() || self.is_ready.load(Ordering::Relaxed) {
                return self.end();
            }
            if self.parking.try_park() {
                return;
            }
        }
    }

    fn start(&self) {
        // ORDERING: Relaxed: the fence in `poll_node` pairs with the one in `cancel`.
        self.is_live.store(true, Ordering::Relaxed);
        self.poll_node();
    }

    /// As `RunInner::cancel` and `abort_parked`.
    fn cancel(&self) {
        if !self.state.cancel(0) {
            return;
        }
        // ORDERING: SeqCst pairs with the fence in `poll_node`: this thread sees `is_live`, or the other sees
        // the cancel.
        fence(Ordering::SeqCst);
        if self.is_live.load(Ordering::Relaxed) && self.parking.wake() {
            self.end();
        }
    }

    /// The source of the future's event. Its wake resumes the program.
    fn wake(&self) {
        // ORDERING: Relaxed: the wake must make it visible.
        self.is_ready.store(true, Ordering::Relaxed);
        if self.parking.wake() {
            self.poll_node();
        }
    }

    fn end(&self) {
        // Two steps, because only one thread has the program.
        // ORDERING: Relaxed: the wake of the program orders the threads that have it.
        self.ends.store(self.ends.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn check(&self) {
        // ORDERING: Relaxed: all threads have been joined.
        assert_eq!(self.ends.load(Ordering::Relaxed), 1, "the future ends once");
    }
}

fn in_thread(run: &Arc<Run>, act: fn(&Run)) -> JoinHandle<()> {
    let run = run.clone();
    spawn(move || act(&run))
}

// Seen to fail with any of: no fence after the first begin; no fence in `cancel`; no check of the state after
// `begin`; a `park` that ignores a wake.
#[test]
fn a_node_that_begins_during_a_cancel_is_ended_once() {
    check(|| {
        let run = Run::new();
        let program = in_thread(&run, Run::start);
        run.cancel();
        join(program);
        run.check();
    });
}

// Seen to fail with any of: a `park` that ignores a wake; a `wake` that is Relaxed (each: never ended).
#[test]
fn a_node_that_is_woken_while_it_parks_is_polled_again() {
    check(|| {
        let run = Run::new();
        let source = in_thread(&run, Run::wake);
        run.start();
        join(source);
        run.check();
    });
}

// Seen to fail with a `begin` that is a Relaxed store, and with a cancel that ends a node that it has not
// claimed.
#[test]
fn a_node_that_is_woken_and_cancelled_is_ended_once() {
    check_within(3, || {
        let run = Run::new();
        let (program, source) = (in_thread(&run, Run::start), in_thread(&run, Run::wake));
        run.cancel();
        join(program);
        join(source);
        run.check();
    });
}
