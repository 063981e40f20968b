//! The state of an async node in one run.

use std::time::Instant;

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// The state of an async node in one run. Only the thread that has its program uses it.
pub(super) struct AsyncNode {
    /// There is a future.
    has_begun: AtomicBool,
    /// The time of the first poll, in an observed run.
    since: Mutex<Option<Instant>>,
}

impl AsyncNode {
    pub(super) fn new() -> Self {
        Self { has_begun: AtomicBool::new(false), since: Mutex::new(None) }
    }

    /// Returns true if this is the first poll of a future.
    pub(super) fn begin(&self, is_observed: bool) -> bool {
        // ORDERING: Relaxed: the ticket for the node's program orders its holders.
        if self.has_begun.load(Ordering::Relaxed) {
            return false;
        }
        // ORDERING: Relaxed: see above.
        self.has_begun.store(true, Ordering::Relaxed);
        if is_observed {
            *lock(&self.since) = Some(Instant::now());
        }
        true
    }

    /// Returns whether there was a future, and the time of its first poll if it was observed.
    pub(super) fn end(&self) -> (bool, Option<Instant>) {
        // ORDERING: Relaxed: the ticket for the node's program orders its holders.
        let had_begun = self.has_begun.load(Ordering::Relaxed);
        // ORDERING: Relaxed: see above.
        self.has_begun.store(false, Ordering::Relaxed);
        (had_begun, lock(&self.since).take())
    }
}
