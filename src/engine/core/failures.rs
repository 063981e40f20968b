//! Failures that only `idle` reports: of operations that write nothing, of destructors, and those that no
//! handle and no read can report any more. Waits that overlap report the same failure.

use std::collections::VecDeque;
use std::mem;

use crate::error::shielded;
use crate::error::{Error, Kind, Listener};
use crate::sync::{Mutex, lock};

/// The number of failures that are kept.
const KEPT_MAX: usize = 1024;

#[derive(Default)]
pub(in crate::engine) struct Failures(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    oldest_first: VecDeque<Error>,
    /// The number of later failures that there was no room for.
    lost: u64,
    /// The number of failures reported so far.
    reported: u64,
    /// The last failure reported, as long as there are waits that may still return it.
    last: Option<Error>,
    waiting: usize,
}

impl Failures {
    pub(in crate::engine) fn keep(&self, error: &Error) {
        // `idle` will report it, so the drop of its last clone must not.
        error.note_reported();
        let mut kept = lock(&self.0);
        if kept.oldest_first.len() < KEPT_MAX {
            kept.oldest_first.push_back(error.clone());
        } else {
            kept.lost += 1;
        }
    }

    /// Begins a wait. Returns the number of failures reported before it.
    pub(in crate::engine) fn begin_wait(&self) -> u64 {
        let mut kept = lock(&self.0);
        kept.waiting += 1;
        kept.reported
    }

    pub(in crate::engine) fn end_wait(&self) {
        let forgotten = {
            let mut kept = lock(&self.0);
            kept.waiting -= 1;
            if kept.waiting == 0 { kept.last.take() } else { None }
        };
        let _ = shielded(|| drop(forgotten));
    }

    /// Returns the failure that another wait has reported since this one began. If there is none, takes the
    /// oldest failure. `reported` is the number that `begin_wait` returned.
    pub(in crate::engine) fn next(&self, reported: &mut u64) -> Option<Error> {
        let (error, forgotten) = {
            let mut kept = lock(&self.0);
            if mem::replace(reported, kept.reported) < kept.reported {
                return kept.last.clone();
            }
            let mut error = kept.oldest_first.pop_front()?;
            if kept.oldest_first.is_empty() && kept.lost > 0 {
                error = and_more(error, mem::take(&mut kept.lost));
            }
            kept.reported += 1;
            *reported = kept.reported;
            let forgotten = kept.last.replace(error.clone());
            (error, forgotten)
        };
        let _ = shielded(|| drop(forgotten));
        Some(error)
    }
}

impl Drop for Failures {
    fn drop(&mut self) {
        // Foreign, and dropped one by one: two panics in one drop would abort the process.
        let mut kept = lock(&self.0);
        let unreported = kept.last.take().into_iter().chain(mem::take(&mut kept.oldest_first));
        unreported.for_each(|error| _ = shielded(|| drop(error)));
    }
}

impl Listener for Failures {
    fn take(&self, error: Error) {
        self.keep(&error);
    }
}

fn and_more(error: Error, more: u64) -> Error {
    let operation = error.node().unwrap_or("an operation").to_owned().into();
    Error::with_source(Kind::AndMoreFailed { operation, more, kept: KEPT_MAX }, Box::new(error))
}
