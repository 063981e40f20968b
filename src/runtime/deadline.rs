//! Deadlines of runs and flows, which the tasks that await them keep.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Instant;

use futures_timer::Delay;

/// A moment, and the timer that wakes the task then.
pub(crate) struct Deadline {
    at: Instant,
    /// Made in the first poll: most runs that are made are polled, but some only in time.
    timer: Option<Delay>,
}

impl Deadline {
    pub(crate) fn new(at: Instant) -> Self {
        Self { at, timer: None }
    }

    /// Returns whether it has passed. If not, the task is woken when it does.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        let timer = self.timer.get_or_insert_with(|| Delay::new(left));
        Pin::new(timer).poll(cx).is_ready()
    }
}
