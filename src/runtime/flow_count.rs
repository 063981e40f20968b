//! Counts of an executor's flows.

use crate::sync::{AtomicU64, Line, Ordering};

/// A number of flows. On a cache line of its own: tasks of many threads change it.
pub(crate) struct FlowCount(Line<AtomicU64>);

/// Whether one flow is counted.
#[derive(Default)]
pub(crate) struct CountedFlow(bool);

impl FlowCount {
    pub(crate) fn new() -> Self {
        Self(Line(AtomicU64::new(0)))
    }

    pub(crate) fn get(&self) -> usize {
        // ORDERING: Acquire pairs with the Release in `end`: what those flows did is visible.
        self.0.0.load(Ordering::Acquire) as usize
    }
}

impl CountedFlow {
    pub(crate) fn is_counted(&self) -> bool {
        self.0
    }

    pub(crate) fn begin(&mut self, of: &FlowCount) {
        // ORDERING: Relaxed: a caller that looks at something else next has a fence between.
        of.0.0.fetch_add(1, Ordering::Relaxed);
        self.0 = true;
    }

    /// Takes back what `begin` counted, if it did. Returns true if it was the last one.
    #[inline]
    pub(crate) fn end(&mut self, of: &FlowCount) -> bool {
        // ORDERING: Release pairs with the Acquire in `get`. The caller rings the waits for the last one
        // after this.
        std::mem::take(&mut self.0) && of.0.0.fetch_sub(1, Ordering::Release) == 1
    }
}
