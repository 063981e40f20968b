//! A lock without waiting.

use std::cell::UnsafeCell;

use crate::sync::{AtomicBool, Ordering};

/// A lock that no thread waits for. So its release is a store, whereas that of a mutex is an exchange.
pub(crate) struct TryLock<T> {
    is_locked: AtomicBool,
    of: UnsafeCell<T>,
}

// SAFETY: only the thread that has set `is_locked` uses the value, and its Release publishes the changes to
// the next.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    pub(crate) fn new(of: T) -> Self {
        Self { is_locked: AtomicBool::new(false), of: UnsafeCell::new(of) }
    }

    /// Calls `work` with the value, unless the value is locked. If `work` panics, it stays locked.
    #[inline]
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        // ORDERING: Acquire pairs with the Release below. Relaxed on failure: then the value is not used.
        self.is_locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: this thread has the lock until the store below.
        let result = work(unsafe { &mut *self.of.get() });
        // ORDERING: Release pairs with the Acquire above: the next thread sees the changes of this one.
        self.is_locked.store(false, Ordering::Release);
        Some(result)
    }
}
