//! A thread that drives requests, and rests while there are none for it.
//!
//! ```text
//!  the thread                                        another thread
//!  1  stores that it rests                           1  leaves work
//!  2  looks for work, and parks if there is none     2  loads that the thread rests, and wakes it
//! ```
//! Either the thread finds the work, or the other one finds that it rests (`loom_tests::ranks`).

use std::time::Duration;

use crate::sync::{AtomicU32, OnceLock, Ordering, Thread, current, park, park_for};

const WORKS: u32 = 0;
const DOZES: u32 = 1;
const SLEEPS: u32 = 2;

pub(crate) struct Sleeper {
    /// What the thread does: [`WORKS`], [`DOZES`] or [`SLEEPS`].
    state: AtomicU32,
    /// The thread, once it runs. Before it rests, it looks for work.
    thread: OnceLock<Thread>,
}

impl Sleeper {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(WORKS), thread: OnceLock::new() }
    }

    /// Makes this thread the one that rests here.
    pub(crate) fn attach(&self) {
        let _ = self.thread.set(current());
    }

    /// Sleeps until it is woken, unless there is work.
    pub(crate) fn sleep(&self, has_work: impl FnOnce() -> bool) {
        self.rest(SLEEPS, has_work, park);
    }

    /// As [`Sleeper::sleep`], for at most so long, and undisturbed by [`Sleeper::wake_from_sleep`].
    pub(crate) fn doze(&self, most: Duration, has_work: impl FnOnce() -> bool) {
        self.rest(DOZES, has_work, || park_for(most));
    }

    fn rest(&self, how: u32, has_work: impl FnOnce() -> bool, park: impl FnOnce()) {
        // ORDERING: SeqCst, with the reads in `wake` and `wake_from_sleep`: either this thread sees the work
        // of that caller, or the caller sees that the thread rests. A swap, because loom orders no stores so.
        self.state.swap(how, Ordering::SeqCst);
        if !has_work() {
            park();
        }
        // ORDERING: Relaxed: a caller that still sees that it rests only wakes it once too often.
        self.state.store(WORKS, Ordering::Relaxed);
    }

    /// Lets the thread look for the work that the caller has left.
    pub(crate) fn wake(&self) {
        // ORDERING: SeqCst, as in `rest`.
        if self.state.swap(WORKS, Ordering::SeqCst) != WORKS {
            self.unpark();
        }
    }

    /// As [`Sleeper::wake`], for work at which the thread need not look before its doze is over.
    pub(crate) fn wake_from_sleep(&self) {
        // ORDERING: SeqCst, as in `rest`.
        if self.state.compare_exchange(SLEEPS, WORKS, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
