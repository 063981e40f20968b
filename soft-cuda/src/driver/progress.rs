//! The progress of a stream, and the threads that wait for it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lock;

/// The pause between two checks whether a wait still has a purpose. Only this check is late by as much:
/// progress itself wakes a waiting thread at once.
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
        // ORDERING: Acquire pairs with the Release in `complete`: a thread that sees a position passed sees
        // the writes of its operation.
        self.completed.load(Ordering::Acquire) >= position
    }

    /// Records that a position has passed. Only the stream's thread calls it.
    pub(crate) fn complete(&self, position: u64) {
        // ORDERING: Release pairs with the Acquire in `has_passed`.
        self.completed.store(position, Ordering::Release);
        // ORDERING: SeqCst pairs with the fence in `wait_for`: of "store completed, load waiting" and "count
        // the waiter, load completed" at least one side sees the other.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            // The lock is taken and released, so that no thread is between its check and its sleep.
            drop(lock(&self.lock));
            self.moved.notify_all();
        }
    }

    /// Blocks until the position has passed, or the wait has no purpose. Returns true if the position has
    /// passed.
    pub(crate) fn wait_for(&self, position: u64, is_pointless: impl Fn() -> bool) -> bool {
        if self.has_passed(position) {
            return true;
        }
        // ORDERING: Relaxed: the SeqCst fence below orders it, and pairs with the fence in `complete`.
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
