//! The state of a loop, a branch or an async node in one run.

use std::time::Instant;

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// The state of a step that its program reaches more than once. Only the thread that runs the program uses
/// it; the program's ticket orders these threads. All threads may use `has_failed`.
pub(super) struct StepState {
    phase: AtomicU32,
    /// The iterations of a loop that have begun; the taken arm of a branch.
    count: AtomicU64,
    has_failed: AtomicBool,
    /// The time of its begin, in an observed run.
    since: Mutex<Option<Instant>>,
}

/// What the step waits for.
pub(super) mod phase {
    pub(in crate::run) const IDLE: u32 = 0;
    pub(in crate::run) const CONDITION: u32 = 1;
    /// The body, an arm, or the future.
    pub(in crate::run) const INSIDE: u32 = 2;
}

impl StepState {
    fn new() -> Self {
        Self {
            phase: AtomicU32::new(phase::IDLE),
            count: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            since: Mutex::new(None),
        }
    }

    /// Returns the states of so many steps: mostly none.
    pub(super) fn of(steps: usize) -> Box<[Self]> {
        if steps == 0 { Box::default() } else { (0..steps).map(|_| Self::new()).collect() }
    }

    /// Makes it as new: the item is over.
    pub(super) fn renew(&self) {
        self.set_phase(phase::IDLE);
        // ORDERING: Relaxed: the next item begins after this.
        self.has_failed.store(false, Ordering::Relaxed);
        *lock(&self.since) = None;
    }

    pub(super) fn phase(&self) -> u32 {
        // ORDERING: Relaxed: the ticket for the step's program orders its holders.
        self.phase.load(Ordering::Relaxed)
    }

    pub(super) fn set_phase(&self, phase: u32) {
        // ORDERING: Relaxed: see `phase`.
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Records the time, in an observed run.
    pub(super) fn note_begin(&self) {
        *lock(&self.since) = Some(Instant::now());
    }

    /// Ends the step, which may begin again. Returns when it began, if that was recorded.
    pub(super) fn end(&self) -> Option<Instant> {
        self.set_phase(phase::IDLE);
        lock(&self.since).take()
    }

    pub(super) fn count(&self) -> u64 {
        // ORDERING: Relaxed: see `phase`.
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn set_count(&self, count: u64) {
        // ORDERING: Relaxed: see `phase`.
        self.count.store(count, Ordering::Relaxed);
    }

    pub(super) fn has_failed(&self) -> bool {
        // ORDERING: Relaxed: a node fails before its inner graph ends, and the control's program resumes
        // after that; gates and tickets order the two.
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Records that a node of an inner graph has failed.
    pub(super) fn fail(&self) {
        // ORDERING: Relaxed: see `has_failed`.
        self.has_failed.store(true, Ordering::Relaxed);
    }
}
