//! A box that is set once. To set std's `OnceLock` takes some exchanges, because several threads may try.
//! Here one thread does, and stores a pointer.

use std::ptr;

use crate::sync::{AtomicPtr, Ordering};

pub(super) struct OnceBox<T>(AtomicPtr<T>);

// SAFETY: it owns a `T`, which other threads get a shared reference to.
unsafe impl<T: Send> Send for OnceBox<T> {}
// SAFETY: other threads get a shared reference to the `T`.
unsafe impl<T: Send + Sync> Sync for OnceBox<T> {}

impl<T> OnceBox<T> {
    pub(super) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&T> {
        // ORDERING: Acquire pairs with the Release in `set`.
        // SAFETY: null, or a box that `set` has leaked. Only `&mut self` takes it back.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the box. One thread does that, once.
    pub(super) fn set(&self, value: Box<T>) {
        // ORDERING: Relaxed: no other thread sets it.
        assert!(self.0.load(Ordering::Relaxed).is_null(), "it is set once");
        // ORDERING: Release publishes the value to the Acquire in `get`.
        self.0.store(Box::into_raw(value), Ordering::Release);
    }

    pub(super) fn take(&mut self) -> Option<Box<T>> {
        // ORDERING: Relaxed: `&mut self` shows that no other thread uses it. So this is no exchange.
        let value = self.0.load(Ordering::Relaxed);
        // ORDERING: Relaxed, as above.
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: `set` has leaked the box, and no reference to it is left.
        (!value.is_null()).then(|| unsafe { Box::from_raw(value) })
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
