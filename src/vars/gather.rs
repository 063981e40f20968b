//! How long a worker that has found nothing waits before it looks again. Where operations come in a stream,
//! it lets some gather: right behind each other, who pushes and who runs take the same cache lines from each
//! other with each operation, and both together take as long as one after the other.

use std::time::{Duration, Instant};

use crate::sync::{spin_loop, yield_now};

/// The length of a pause: about a microsecond.
const SPINS: u32 = 32;
/// How many operations in a row, of which nobody has awaited one, are a stream; and how many of it must have
/// been run for each pause of the last wait, for the next one to be twice as long.
const STREAM: u32 = 256;
const PAUSE_BRINGS: u32 = 3;
/// The longest wait: so many pauses, and no more than that time where others want the core.
const PAUSES_MAX: u32 = 8;
const WAIT_MAX: Duration = Duration::from_micros(16);

/// What a worker knows of how operations come.
pub(super) struct Gathering {
    /// Of the last wait.
    pauses: u32,
    /// Operations since then.
    ran: u32,
    /// Those before, back to the last of which somebody was told.
    row: u32,
}

impl Gathering {
    pub(super) fn new() -> Self {
        Self { pauses: 1, ran: 0, row: 0 }
    }

    /// An operation is run.
    #[inline]
    pub(super) fn count(&mut self) {
        self.ran = self.ran.saturating_add(1);
    }

    /// Returns the length of the next wait. `has_told` says that somebody was told of an end, and may push
    /// what comes next because of it.
    pub(super) fn next_pauses(&mut self, has_told: bool) -> u32 {
        let ran = std::mem::take(&mut self.ran);
        self.row = if has_told { 0 } else { self.row.saturating_add(ran) };
        let is_stream = self.row >= STREAM && ran >= PAUSE_BRINGS * self.pauses;
        self.pauses = if is_stream { (2 * self.pauses).min(PAUSES_MAX) } else { 1 };
        self.pauses
    }
}

/// Waits. Whoever is kept from its core meanwhile, perhaps who pushes, gets it between two pauses.
pub(super) fn gather(pauses: u32) {
    let begin = (pauses > 1).then(Instant::now);
    for number in 0..pauses {
        if number > 0 {
            yield_now();
        }
        if begin.is_some_and(|begin| begin.elapsed() > WAIT_MAX) {
            return;
        }
        (0..SPINS).for_each(|_| spin_loop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail with a wait that stays long, with one that counts what came before the last, with one
    /// that nobody who awaits shortens, and with a count that runs over.
    #[test]
    fn waits_double_while_each_brings_enough_and_fall_back_at_once() {
        let mut gathering = Gathering::new();
        let mut pauses = |ran: u32, has_told| {
            (0..ran).for_each(|_| gathering.count());
            gathering.next_pauses(has_told)
        };
        assert_eq!([200, 55, 1, 3, 6, 12, 24, 23, 2, 3].map(|ran| pauses(ran, false)), [1, 1, 1, 2, 4, 8, 8, 1, 1, 2]);
        assert_eq!([(6, true), (200, false), (55, false), (3, false)].map(|(ran, has_told)| pauses(ran, has_told)), [1, 1, 1, 2]);
        let mut endless = Gathering { pauses: 1, ran: u32::MAX, row: 1 };
        endless.count();
        assert_eq!(endless.next_pauses(false), 2);
    }
}
