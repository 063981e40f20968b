//! Wakers that workers leave for the searcher: each is called once, by a thread that sees the work before it.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::harness::{Plain, check, join, spawn};
use crate::device::host::Searcher;
use crate::sync::{AtomicU32, Ordering};

/// A run that a task awaits.
struct Run {
    result: Plain,
    wakes: AtomicU32,
}

impl Run {
    fn new() -> Arc<Self> {
        Arc::new(Self { result: Plain::new(0), wakes: AtomicU32::new(0) })
    }

    /// Ends the run as a worker does: it leaves the waker, and calls the waker itself if there is no
    /// searcher, or if the searcher takes too long.
    fn end(self: Arc<Self>, searcher: &Searcher) {
        self.result.set(1);
        match searcher.leave(Waker::from(self)) {
            Ok(()) => call(searcher.take()),
            Err(waker) => waker.wake(),
        }
    }

    fn check(&self) {
        // ORDERING: Relaxed: all threads have been joined.
        assert_eq!(self.wakes.load(Ordering::Relaxed), 1, "it is woken once");
    }
}

impl Wake for Run {
    fn wake(self: Arc<Self>) {
        assert_eq!(self.result.get(), 1);
        // ORDERING: Relaxed: a count of the model. The joins publish it.
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }
}

fn call(waker: Option<Waker>) {
    waker.into_iter().for_each(Waker::wake);
}

fn look(searcher: &Searcher) {
    if searcher.begin() {
        call(searcher.take());
        call(searcher.end());
    }
}

// Seen to fail with a `leave` and a `take` that store instead of exchanging; with a Relaxed exchange; and
// with an `end` that drops the waker that it finds.
#[test]
fn a_waker_that_was_left_is_called_once() {
    check(|| {
        let (searcher, run) = (Arc::new(Searcher::new()), Run::new());
        let looker = spawn({
            let searcher = searcher.clone();
            move || look(&searcher)
        });
        run.clone().end(&searcher);
        join(looker);
        run.check();
    });
}

// Seen to fail with the same changes as the model of one worker.
#[test]
fn two_workers_leave_wakers_for_one_searcher() {
    check(|| {
        let (searcher, runs) = (Arc::new(Searcher::new()), [Run::new(), Run::new()]);
        assert!(searcher.begin());
        let worker = spawn({
            let (searcher, run) = (searcher.clone(), runs[0].clone());
            move || run.end(&searcher)
        });
        let other = spawn({
            let (searcher, run) = (searcher.clone(), runs[1].clone());
            move || run.end(&searcher)
        });
        call(searcher.take());
        call(searcher.end());
        join(worker);
        join(other);
        runs.iter().for_each(|run| run.check());
    });
}

// Seen to fail with a `begin` that takes the place of another searcher.
#[test]
fn one_worker_is_the_searcher() {
    check(|| {
        let (searcher, run) = (Arc::new(Searcher::new()), Run::new());
        let looking = Arc::new(AtomicU32::new(0));
        let looker = {
            let (searcher, looking) = (searcher.clone(), looking.clone());
            move || {
                if searcher.begin() {
                    // ORDERING: Relaxed: only the atomicity of the count matters.
                    assert_eq!(looking.fetch_add(1, Ordering::Relaxed), 0, "no other one looks");
                    looking.fetch_sub(1, Ordering::Relaxed);
                    call(searcher.end());
                }
            }
        };
        let other = spawn(looker.clone());
        run.clone().end(&searcher);
        looker();
        join(other);
        run.check();
    });
}
