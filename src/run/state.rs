//! The state of a run in one word, which its programs load before each step. Nearly always it is 0.
//!
//! ```text
//! bit         set by                                   read by
//! CANCELLED   cancel, drop, shutdown                   every step: bodies no longer run
//! SHUT_DOWN   shutdown, together with CANCELLED        the verdict
//! LATE        the deadline, together with CANCELLED    the verdict
//! FAILED      (a count) items of which a step failed   every step: do its predecessors have values?
//! WATCHED     the future of a node                     every step: signal the program's lane
//! OBSERVED    the start of the run                     every step: call the observer
//! DONE        the last step, once                      cancel: too late
//! ```
//!
//! CANCELLED and DONE are decided by exchanges of this word:
//!
//! ```text
//! word before              event       word after      then
//! no DONE, no CANCELLED    cancel      CANCELLED set   the caller aborts the async nodes
//! DONE or CANCELLED        cancel      (unchanged)     nothing: too late, or done before
//! no DONE                  complete    DONE set        the word before is the verdict
//! DONE                     complete    (unchanged)     nothing: another step was the last
//! ```
//!
//! So exactly one of cancel, completion and drop wins.

use crate::sync::{AtomicU32, Ordering};

pub(crate) const CANCELLED: u32 = 1;
pub(crate) const SHUT_DOWN: u32 = 2;
pub(crate) const LATE: u32 = 4;
pub(crate) const WATCHED: u32 = 8;
pub(crate) const OBSERVED: u32 = 16;
pub(crate) const DONE: u32 = 32;
/// The number of items that have failed and are not over: all bits above the others.
pub(crate) const FAILED: u32 = !(FAILURE - 1);
const FAILURE: u32 = 64;

pub(crate) struct State(AtomicU32);

impl State {
    pub(crate) fn new(bits: u32) -> Self {
        Self(AtomicU32::new(bits))
    }

    /// Returns the bits, for the check before each step.
    #[inline]
    pub(crate) fn glance(&self) -> u32 {
        // ORDERING: Relaxed. FAILED reaches dependants through the countdown or queue that starts them;
        // WATCHED through the barrier's expensive side; CANCELLED may be seen a step late.
        self.0.load(Ordering::Relaxed)
    }

    /// Counts an item of which the first step has failed.
    pub(crate) fn add_failure(&self) {
        // ORDERING: SeqCst costs nothing here: this is rare. It must precede only the gate or the ticket
        // behind a failed step.
        self.0.fetch_add(FAILURE, Ordering::SeqCst);
    }

    /// Takes back what `add_failure` counted: the item is over.
    pub(crate) fn remove_failure(&self) {
        // ORDERING: Relaxed: what a step of another item sees is still a count.
        self.0.fetch_sub(FAILURE, Ordering::Relaxed);
    }

    /// Sets WATCHED or OBSERVED.
    pub(crate) fn raise(&self, bits: u32) {
        // ORDERING: SeqCst costs nothing here: this is rare. It must precede only the barrier in `watch`.
        self.0.fetch_or(bits, Ordering::SeqCst);
    }

    /// Cancels, unless the run is done. Returns true if this call was the one that cancelled it.
    #[must_use = "the winner must abort the async nodes"]
    pub(crate) fn cancel(&self, bits: u32) -> bool {
        // ORDERING: Relaxed: the exchange decides.
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen & (DONE | CANCELLED) == 0 {
            // ORDERING: SeqCst on success: before the fence in `drive_cancelled`. A failure tries again.
            match self.0.compare_exchange_weak(seen, seen | bits | CANCELLED, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(found) => seen = found,
            }
        }
        false
    }

    /// Sets DONE. Returns what was set before: the verdict. Only the first call gets one.
    #[must_use = "the winner must signal the end"]
    pub(crate) fn complete(&self) -> Option<u32> {
        // ORDERING: AcqRel: the one call that sets DONE sees all bits raised before; a later cancel fails.
        let before = self.0.fetch_or(DONE, Ordering::AcqRel);
        (before & DONE == 0).then_some(before)
    }

    /// Sets DONE on a run at once: no other thread can cancel it.
    pub(crate) fn set_done(&mut self) {
        // ORDERING: Relaxed: `&mut self` shows that no other thread uses it.
        self.0.store(self.glance() | DONE, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: SeqCst: see the fences in `async_nodes`.
        self.0.load(Ordering::SeqCst) & CANCELLED != 0
    }
}
