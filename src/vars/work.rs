//! What workers do for an engine.

use std::sync::Arc;

use super::hand::Hand;
use super::hub::Hub;
use crate::bridge::shielded;
use crate::device::host::{Alone, Queue, Shared, Ticket};
use crate::sync::{Ordering, lock, spin_loop, yield_now};

/// How often a worker that has found nothing looks again before it goes, and the pause before each look: about a microsecond. Who pushes then need not call it, and gets ahead of it, so that
/// what depends on each other is run in a row.
const LOOKS: u32 = if cfg!(anabranch_loom) { 0 } else { 8 };
const PAUSE: u32 = 32;
/// How many operations a pause must have brought for the next to be twice as long, and how many pauses it takes at most.
const PAUSE_BRINGS: u32 = 3;
const PAUSES_MAX: u32 = 8;

/// # Safety
/// `hub` is what the ticket was made for.
pub(super) unsafe fn work_shared(hub: *const (), ticket: Ticket, queue: &mut Shared<'_>) {
    // SAFETY: by the caller's promise.
    unsafe { work(hub, ticket, queue) }
}

/// # Safety
/// As `work_shared`.
pub(super) unsafe fn work_alone(hub: *const (), ticket: Ticket, queue: &mut Alone<'_>) {
    // SAFETY: by the caller's promise.
    unsafe { work(hub, ticket, queue) }
}

/// A worker's turn: runs what is ready until nothing is, or until others want the worker.
///
/// # Safety
/// As `work_shared`.
unsafe fn work<'q, Q: Queue<'q>>(hub: *const (), ticket: Ticket, queue: &mut Q) {
    // SAFETY: the ticket has a count, which this takes over.
    let hub: Arc<Hub> = unsafe { Arc::from_raw(hub.cast()) };
    let mut hand = Hand::new(&hub);
    let mut pace = Pace::new();
    loop {
        match hub.next(&mut hand) {
            Some(number) => {
                // There is more than it takes itself: another may want to come.
                if !hub.ready.is_empty() && hub.active.0.load(Ordering::Relaxed) < hub.workers {
                    let _ = hub.call_workers();
                }
                pace.ran += 1;
                hub.run(number, &mut hand);
            }
            None => {
                hand.give_back();
                if hub.look_again(pace.next_pauses()) {
                    continue;
                }
                hub.active.0.fetch_sub(1, Ordering::SeqCst);
                if hub.ready.is_still_empty() || !hub.activate_again() {
                    break;
                }
            }
        }
        if !queue.has_fuel() {
            hand.pass_on();
            hand.give_back();
            drop(hand);
            std::mem::forget(hub);
            return queue.defer(ticket);
        }
    }
    hub.leave_if_over();
    drop(hand);
    // Perhaps the last count: what it drops then is foreign.
    let _ = shielded(|| drop(hub));
}

/// How long a worker waits before it looks for more. Where operations come in a stream, it lets some gather: right behind each other, who pushes and who runs take the same cache lines from each
/// other with each operation, and both together take as long as one after the other.
struct Pace {
    pauses: u32,
    /// Operations since the last pause.
    ran: u32,
}

impl Pace {
    fn new() -> Self {
        Self { pauses: 1, ran: 0 }
    }

    fn next_pauses(&mut self) -> u32 {
        let is_stream = std::mem::take(&mut self.ran) >= PAUSE_BRINGS * self.pauses;
        self.pauses = if is_stream { (2 * self.pauses).min(PAUSES_MAX) } else { 1 };
        self.pauses
    }
}

fn pause(pauses: u32) {
    for number in 0..pauses {
        if number > 0 {
            // Who pushes may want this core.
            yield_now();
        }
        (0..PAUSE).for_each(|_| spin_loop());
    }
}

impl Hub {
    /// Sees to it that a worker comes for what was made ready. Returns false if there are none any more.
    pub(super) fn call_workers(self: &Arc<Self>) -> bool {
        // ORDERING: Relaxed: see `Ready::is_still_empty`.
        if self.looking.0.load(Ordering::Relaxed) > 0 || self.active.0.load(Ordering::Relaxed) >= self.workers {
            return true;
        }
        let room = lock(&self.room);
        let Some(room) = &*room else { return false };
        if self.try_activate() {
            std::mem::forget(self.clone());
            room.call_worker();
        }
        true
    }

    /// Looks for a while whether more becomes ready, the first time after so many pauses.
    fn look_again(&self, pauses: u32) -> bool {
        // ORDERING: Relaxed: who does not see it calls a worker for nothing.
        self.looking.0.fetch_add(1, Ordering::Relaxed);
        let found = (0..LOOKS).any(|look| {
            pause(if look == 0 { pauses } else { 1 });
            !self.ready.is_empty()
        });
        // ORDERING: Release: whoever still saw it has pushed before, and the look behind `active` finds that.
        self.looking.0.fetch_sub(1, Ordering::Release);
        found
    }

    /// The same for a worker that has just let go of its ticket, and was the last in the engine perhaps.
    pub(super) fn activate_again(&self) -> bool {
        let room = lock(&self.room);
        room.is_some() && self.try_activate()
    }

    fn try_activate(&self) -> bool {
        let more = |active| (active < self.workers).then_some(active + 1);
        // ORDERING: SeqCst: as in `leave_if_over`.
        self.active.0.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail with a pause that stays long, and with one that counts what came before the last.
    #[test]
    fn a_worker_lets_a_stream_gather_and_nothing_else() {
        let mut pace = Pace::new();
        let mut pauses = |ran: u32| {
            pace.ran += ran;
            pace.next_pauses()
        };
        assert_eq!([1, 2, 3, 6, 12, 24, 23, 2, 3].map(&mut pauses), [1, 1, 2, 4, 8, 8, 1, 1, 2]);
    }
}
