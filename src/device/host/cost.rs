//! What the items of a run cost: a few visits of workers are timed. If items are cheap, the consumer runs
//! them in its own polls. To hand such an item to a worker and back would take longer than the item.
//!
//! ```text
//!  score       event                    score after
//!  any         a visit ≤ CHEAP_NS       one less, at least 0
//!  any         a visit > CHEAP_NS       DEARER more, at most MAX
//!  0                                    polls run the items
//!  ≤ UNKNOWN                            workers run them, and each visit is timed
//!  above                                workers run them, and one visit in EVERY is timed
//! ```
//! A visit that the operating system interrupts looks dear, so one such visit does not decide.

use crate::sync::{AtomicU32, Ordering};

/// The most that an item may take if polls run it.
const CHEAP_NS: u128 = 1_000;
const UNKNOWN: u32 = 8;
const DEARER: u32 = 4;
const MAX: u32 = 16;
const EVERY: u32 = 32;

/// The score, and the visits since the last one that was timed.
pub(super) struct Cost {
    score: AtomicU32,
    visits: AtomicU32,
    /// Whether polls may run items at all.
    pub(super) is_known: bool,
}

impl Cost {
    /// Returns the cost of items that were never run. Without `is_known`, polls never run them.
    pub(super) fn new(is_known: bool) -> Self {
        Self { score: AtomicU32::new(UNKNOWN), visits: AtomicU32::new(0), is_known }
    }

    #[inline]
    pub(super) fn score(&self) -> u32 {
        // ORDERING: Relaxed: it decides only which thread runs an item.
        self.score.load(Ordering::Relaxed)
    }

    /// Returns whether this visit is to be timed.
    #[inline]
    pub(super) fn wants_sample(&self) -> bool {
        let score = self.score();
        if !self.is_known || score == 0 {
            return false;
        }
        // ORDERING: Relaxed: visits that are counted at once may count as one.
        let visits = self.visits.load(Ordering::Relaxed) + 1;
        let is_due = score <= UNKNOWN || visits == EVERY;
        // ORDERING: Relaxed: as for the load.
        self.visits.store(if is_due { 0 } else { visits }, Ordering::Relaxed);
        is_due
    }

    pub(super) fn add(&self, nanos: u128) {
        let score = self.score();
        let score = if nanos <= CHEAP_NS { score.saturating_sub(1) } else { (score + DEARER).min(MAX) };
        // ORDERING: Relaxed: it decides only which thread runs an item. A sample may be lost.
        self.score.store(score, Ordering::Relaxed);
    }
}
