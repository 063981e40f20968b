//! The state of a loop, a branch or an async node in one run.

use crate::runtime::Begun;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// The state of a step that its program reaches more than once. Only the thread that runs the program uses
/// it; the program's ticket orders these threads. All threads may use `has_failed`.
pub(super) struct StepState {
    phase: AtomicU32,
    /// The iterations of a loop that have begun; the taken arm of a branch.
    count: AtomicU64,
    has_failed: AtomicBool,
    /// In an observed run: what observers were told of it, while it is not done.
    begun: Mutex<Option<Begun>>,
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
            begun: Mutex::new(None),
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
    }

    pub(super) fn phase(&self) -> u32 {
        // ORDERING: Relaxed: the ticket for the step's program orders its holders.
        self.phase.load(Ordering::Relaxed)
    }

    pub(super) fn set_phase(&self, phase: u32) {
        // ORDERING: Relaxed: see `phase`.
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Keeps what observers were told of it, until it goes on.
    pub(super) fn keep(&self, begun: Option<Begun>) {
        if begun.is_some() {
            *lock(&self.begun) = begun;
        }
    }

    /// Returns what was kept.
    pub(super) fn take(&self) -> Option<Begun> {
        lock(&self.begun).take()
    }

    /// Ends the step, which may begin again.
    pub(super) fn end(&self) {
        self.set_phase(phase::IDLE);
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
