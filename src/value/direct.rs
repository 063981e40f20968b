//! An `Arc` that points to its value and not to the counts before it, so that calling through it computes no address.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A shared owner of a `T`, as quick to reach as a reference. For a `dyn Trait` an `Arc` must read the value's alignment from the
/// vtable before each call; in the loop over steps that was a fifth of the cost of a node.
pub(crate) struct Direct<T: ?Sized> {
    /// From `Arc::into_raw`: owns one count.
    value: NonNull<T>,
}

// SAFETY: as `Arc<T>`, of which this is another form.
unsafe impl<T: ?Sized + Send + Sync> Send for Direct<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for Direct<T> {}

impl<T: ?Sized> From<Arc<T>> for Direct<T> {
    fn from(shared: Arc<T>) -> Self {
        let value = NonNull::new(Arc::into_raw(shared).cast_mut()).expect("an Arc's address is not null");
        Self { value }
    }
}

impl<T: ?Sized> Deref for Direct<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the count keeps the value alive, and an Arc's value is only shared.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> Drop for Direct<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Arc::into_raw`, and its count is given back once.
        drop(unsafe { Arc::from_raw(self.value.as_ptr()) });
    }
}
