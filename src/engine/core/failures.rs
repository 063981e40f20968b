//! Failures that only `idle` tells: of operations that write nothing, of what frees a variable, and those
//! that nobody was told, and nobody can be told any more. All who wait when one is told are told it.

use std::collections::VecDeque;
use std::mem;

use crate::error::shielded;
use crate::error::{Error, Kind, Untold};
use crate::sync::{Mutex, lock};

/// How many are kept.
const KEPT_MAX: usize = 1024;

/// The failures of one engine.
#[derive(Default)]
pub(in crate::engine) struct Failures(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    oldest_first: VecDeque<Error>,
    /// How many there was no room for behind those.
    lost: u64,
    told: u64,
    /// The last one told, as long as somebody waits who may not have heard of it.
    last: Option<Error>,
    waiting: usize,
}

impl Failures {
    pub(in crate::engine) fn keep(&self, error: &Error) {
        // From here on `idle` has it.
        error.note_told();
        let mut kept = lock(&self.0);
        if kept.oldest_first.len() < KEPT_MAX {
            kept.oldest_first.push_back(error.clone());
        } else {
            kept.lost += 1;
        }
    }

    /// Somebody begins to wait. Returns how many were told before that.
    pub(in crate::engine) fn begin_wait(&self) -> u64 {
        let mut kept = lock(&self.0);
        kept.waiting += 1;
        kept.told
    }

    /// Somebody waits no more.
    pub(in crate::engine) fn end_wait(&self) {
        let forgotten = {
            let mut kept = lock(&self.0);
            kept.waiting -= 1;
            if kept.waiting == 0 { kept.last.take() } else { None }
        };
        let _ = shielded(|| drop(forgotten));
    }

    /// Returns one that was told to another meanwhile, or else takes the oldest. `told` is what whoever asks
    /// has from `begin_wait`.
    pub(in crate::engine) fn tell(&self, told: &mut u64) -> Option<Error> {
        let (error, forgotten) = {
            let mut kept = lock(&self.0);
            if mem::replace(told, kept.told) < kept.told {
                return kept.last.clone();
            }
            let mut error = kept.oldest_first.pop_front()?;
            if kept.oldest_first.is_empty() && kept.lost > 0 {
                error = and_more(error, mem::take(&mut kept.lost));
            }
            kept.told += 1;
            *told = kept.told;
            let forgotten = kept.last.replace(error.clone());
            (error, forgotten)
        };
        let _ = shielded(|| drop(forgotten));
        Some(error)
    }
}

impl Drop for Failures {
    fn drop(&mut self) {
        // Foreign, each for itself: two that panic in one drop would end the process.
        let mut kept = lock(&self.0);
        let untold = kept.last.take().into_iter().chain(mem::take(&mut kept.oldest_first));
        untold.for_each(|error| _ = shielded(|| drop(error)));
    }
}

impl Untold for Failures {
    fn hear(&self, error: Error) {
        self.keep(&error);
    }
}

fn and_more(error: Error, more: u64) -> Error {
    let operation = error.node().unwrap_or("an operation").to_owned().into();
    Error::with_source(Kind::AndMoreFailed { operation, more, kept: KEPT_MAX }, Box::new(error))
}
