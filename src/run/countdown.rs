//! A gate of a run: the number of arrivals that are left. Exactly one arrival is the last, and it sees what
//! all others did before.
//!
//! ```text
//!  left    event     left after    then
//!  1       arrive    (unchanged)   the arrival is the last
//!  n       arrive    n - 1         the arrival that leaves 0 is the last
//!  any     reset     count         the gate counts again, in the next iteration of a loop
//! ```

use crate::sync::{AtomicU32, Ordering};

pub(crate) struct Countdown(AtomicU32);

impl Countdown {
    pub(crate) fn new(count: u32) -> Self {
        Self(AtomicU32::new(count))
    }

    /// Begins anew. All arrivals of the last iteration are done.
    #[inline]
    pub(crate) fn reset(&self, count: u32) {
        // ORDERING: Relaxed: the programs that arrive next are started after this.
        self.0.store(count, Ordering::Relaxed);
    }

    /// Returns true if only the caller has yet to arrive. Then it need not arrive any more.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of every other arrival: the last value was written by the
        // end of a chain of read-modify-writes, each of which carries the releases before it on.
        self.0.load(Ordering::Acquire) == 1
    }

    /// Counts one arrival; returns true for the last. `IS_SHARED`: whether other threads may arrive
    /// meanwhile.
    #[inline]
    pub(crate) fn arrive<const IS_SHARED: bool>(&self) -> bool {
        if self.is_ours() {
            return true;
        }
        if !IS_SHARED {
            // ORDERING: Relaxed: one thread at a time uses it: the only worker, beside which no poll runs
            // items, or the holder of the driver.
            self.0.store(self.0.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
            return false;
        }
        // ORDERING: Release publishes this arrival's work to the last; Acquire in case this is the last.
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
