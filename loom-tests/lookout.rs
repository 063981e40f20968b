//! Wakers that workers leave for the lookout: each is called once, by a thread that sees what came before.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::harness::{Plain, check, join, spawn};
use crate::device::host::Lookout;
use crate::sync::{AtomicU32, Ordering};

/// A run that someone awaits.
struct Run {
    result: Plain,
    wakes: AtomicU32,
}

impl Run {
    fn new() -> Arc<Self> {
        Arc::new(Self { result: Plain::new(0), wakes: AtomicU32::new(0) })
    }

    /// A worker ends it, and leaves its waker; and calls it itself if that does not work, or takes too long.
    fn end(self: Arc<Self>, lookout: &Lookout) {
        self.result.set(1);
        match lookout.leave(Waker::from(self)) {
            Ok(()) => call(lookout.take()),
            Err(waker) => waker.wake(),
        }
    }

    fn check(&self) {
        assert_eq!(self.wakes.load(Ordering::Relaxed), 1, "it is woken once");
    }
}

impl Wake for Run {
    fn wake(self: Arc<Self>) {
        assert_eq!(self.result.get(), 1);
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }
}

fn call(waker: Option<Waker>) {
    waker.into_iter().for_each(Waker::wake);
}

fn look(lookout: &Lookout) {
    if lookout.begin() {
        call(lookout.take());
        call(lookout.end());
    }
}

// Seen to fail with `leave` and `take` that exchange nothing but store; with a Relaxed exchange; and with an
// `end` that drops what it finds.
#[test]
fn a_waker_that_was_left_is_called_once() {
    check(|| {
        let (lookout, run) = (Arc::new(Lookout::new()), Run::new());
        let looker = spawn({
            let lookout = lookout.clone();
            move || look(&lookout)
        });
        run.clone().end(&lookout);
        join(looker);
        run.check();
    });
}

#[test]
fn two_workers_leave_wakers_for_one_lookout() {
    check(|| {
        let (lookout, runs) = (Arc::new(Lookout::new()), [Run::new(), Run::new()]);
        assert!(lookout.begin());
        let worker = spawn({
            let (lookout, run) = (lookout.clone(), runs[0].clone());
            move || run.end(&lookout)
        });
        let other = spawn({
            let (lookout, run) = (lookout.clone(), runs[1].clone());
            move || run.end(&lookout)
        });
        call(lookout.take());
        call(lookout.end());
        join(worker);
        join(other);
        runs.iter().for_each(|run| run.check());
    });
}

// Seen to fail with a `begin` that takes the place of another lookout.
#[test]
fn one_worker_is_the_lookout() {
    check(|| {
        let (lookout, run) = (Arc::new(Lookout::new()), Run::new());
        let looking = Arc::new(AtomicU32::new(0));
        let looker = {
            let (lookout, looking) = (lookout.clone(), looking.clone());
            move || {
                if lookout.begin() {
                    assert_eq!(looking.fetch_add(1, Ordering::Relaxed), 0, "no other one looks");
                    looking.fetch_sub(1, Ordering::Relaxed);
                    call(lookout.end());
                }
            }
        };
        let other = spawn(looker.clone());
        run.clone().end(&lookout);
        looker();
        join(other);
        run.check();
    });
}
