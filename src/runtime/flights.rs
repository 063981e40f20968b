//! The word of an executor that says how many runs are in flight, and whether more may begin.

use crate::sync::{AtomicU64, Ordering};

/// The number of runs in flight, three flags for runs that begin or end, and a count of beginnings, which
/// overflows:
///
/// ```text
/// bits            set under the lock                     then
/// count           (also by runs at once)
/// ASKED           a run is queued, or a task waits       a run at once is not admitted, and one that ends
///                 until none is in flight                takes the lock
/// DRAINING        by a drain                             only runs of work that has begun are admitted
/// CLOSED          by a shutdown                          no run is admitted
/// BEGUN and up    (also by runs at once)                 an equal word: no run has begun meanwhile
/// ```
///
/// A run is queued only by the exchange that finds no room. So a run that ends before it makes room, and one
/// that ends after it sees ASKED. Only runs at once change the word without the lock.
pub(super) struct Flights(AtomicU64);

const COUNT: u64 = (1 << 32) - 1;
const ASKED: u64 = 1 << 32;
const DRAINING: u64 = 1 << 33;
const CLOSED: u64 = 1 << 34;
/// One beginning. The highest bits, so that an overflow changes no others.
const BEGUN: u64 = 1 << 40;

impl Flights {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn word(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `end`: what those runs did is visible.
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn count(&self) -> usize {
        (self.word() & COUNT) as usize
    }

    /// Changes the word, unless `change` returns None.
    #[inline]
    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        // ORDERING: Relaxed: the exchange decides.
        let mut word = self.0.load(Ordering::Relaxed);
        while let Some(new) = change(word) {
            // ORDERING: AcqRel: as in `word`, and as in `end`.
            match self.0.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        false
    }

    /// Counts one more run, if there is room for it beside `kept` others.
    pub(super) fn begin(&self, max: usize, kept: usize) -> bool {
        let max = max.saturating_sub(kept) as u64;
        self.update(|word| (word & COUNT < max).then(|| word.wrapping_add(1 + BEGUN)))
    }

    /// As `begin`, unless there is a flag.
    #[inline]
    pub(super) fn begin_at_once(&self, max: usize) -> bool {
        self.update(|word| (word & (BEGUN - 1) < max as u64).then(|| word.wrapping_add(1 + BEGUN)))
    }

    /// Counts the beginning of work that is not among the runs in flight.
    pub(super) fn note_begun(&self) {
        // ORDERING: AcqRel: as in `update`.
        self.0.fetch_add(BEGUN, Ordering::AcqRel);
    }

    /// Sets ASKED if there is no room beside `kept` others.
    pub(super) fn ask_for_room(&self, max: usize, kept: usize) -> bool {
        let max = max.saturating_sub(kept) as u64;
        self.update(|word| (word & COUNT >= max).then_some(word | ASKED))
    }

    /// Sets CLOSED, if no run has begun or ended since the word was read.
    pub(super) fn close_if(&self, word: u64) -> bool {
        self.update(|now| ((now ^ word) & !ASKED == 0).then_some(now | CLOSED))
    }

    /// Counts one run less. Returns whether the lock is needed.
    #[inline]
    pub(super) fn end(&self) -> bool {
        // ORDERING: AcqRel: a thread that sees the new count sees what the run did.
        self.0.fetch_sub(1, Ordering::AcqRel) & ASKED != 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word() & CLOSED != 0
    }

    /// Asks the next run that ends to take the lock.
    pub(super) fn ask(&self) {
        self.raise(ASKED);
    }

    pub(super) fn drain(&self) {
        self.raise(DRAINING);
    }

    pub(super) fn close(&self) {
        self.raise(CLOSED);
    }

    /// Sets bits.
    fn raise(&self, bits: u64) {
        // ORDERING: AcqRel: a run that is not counted before has ended, or sees the bits.
        self.0.fetch_or(bits, Ordering::AcqRel);
    }

    pub(super) fn is_draining(&self) -> bool {
        // ORDERING: Relaxed: a caller that relies on it has a fence before it, or the lock.
        self.0.load(Ordering::Relaxed) & DRAINING != 0
    }

    pub(super) fn clear_asked(&self) {
        // ORDERING: Relaxed: it is set again under the same lock.
        self.0.fetch_and(!ASKED, Ordering::Relaxed);
    }
}
