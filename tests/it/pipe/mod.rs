//! Pipelines: items in, results out, in order, on every executor.

mod order;
mod random;

use crate::support::{Counted, Tally};

/// Makes words that count themselves.
#[derive(Clone, Default)]
pub(crate) struct Tallied(Tally);

impl Tallied {
    pub(crate) fn word(&self, item: u64, word: u64) -> Word {
        Word { item, word: self.0.value(word), tally: self.clone() }
    }

    pub(crate) fn alive(&self) -> isize {
        self.0.alive()
    }
}

/// A word that is made for an item, and can be fed back: a clone counts, too.
pub(crate) struct Word {
    pub(crate) item: u64,
    word: Counted,
    tally: Tallied,
}

impl Word {
    pub(crate) fn get(&self) -> u64 {
        self.word.get()
    }
}

impl Clone for Word {
    fn clone(&self) -> Self {
        self.tally.word(self.item, self.get())
    }
}
