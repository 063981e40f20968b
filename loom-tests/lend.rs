//! Lent data: a read ends before the call that lends it returns, or does not begin.

use std::sync::Arc;

use super::harness::{Plain, check, join, spawn};
use crate::run::{Lent, lend};
use crate::sync::{current, park};

// Seen to fail (a race for the data) with an end that lets reads begin, or does not wait; with ends of reads,
// or an end of the call, that are Relaxed; and with a wait that does not look again after a wake. Seen to
// fail (a deadlock) with a last read that does not wake.
#[test]
fn the_owner_writes_the_data_after_all_reads() {
    check(|| {
        let data = Arc::new(Plain::new(1));
        let readers = lend(|lender| {
            let lent: Lent<Plain> = lender.lend(&*data);
            [lent.clone(), lent].map(|lent| spawn(move || lent.with(|data| assert_eq!(data.get(), 1)).is_ok()))
        });
        data.set(2);
        readers.into_iter().for_each(|reader| _ = join(reader));
    });
}

/// As an executor does whose poll calls `lend`: it parks after the poll, and relies on a wake since then.
// Seen to fail (a deadlock) with an end that keeps the wakes that it gets.
#[test]
fn the_end_leaves_a_wake_that_was_meant_for_another_wait_of_its_thread() {
    check(|| {
        let (data, waiting) = (Plain::new(1), current());
        let other = spawn(move || waiting.unpark());
        let reader = lend(|lender| {
            let lent = lender.lend(&data);
            spawn(move || _ = lent.with(Plain::get))
        });
        park();
        [other, reader].into_iter().for_each(join);
    });
}
