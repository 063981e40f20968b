//! The calls in the order in which they returned, for tests that compare the issued work.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::lock;

/// The log. It is off by default.
#[derive(Default)]
pub(crate) struct Log {
    is_kept: AtomicBool,
    lines: Mutex<Vec<String>>,
}

impl Log {
    pub(crate) fn is_kept(&self) -> bool {
        // ORDERING: Relaxed: a switch that guards no other data.
        self.is_kept.load(Ordering::Relaxed)
    }

    pub(crate) fn keep(&self, is_kept: bool) {
        // ORDERING: Relaxed: a switch that guards no other data.
        self.is_kept.store(is_kept, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, line: String) {
        lock(&self.lines).push(line);
    }

    pub(crate) fn for_each(&self, visit: impl FnMut(&String)) {
        lock(&self.lines).iter().for_each(visit);
    }

    pub(crate) fn clear(&self) {
        lock(&self.lines).clear();
    }
}
