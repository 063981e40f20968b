//! The worker that looks for work longer than the other idle ones. It also calls a waker for a worker that
//! has ended a run.
//!
//! The lookout and the thread that awaits the run often take turns on one core. If another core wakes that
//! thread, the kernel interrupts the lookout, which takes about ten microseconds in a virtual machine. If the
//! lookout wakes it and yields, there is no interrupt. See decision 134.

use std::ptr;
use std::task::Waker;

use crate::sync::{AtomicPtr, Ordering};

/// Null if no worker looks, [`looks`] if one does, or a waker in a box that it should call.
pub(crate) struct Lookout(AtomicPtr<Waker>);

/// A worker looks, and has no waker to call. An address that no box has.
fn looks() -> *mut Waker {
    ptr::dangling_mut()
}

/// Returns the waker in the box.
///
/// # Safety
/// This thread has exchanged a pointer for another one in the word. If it is a box, no other thread has it.
unsafe fn unpack(word: *mut Waker) -> Option<Waker> {
    // SAFETY: it came from `Box::into_raw` in `leave`, and this thread alone took it out of the word.
    (!word.is_null() && word != looks()).then(|| *unsafe { Box::from_raw(word) })
}

impl Lookout {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns true if this worker is the lookout from now on. It must call [`Lookout::end`].
    pub(crate) fn begin(&self) -> bool {
        self.exchange(ptr::null_mut(), looks())
    }

    /// The lookout does something else from now on. Returns the waker that was left last.
    #[must_use]
    pub(crate) fn end(&self) -> Option<Waker> {
        // ORDERING: Acquire pairs with the Release in `exchange`: the box is whole.
        let word = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the swap took it out.
        unsafe { unpack(word) }
    }

    /// Leaves a waker for the lookout. Returns it if there is no lookout, or if it has one already. A worker
    /// that leaves one must call [`Lookout::take`] before it does anything that may take long: another
    /// process may run in place of the lookout.
    pub(crate) fn leave(&self, waker: Waker) -> Result<(), Waker> {
        // ORDERING: Relaxed: `exchange` decides.
        if self.0.load(Ordering::Relaxed) != looks() {
            return Err(waker);
        }
        let word = Box::into_raw(Box::new(waker));
        if self.exchange(looks(), word) {
            return Ok(());
        }
        // SAFETY: it comes from the line above, and did not get into the word.
        Err(*unsafe { Box::from_raw(word) })
    }

    #[inline]
    pub(crate) fn has_waker(&self) -> bool {
        // ORDERING: Relaxed: `take` decides.
        let word = self.0.load(Ordering::Relaxed);
        !word.is_null() && word != looks()
    }

    /// Takes the waker that was left.
    #[inline]
    #[must_use]
    pub(crate) fn take(&self) -> Option<Waker> {
        // ORDERING: Relaxed: `exchange` decides.
        let word = self.0.load(Ordering::Relaxed);
        if word.is_null() || word == looks() || !self.exchange(word, looks()) {
            return None;
        }
        // SAFETY: the exchange took it out. It may be another box at the same address: this thread has that
        // one then.
        unsafe { unpack(word) }
    }

    fn exchange(&self, from: *mut Waker, to: *mut Waker) -> bool {
        // ORDERING: Release publishes the box to the thread that takes it out, Acquire shows it. Relaxed on
        // failure: then nothing happens.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
