//! The stalls of streams that a fault has stopped.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::lock;

/// The pause between two checks of a stopped stream whether its wait still has a purpose.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Tickets {
    issued: u64,
    /// Stalls up to this ticket are released.
    released: u64,
    stopped: u64,
}

/// The stalls of one device. A stall is numbered when its operation is issued, so it can be released before
/// the stream reaches it.
#[derive(Default)]
pub(crate) struct Stalls {
    tickets: Mutex<Tickets>,
    moved: Condvar,
}

impl Stalls {
    pub(crate) fn issue(&self) -> u64 {
        let mut tickets = lock(&self.tickets);
        tickets.issued += 1;
        tickets.issued
    }

    pub(crate) fn release(&self) {
        let mut tickets = lock(&self.tickets);
        tickets.released = tickets.issued;
        self.moved.notify_all();
    }

    pub(crate) fn release_first(&self) {
        let mut tickets = lock(&self.tickets);
        tickets.released = tickets.issued.min(tickets.released + 1);
        self.moved.notify_all();
    }

    /// Returns the number of stopped streams.
    pub(crate) fn stopped(&self) -> u64 {
        lock(&self.tickets).stopped
    }

    /// Blocks until the stall is released. Returns false if the wait lost its purpose before.
    pub(crate) fn wait(&self, ticket: u64, is_pointless: impl Fn() -> bool) -> bool {
        let mut tickets = lock(&self.tickets);
        tickets.stopped += 1;
        while tickets.released < ticket && !is_pointless() {
            tickets = self.moved.wait_timeout(tickets, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
        tickets.stopped -= 1;
        tickets.released >= ticket
    }
}

/// Waits for the time, or until the wait has no purpose.
pub(crate) fn delay(time: Duration, is_pointless: impl Fn() -> bool) {
    let end = Instant::now() + time;
    while !is_pointless() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK_AGAIN));
    }
}
