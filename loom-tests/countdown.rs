//! Gates: exactly one of all arrivals is the last, and it sees the work before all other arrivals.

use std::sync::Arc;

use super::harness::{Plain, Turns, check, join, spawn};
use crate::run::countdown::Countdown;

struct Model {
    countdown: Countdown,
    words: Vec<Plain>,
    turns: Turns,
}

impl Model {
    fn new(arrivals: usize) -> Arc<Self> {
        let words = (0..arrivals).map(|_| Plain::new(0)).collect();
        Arc::new(Self { countdown: Countdown::new(arrivals as u32), words, turns: Turns::new() })
    }

    /// Does its work, then arrives. Returns true for the last.
    fn arrive(&self, number: usize) -> bool {
        self.words[number].set(1);
        let is_last = self.countdown.arrive::<true>();
        self.turns.take();
        self.lead_on(is_last)
    }

    /// The same for the program that owns the gate: it checks before it counts.
    fn arrive_at_own_gate(&self, number: usize) -> bool {
        self.words[number].set(1);
        self.turns.take();
        self.lead_on(self.countdown.is_ours() || self.countdown.arrive::<true>())
    }

    fn lead_on(&self, is_last: bool) -> bool {
        if is_last {
            assert!(self.words.iter().all(|word| word.get() == 1), "the last sees everyone's work");
        }
        is_last
    }
}

// Seen to fail with any of: `fetch_sub` only Release, or Relaxed (a race for a word); the shortcut's load
// Relaxed (the same); the shortcut taken at 2; a load and a store instead of `fetch_sub` (no arrival is the
// last).
#[test]
fn one_of_three_arrivals_is_the_last_and_sees_the_others() {
    check(|| {
        let model = Model::new(3);
        let others = [0, 1].map(|number| {
            let model = model.clone();
            spawn(move || model.arrive(number))
        });
        let mut last = vec![model.arrive(2)];
        last.extend(others.into_iter().map(join));
        assert_eq!(last.into_iter().filter(|&is_last| is_last).count(), 1);
    });
}

// Seen to fail with any of: the load in `is_ours` Relaxed (a race for a word); the changes that the model of
// three arrivals fails with.
#[test]
fn the_owner_of_a_gate_that_asks_first_is_the_last_or_is_resumed() {
    check(|| {
        let model = Model::new(3);
        let others = [0, 1].map(|number| {
            let model = model.clone();
            spawn(move || model.arrive(number))
        });
        let mut last = vec![model.arrive_at_own_gate(2)];
        last.extend(others.into_iter().map(join));
        assert_eq!(last.into_iter().filter(|&is_last| is_last).count(), 1);
    });
}
