//! The worker that searches for work longer than the other idle ones. It also calls a waker for a worker that
//! has ended a run.
//!
//! The searcher and the thread that awaits the run often take turns on one core. If another core wakes that
//! thread, the kernel interrupts the searcher, which takes about ten microseconds in a virtual machine. If
//! the searcher wakes it and yields, there is no interrupt. See decision 134.

use std::ptr;
use std::task::Waker;

use crate::sync::{AtomicPtr, Ordering};

/// Null if no worker searches, [`searches`] if one does, or a boxed waker that the searcher should call.
pub(crate) struct Searcher(AtomicPtr<Waker>);

/// The value while a worker searches and has no waker to call. No box has this address.
fn searches() -> *mut Waker {
    ptr::dangling_mut()
}

/// Returns the waker in the box.
///
/// # Safety
/// This thread has exchanged the pointer in the word for another one. If it is a box, no other thread has it.
unsafe fn unpack(word: *mut Waker) -> Option<Waker> {
    // SAFETY: the pointer came from `Box::into_raw` in `leave`, and only this thread took it out of the word.
    (!word.is_null() && word != searches()).then(|| *unsafe { Box::from_raw(word) })
}

impl Searcher {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns true if this worker is now the searcher. Then it must call [`Searcher::end`].
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        self.exchange(ptr::null_mut(), searches()).is_some()
    }

    /// Ends the search of the searcher. Returns the waker that was left last.
    #[must_use]
    pub(crate) fn end(&self) -> Option<Waker> {
        // ORDERING: Acquire pairs with the Release in `exchange`: the box is whole.
        let word = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the swap took the pointer out of the word.
        unsafe { unpack(word) }
    }

    /// Leaves a waker for the searcher. Returns the waker if there is no searcher, or if it already has one.
    /// A worker that leaves a waker must call [`Searcher::take`] before it does anything that may take long:
    /// another process may run in place of the searcher.
    pub(crate) fn leave(&self, waker: Waker) -> Result<(), Waker> {
        // ORDERING: Relaxed: the exchange in `exchange` decides.
        if self.0.load(Ordering::Relaxed) != searches() {
            return Err(waker);
        }
        let word = Box::into_raw(Box::new(waker));
        if self.exchange(searches(), word).is_some() {
            return Ok(());
        }
        // SAFETY: `word` comes from `Box::into_raw` above, and did not get into the atomic.
        Err(*unsafe { Box::from_raw(word) })
    }

    #[inline]
    pub(crate) fn has_waker(&self) -> bool {
        // ORDERING: Relaxed: the exchange in `take` decides.
        let word = self.0.load(Ordering::Relaxed);
        !word.is_null() && word != searches()
    }

    /// Takes the waker that was left.
    #[inline]
    #[must_use]
    pub(crate) fn take(&self) -> Option<Waker> {
        // ORDERING: Relaxed: the exchange in `exchange` decides.
        let word = self.0.load(Ordering::Relaxed);
        if word.is_null() || word == searches() {
            return None;
        }
        // The result, not `word`: meanwhile another box may be at the same address.
        let taken = self.exchange(word, searches())?;
        // SAFETY: the exchange took the pointer out of the word.
        unsafe { unpack(taken) }
    }

    /// Replaces `from` by `to`. Returns the pointer that was there, or None if it was not `from`.
    fn exchange(&self, from: *mut Waker, to: *mut Waker) -> Option<*mut Waker> {
        // ORDERING: Release publishes the box to the Acquire of the thread that takes it out, here or in
        // `end`. Relaxed on failure: then nothing happens.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).ok()
    }
}
