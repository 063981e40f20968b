//! The measured program: a chain of tasks on numbers, each of which adds 1.

use std::fmt;

/// A chain, and how it is run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Chain {
    pub(crate) tasks: usize,
    pub(crate) serial: Serial,
    /// Items in flight: tokens, the capacity of channels, runs at once.
    pub(crate) in_flight: usize,
    /// Threads that run tasks; 0 is the thread that waits for the results.
    pub(crate) workers: usize,
    /// How long each task spins.
    pub(crate) work_ns: u64,
}

/// Which tasks hold a state, a count of their items, and so have one item at a time, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serial {
    None,
    Middle,
    All,
}

impl Chain {
    pub(crate) fn is_serial(&self, task: usize) -> bool {
        match self.serial {
            Serial::None => false,
            Serial::Middle => task == self.tasks / 2,
            Serial::All => true,
        }
    }

    pub(crate) fn workers_text(&self) -> String {
        if self.workers == 0 { "inline".into() } else { self.workers.to_string() }
    }

    /// Panics unless the results of `items` items, counted from 0, have the right sum.
    pub(crate) fn check(&self, items: u64, sum: u64) {
        let before = items * (items - 1) / 2;
        assert_eq!(sum, before + self.tasks as u64 * items, "every task must see every item once");
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Middle => "middle",
            Self::All => "all",
        })
    }
}
