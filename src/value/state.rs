//! A state of a pipeline: a value that outlives the items. One node holds it, and that node runs for one item
//! at a time, so that it needs no lock.
//!
//! ```text
//!  state      event                          next       then
//!  in place   a task or a kernel is called   in place   it has the value by `&mut`
//!  in place   an async node begins           out        its future owns the value, in a guard
//!  out        the guard is dropped           in place   the value is back
//!  out        an async node begins           out        it fails: an earlier future still has the guard
//! ```

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::sync::{AtomicBool, Ordering};

/// Where a state stays between items. Every iteration of a run has a share of it.
pub(crate) struct StateHome<T> {
    value: UnsafeCell<Option<T>>,
    /// Whether a guard owns the value.
    is_out: AtomicBool,
}

// SAFETY: `value` is used by the thread that runs the node which holds the state, or by the guard that has
// the value; `is_out` orders the two. So the value only moves from thread to thread.
unsafe impl<T: Send> Sync for StateHome<T> {}

/// A share of a state, as it lies in the memory of an iteration.
pub(crate) struct StateRef<T>(Arc<StateHome<T>>);

impl<T> StateRef<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(StateHome { value: UnsafeCell::new(Some(value)), is_out: AtomicBool::new(false) }))
    }

    pub(crate) fn share(&self) -> Self {
        Self(self.0.clone())
    }

    /// Returns the value for one call of the body of its node.
    ///
    /// # Safety
    /// The caller is the only thread that runs the node now, for any item, and the node is not async.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the caller promises what a lock would")]
    pub(super) unsafe fn hold(&self) -> &mut T {
        // SAFETY: the caller is the only user of the state.
        let value = unsafe { &mut *self.0.value.get() };
        value.as_mut().expect("only async nodes move their states out")
    }

    /// Moves the value into a guard, for the future of an async node.
    ///
    /// # Panics
    /// If an earlier future has not given the guard back. That is an error of the node.
    ///
    /// # Safety
    /// The caller is the only thread that runs the node now, for any item.
    pub(super) unsafe fn take_out(&self) -> StateGuard<T> {
        // ORDERING: Acquire pairs with the Release of the guard's drop.
        assert!(
            !self.0.is_out.load(Ordering::Acquire),
            "the future of an earlier item still has the state: its guard must be dropped before that future ends"
        );
        // SAFETY: no guard has the value, and the caller is the only thread that runs its node.
        let value = unsafe { &mut *self.0.value.get() }.take();
        // ORDERING: Relaxed: the thread that runs the node for the next item comes after this one.
        self.0.is_out.store(true, Ordering::Relaxed);
        StateGuard { home: self.0.clone(), value }
    }
}

/// The state of a pipeline in the future of an async node: it dereferences to the value, and gives it back
/// when it is dropped. Drop it before the future ends: else the node fails for the next item.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use anabranch::pipe::StateGuard;
/// use anabranch::{Executor, Pipeline, Ranked};
/// use futures::{TryStreamExt, stream};
///
/// let sums = Pipeline::new("sums", &Ranked::default(), |g, x| {
///     let mut total = g.state("total", || 0);
///     g.future("add", (&mut total, &x), |mut total: StateGuard<u32>, x: Arc<u32>| async move {
///         *total += *x; // between two awaits, say
///         Ok(*total)
///     })
/// })?;
/// let exec = Executor::inline();
/// let results = exec.pipe(&sums, stream::iter(1..=4));
/// assert_eq!(futures::executor::block_on(results.try_collect::<Vec<_>>())?, [1, 3, 6, 10]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct StateGuard<T> {
    home: Arc<StateHome<T>>,
    value: Option<T>,
}

impl<T> Deref for StateGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("a guard has the value until its drop")
    }
}

impl<T> DerefMut for StateGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("a guard has the value until its drop")
    }
}

impl<T> Drop for StateGuard<T> {
    fn drop(&mut self) {
        // SAFETY: `is_out` is true until the store below, so that no other thread uses the value.
        let home = unsafe { &mut *self.home.value.get() };
        *home = self.value.take();
        // ORDERING: Release pairs with the Acquire in `take_out`.
        self.home.is_out.store(false, Ordering::Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for StateGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateGuard").field(&self.value).finish()
    }
}
