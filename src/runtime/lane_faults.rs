//! The faults of lanes that were not fatal, numbered in the order in which they were found.
//!
//! A driver reports which stream failed, not which work. So work is in doubt if its lane had a fault between
//! the start of its submission and its end. The number of faults is read at both. If it is the same, no work
//! is in doubt.

use std::collections::VecDeque;

use crate::device::queue::Fault;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

const KEPT_MAX: usize = 64;

pub(crate) struct LaneFaults {
    found: AtomicU64,
    /// Each with its lane, the oldest first.
    kept: Mutex<VecDeque<(usize, Fault)>>,
}

impl LaneFaults {
    pub(super) fn new() -> Self {
        Self { found: AtomicU64::new(0), kept: Mutex::new(VecDeque::new()) }
    }

    pub(crate) fn found(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `add`: a fault is added before the points behind it are
        // signalled.
        self.found.load(Ordering::Acquire)
    }

    pub(super) fn add(&self, lane: usize, fault: &Fault) {
        let mut kept = lock(&self.kept);
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((lane, fault.clone()));
        // ORDERING: Release pairs with the Acquire in `found`.
        self.found.fetch_add(1, Ordering::Release);
    }

    /// Returns the first fault of these lanes after the first `found` faults.
    pub(crate) fn since(&self, found: u64, is_used: impl Fn(usize) -> bool) -> Option<Fault> {
        let kept = lock(&self.kept);
        let recent = (self.found() - found) as usize;
        let Some(known) = kept.len().checked_sub(recent) else {
            // Some faults were discarded, and may have been of any lane.
            return kept.front().map(|(_, fault)| fault.clone());
        };
        kept.range(known..).find(|(lane, _)| is_used(*lane)).map(|(_, fault)| fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: u32) -> Fault {
        Fault { code, name: "a fault".into(), is_fatal: false }
    }

    fn code(fault: Option<Fault>) -> Option<u32> {
        fault.map(|fault| fault.code)
    }

    // Seen to fail with a range that begins one earlier.
    #[test]
    fn only_later_faults_of_the_same_lane_count() {
        let faults = LaneFaults::new();
        faults.add(3, &fault(1));
        let found = faults.found();
        faults.add(4, &fault(2));
        assert_eq!(code(faults.since(found, |lane| lane == 3)), None);
        assert_eq!(code(faults.since(found, |lane| lane == 4)), Some(2));
        assert_eq!(code(faults.since(0, |lane| lane == 3)), Some(1));
        assert_eq!(code(faults.since(faults.found(), |_| true)), None);
    }

    // Seen to fail with a range that begins at the oldest that is kept.
    #[test]
    fn forgotten_faults_count_for_every_lane() {
        let faults = LaneFaults::new();
        (0..=KEPT_MAX).for_each(|_| faults.add(0, &fault(1)));
        assert_eq!(code(faults.since(0, |_| false)), Some(1));
        assert_eq!(code(faults.since(1, |_| false)), None);
    }
}
