//! Where streams stand that a fault has stopped.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::lock;

/// How often a stopped stream looks whether its context is still worth waiting for.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Tickets {
    issued: u64,
    /// Stalls up to this ticket are over.
    released: u64,
    stopped: u64,
}

/// The stalls of one device. One is numbered when its operation is issued, so releasing it works before the
/// stream gets there.
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

    /// Returns how many streams stand still.
    pub(crate) fn stopped(&self) -> u64 {
        lock(&self.tickets).stopped
    }

    /// Blocks until the stall is released. Returns false if it became pointless before.
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

/// Waits that long, or until it is pointless.
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
