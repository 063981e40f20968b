//! A lock that is only tried.

use std::cell::UnsafeCell;

use crate::sync::{AtomicBool, Ordering};

/// A lock that no thread waits for. So its release is a store, where that of a mutex is an exchange.
pub(crate) struct TryLock<T> {
    is_locked: AtomicBool,
    of: UnsafeCell<T>,
}

// SAFETY: one thread at a time uses the value, and the others see what it did.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    pub(crate) fn new(of: T) -> Self {
        Self { is_locked: AtomicBool::new(false), of: UnsafeCell::new(of) }
    }

    /// Gives the value to `work`, unless it is locked. If `work` panics, it stays locked.
    #[inline]
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        // ORDERING: Acquire pairs with the Release below. Relaxed on failure: then it does nothing.
        self.is_locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: this thread has the lock until the store below.
        let result = work(unsafe { &mut *self.of.get() });
        // ORDERING: Release: the next thread sees what this one did.
        self.is_locked.store(false, Ordering::Release);
        Some(result)
    }
}
