//! The time slice of a poll: how long it may run nodes, or the code of a flow, before it lets other tasks
//! run. Reading the clock costs as much as many tiny steps. So it is read rarely while steps are tiny, and
//! after each step while they are long.

use std::time::{Duration, Instant};

/// The maximum time of one poll of a run or a flow. Tokio polls a task that is always ready 61 times before
/// it polls timers and sockets: these polls must not take 10 ms.
const SLICE: Duration = Duration::from_micros(100);

/// The intended time between two reads of the clock. A read costs a small part of it.
const BETWEEN_LOOKS: Duration = Duration::from_micros(8);

/// The most steps between two reads of the clock.
const BATCH_MAX: u32 = 1024;

/// The most steps before the clock is read, starting with a step of unknown length.
const BATCH_WARY: u32 = 8;

pub(crate) struct Slice {
    batch: u32,
    /// The batch to return to if the next read shows that steps of unknown length were tiny, too; or 0.
    earlier_batch: u32,
    limit: Duration,
    started: Option<Instant>,
    checked: Option<Instant>,
    is_spent: bool,
}

/// The pace of the steps of one poll, for the next poll of the same future.
pub(crate) struct Pace {
    batch: u32,
    earlier_batch: u32,
    /// The steps until the next read of the clock.
    left: u32,
}

/// The steps of known work before the clock is read. A model yields after a few.
const KNOWN: u32 = if cfg!(anabranch_loom) { Slice::FIRST } else { 64 };

/// The most steps from one poll to the next without a read of the clock.
const CARRIED_MAX: u32 = 256;

impl Pace {
    /// Returns the pace of a future that was never polled.
    pub(crate) fn new() -> Self {
        Self { batch: 1, earlier_batch: 0, left: Slice::FIRST }
    }

    /// Returns the pace of work that is known to be cheap: the clock is not read for some steps.
    pub(crate) fn known() -> Self {
        Self { batch: KNOWN, earlier_batch: 0, left: KNOWN }
    }
}

impl Slice {
    /// Returns the slice of a poll, and the steps until it first reads the clock.
    pub(crate) fn at(pace: &Pace) -> (Self, u32) {
        (Self { batch: pace.batch, earlier_batch: pace.earlier_batch, ..Self::new() }, pace.left)
    }

    /// Returns the pace at the end of a poll, with so many steps left in the batch.
    pub(crate) fn pace(&self, left: u32) -> Pace {
        let [batch, earlier_batch] = [self.batch, self.earlier_batch].map(|batch| batch.min(CARRIED_MAX));
        Pace { batch, earlier_batch, left: left.clamp(1, batch) }
    }

    /// The steps before the first read of the clock: a run of one node never reads it.
    pub(crate) const FIRST: u32 = 2;

    pub(crate) fn new() -> Self {
        Self { batch: 1, earlier_batch: 0, limit: SLICE, started: None, checked: None, is_spent: false }
    }

    /// Shortens the slice.
    pub(crate) fn shorten(&mut self, limit: Duration) {
        self.limit = self.limit.min(limit);
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Returns the number of steps until the next read of the clock, or 0 when the slice is over.
    pub(crate) fn next_batch(&mut self) -> u32 {
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        match self.checked.replace(now) {
            Some(checked) => self.batch = self.batch_after(now - checked),
            // The earlier steps include some of an earlier poll: their time is not known.
            None if self.batch > BATCH_WARY => self.earlier_batch = std::mem::replace(&mut self.batch, BATCH_WARY),
            None => {}
        }
        // A model has no clock, so each batch is a slice there.
        self.is_spent = cfg!(anabranch_loom) || now - started >= self.limit;
        if self.is_spent { 0 } else { self.batch }
    }

    /// Returns the next batch, after one that took `took`.
    fn batch_after(&mut self, took: Duration) -> u32 {
        let earlier_batch = std::mem::take(&mut self.earlier_batch);
        if took > 2 * BETWEEN_LOOKS {
            let aimed = u128::from(self.batch) * BETWEEN_LOOKS.as_nanos() / took.as_nanos();
            (aimed as u32).max(1)
        } else if earlier_batch > 0 {
            let took = took * earlier_batch / self.batch;
            if 4 * took <= BETWEEN_LOOKS { (earlier_batch * 4).min(BATCH_MAX) } else { earlier_batch }
        } else if 4 * took <= BETWEEN_LOOKS {
            (self.batch * 4).min(BATCH_MAX)
        } else if 2 * took <= BETWEEN_LOOKS {
            (self.batch * 2).min(BATCH_MAX)
        } else {
            self.batch
        }
    }

    /// Announces a step that may be much longer than the earlier ones. Returns the number of steps after
    /// which the clock must be read, out of `left` in the batch.
    pub(super) fn expect_long(&mut self, left: u32) -> u32 {
        if left > BATCH_WARY {
            self.earlier_batch = std::mem::replace(&mut self.batch, BATCH_WARY);
        }
        left.min(BATCH_WARY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the batches that follow one of `batch` steps that took `nanos` each.
    fn batches(batch: u32, nanos: u64, count: usize) -> Vec<u32> {
        let mut slice = Slice { batch, ..Slice::new() };
        let mut next = || {
            slice.batch = slice.batch_after(Duration::from_nanos(nanos * u64::from(slice.batch)));
            slice.batch
        };
        (0..count).map(|_| next()).collect()
    }

    // Seen to fail with batches that shrink by half.
    #[test]
    fn batches_follow_the_length_of_steps_at_once() {
        assert_eq!(batches(1, 3, 7), [4, 16, 64, 256, 1024, 1024, 1024]);
        assert_eq!(batches(1024, 31_000, 2), [1, 1]);
        assert_eq!(batches(1024, 100, 3), [80, 80, 80]);
        assert_eq!(batches(1, 300, 4), [4, 16, 16, 16]);
        assert_eq!(batches(1, 600, 4), [4, 8, 8, 8]);
    }

    #[test]
    fn unknown_steps_that_were_tiny_cost_one_look() {
        let mut slice = Slice { batch: 512, ..Slice::new() };
        assert_eq!((slice.expect_long(500), slice.expect_long(5), slice.expect_long(1)), (8, 5, 1));
        assert_eq!(slice.batch_after(Duration::from_micros(10)), 512);
        let mut slice = Slice { batch: 512, ..Slice::new() };
        assert_eq!((slice.expect_long(9), slice.expect_long(8)), (8, 8));
        assert_eq!(slice.batch_after(Duration::from_millis(1)), 1);
    }
}
