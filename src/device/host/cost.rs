//! The cost of repeated work: the items of a pipeline, the operations at one place of a program, the runs of
//! a plan. Workers time a sample of it. If the work is cheap, polls do it themselves, because handing it to a
//! worker and back would take longer than the work.
//!
//! ```text
//!  event                   doubt                              strikes
//!  a worker's, the first   (unchanged)
//!  a worker's, cheap       one less, at least 0
//!  a worker's, dear        DEARER more, at most DEAR
//!  none, doubt is 0        polls do it
//!  a poll's, cheap                                            one less, after PARDON << 2·strikes of these
//!  a poll's, odd           (unchanged)                        (unchanged); a second one soon after is dear
//!  a poll's, dear          UNKNOWN << 2·strikes               one more, at most STRIKES_MAX
//! ```
//! While the doubt is at most UNKNOWN, workers time every execution; while it is more, they time one in
//! EVERY. The first execution is not timed: its code is not in the caches yet, or not even in memory. An
//! interruption by the operating system makes work look dear, so one dear sample of a worker does not decide.
//! A dear sample of a poll does: a worker does the work the next time. But a sample that is no longer than an
//! interruption is only odd: there are hundreds of interruptions in a second.

// Not the atomics of `sync`: the numbers only decide which thread does some work, and each value of them is
// valid.
use std::sync::atomic::{AtomicU64, Ordering};

/// The most ns that an item may take if polls run it.
pub(crate) const CHEAP_NS: u64 = 1_000;
/// A poll's work that takes this many times as long is odd or dear.
const SURPRISE: u64 = 4;
/// The most ns that an interruption by the operating system usually takes.
const INTERRUPTION_NS: u64 = 50_000;
/// The number of polls after odd work in which no other work may be odd.
const WARY: u8 = 16;
const UNKNOWN: u16 = 8;
const DEARER: u16 = 4;
const DEAR: u16 = 16;
const EVERY: u8 = 32;
/// In place of the number of executions since the last sample: the work was never done.
const NEVER: u8 = u8::MAX;
const PARDON: u32 = 256;
const STRIKES_MAX: u8 = 4;
/// One of this many polls checks the cost.
const CHECKED: u32 = 16;

/// The cost of one kind of work.
pub(crate) struct Cost(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    doubt: u16,
    /// The number of executions since the last sample.
    untimed: u8,
    strikes: u8,
    /// The number of remaining polls in which odd work is dear.
    wary: u8,
    /// The number of executions by polls since the last strike.
    good: u32,
}

impl Cost {
    /// Returns the cost of work that was never done.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(Self::NEW))
    }

    const NEW: u64 = UNKNOWN as u64 | (NEVER as u64) << 16;

    /// Forgets all, because the work has changed.
    pub(crate) fn forget(&self) {
        // ORDERING: Relaxed: each value is valid, and the number guards nothing.
        self.0.store(Self::NEW, Ordering::Relaxed);
    }

    /// Returns true if polls do the work.
    #[inline]
    pub(crate) fn is_cheap(&self) -> bool {
        // A model has no clock, so all work counts as cheap there.
        cfg!(anabranch_loom) || self.record().doubt == 0
    }

    /// Returns true if a worker that does the work now must time it.
    #[inline]
    pub(crate) fn wants_sample(&self) -> bool {
        let record = self.record();
        !self.is_cheap() && self.count_sample(record)
    }

    fn count_sample(&self, record: Record) -> bool {
        let untimed = record.untimed.wrapping_add(1);
        let is_due = record.untimed != NEVER && (record.doubt <= UNKNOWN || untimed >= EVERY);
        self.set(Record { untimed: if is_due { 0 } else { untimed }, ..record });
        is_due
    }

    /// Adds a sample of a worker.
    pub(crate) fn add_sample(&self, is_cheap: bool) {
        let record = self.record();
        let dearer = || record.doubt.max((record.doubt + DEARER).min(DEAR));
        let doubt = if is_cheap { record.doubt.saturating_sub(1) } else { dearer() };
        self.set(Record { doubt, ..record });
    }

    /// Returns true if a poll that does the work now must check that it is still cheap. Used where an
    /// occasional check is enough.
    pub(crate) fn is_check_due(&self) -> bool {
        let record = self.record();
        record.wary > 0 || record.good.is_multiple_of(CHECKED)
    }

    /// Adds the time of a poll, in ns. Work is cheap up to `cheap_ns`.
    #[inline]
    pub(crate) fn add_poll(&self, ns: u64, cheap_ns: u64) {
        let record = self.record();
        if ns > SURPRISE * cheap_ns {
            return self.add_surprise(record, ns);
        }
        let good = record.good + 1;
        let is_pardoned = good >= PARDON << (2 * record.strikes);
        let strikes = record.strikes - u8::from(is_pardoned && record.strikes > 0);
        let wary = record.wary.saturating_sub(1);
        self.set(Record { good: if is_pardoned { 0 } else { good }, strikes, wary, ..record });
    }

    #[cold]
    fn add_surprise(&self, record: Record, ns: u64) {
        if ns <= INTERRUPTION_NS && record.wary == 0 {
            return self.set(Record { wary: WARY, ..record });
        }
        let strikes = (record.strikes + 1).min(STRIKES_MAX);
        self.set(Record { doubt: UNKNOWN << (2 * record.strikes), untimed: 0, strikes, wary: 0, good: 0 });
    }

    #[inline]
    fn record(&self) -> Record {
        // ORDERING: Relaxed: each value is valid, and the number guards nothing. A concurrent count may be
        // lost.
        let word = self.0.load(Ordering::Relaxed);
        let byte = |number: u32| (word >> (8 * number)) as u8;
        Record { doubt: word as u16, untimed: byte(2), strikes: byte(3), wary: byte(4), good: (word >> 40) as u32 }
    }

    #[inline]
    fn set(&self, record: Record) {
        let Record { doubt, untimed, strikes, wary, good } = record;
        let bytes = u64::from(untimed) << 16 | u64::from(strikes) << 24 | u64::from(wary) << 32;
        let word = u64::from(doubt) | bytes | u64::from(good) << 40;
        // ORDERING: Relaxed: each value is valid, and the number guards nothing.
        self.0.store(word, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAR_NS: u64 = 1_000_000;

    /// Lets workers do the work until polls may. Returns the number of executions, and of samples.
    fn until_cheap(cost: &Cost) -> (u32, u32) {
        let (mut done, mut timed) = (0, 0);
        while !cost.is_cheap() {
            done += 1;
            if cost.wants_sample() {
                timed += 1;
                cost.add_sample(true);
            }
        }
        (done, timed)
    }

    // Seen to fail with a doubt that does not grow with the strikes, and with a first time that is timed.
    #[test]
    fn each_surprise_of_a_poll_costs_four_times_as_many_samples_as_the_last() {
        let cost = Cost::new();
        assert_eq!(until_cheap(&cost), (9, 8));
        cost.add_poll(DEAR_NS, CHEAP_NS);
        assert_eq!(until_cheap(&cost), (8, 8));
        cost.add_poll(DEAR_NS, CHEAP_NS);
        assert_eq!(until_cheap(&cost), (24 * 32 + 8, 32));
        cost.add_poll(DEAR_NS, CHEAP_NS);
        assert_eq!(until_cheap(&cost), (120 * 32 + 8, 128));
    }

    // Seen to fail with a pardon after a number of cheap samples that does not depend on the strikes.
    #[test]
    fn surprises_are_forgotten_after_many_cheap_ones() {
        let cost = Cost::new();
        until_cheap(&cost);
        cost.add_poll(DEAR_NS, CHEAP_NS);
        until_cheap(&cost);
        (0..PARDON << 2).for_each(|_| cost.add_poll(0, CHEAP_NS));
        assert_eq!(cost.record().strikes, 0);
        cost.add_poll(DEAR_NS, CHEAP_NS);
        until_cheap(&cost);
        (1..PARDON << 2).for_each(|_| cost.add_poll(0, CHEAP_NS));
        assert_eq!(cost.record().strikes, 1);
    }

    #[test]
    fn dear_work_is_timed_rarely_and_becomes_cheap_again() {
        let cost = Cost::new();
        (0..10).for_each(|_| cost.add_sample(false));
        // The first time is not timed.
        assert_eq!(until_cheap(&cost), (1 + 8 * 32 + 8, 16));
        // An interruption of a worker.
        cost.add_sample(false);
        assert_eq!(until_cheap(&cost), (4, 4));
    }

    // Seen to fail with odd work that is always forgiven, and with odd work that is dear at once.
    #[test]
    fn an_interruption_is_no_surprise_but_a_second_one_soon_after_is() {
        let cost = Cost::new();
        until_cheap(&cost);
        let odd = || cost.add_poll(INTERRUPTION_NS, CHEAP_NS);
        for _ in 0..10 {
            odd();
            assert!(cost.is_cheap() && cost.is_check_due());
            (0..WARY).for_each(|_| cost.add_poll(CHEAP_NS, CHEAP_NS));
        }
        odd();
        (1..WARY).for_each(|_| cost.add_poll(CHEAP_NS, CHEAP_NS));
        assert!(cost.is_cheap());
        odd();
        assert!(!cost.is_cheap());
    }
}
