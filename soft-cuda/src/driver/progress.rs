//! How far a stream has come, and the threads that block until it has come further.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lock;

/// How often someone who waits looks whether there is still something to wait for. Only that is ever late by
/// this much: progress itself wakes at once.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Position `n` has passed when `completed >= n`.
#[derive(Default)]
pub(crate) struct Progress {
    completed: AtomicU64,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    moved: Condvar,
}

impl Progress {
    pub(crate) fn has_passed(&self, position: u64) -> bool {
        // ORDERING: Acquire pairs with the Release in `complete`: who sees a position passed sees what its
        // operation wrote.
        self.completed.load(Ordering::Acquire) >= position
    }

    /// Says that a position has passed. Only the stream's thread calls it.
    pub(crate) fn complete(&self, position: u64) {
        // ORDERING: Release: see `has_passed`.
        self.completed.store(position, Ordering::Release);
        // ORDERING: pairs with the fence in `wait_for`: of "store completed, look for waiters" and "count
        // oneself, look at completed" at least one sees the other.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            // Taken and given back, so that nobody is between their look and their sleep.
            drop(lock(&self.lock));
            self.moved.notify_all();
        }
    }

    /// Blocks until the position has passed, or until there is nothing to wait for. Returns whether it has
    /// passed.
    pub(crate) fn wait_for(&self, position: u64, is_pointless: impl Fn() -> bool) -> bool {
        if self.has_passed(position) {
            return true;
        }
        // ORDERING: Relaxed: the fence orders it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut guard = lock(&self.lock);
        while !self.has_passed(position) && !is_pointless() {
            guard = self.moved.wait_timeout(guard, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(guard);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.has_passed(position)
    }
}
