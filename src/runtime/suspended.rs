//! The count of suspended flows.

use crate::sync::{AtomicU64, Line, Ordering};

/// The number of flows whose last poll was pending. On a cache line of its own: tasks of many threads change
/// it.
pub(crate) struct Suspended(Line<AtomicU64>);

/// Whether one flow is counted.
#[derive(Default)]
pub(crate) struct Suspension(bool);

impl Suspended {
    pub(crate) fn new() -> Self {
        Self(Line(AtomicU64::new(0)))
    }

    pub(crate) fn count(&self) -> usize {
        // ORDERING: Relaxed: a count, which publishes nothing.
        self.0.0.load(Ordering::Relaxed) as usize
    }
}

impl Suspension {
    /// Counts a flow whose poll was pending.
    pub(crate) fn begin(&mut self, of: &Suspended) {
        // ORDERING: Relaxed: a count, which publishes nothing.
        of.0.0.fetch_add(1, Ordering::Relaxed);
        self.0 = true;
    }

    /// Ends what `begin` began: the flow is polled, or dropped.
    #[inline]
    pub(crate) fn end(&mut self, of: &Suspended) {
        if std::mem::take(&mut self.0) {
            // ORDERING: Relaxed: a count, which publishes nothing.
            of.0.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
