//! What workers do for an engine.

use std::sync::Arc;

use super::hand::Hand;
use super::hub::Hub;
use crate::device::host::{Alone, Queue, Shared, Ticket};
use crate::error::shielded;
use crate::sync::{Ordering, lock, spin_loop};

/// How often an idle worker checks for new operations before it leaves, and the spins between two checks:
/// some microseconds in all. A push in that time need not call the worker, and gets ahead of it, so that
/// dependent operations run in a row.
const LOOKS: u32 = if cfg!(anabranch_loom) { 0 } else { 8 };
const SPINS: u32 = 32;

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
    loop {
        match hub.next(&mut hand) {
            Some(number) => {
                // There is more than it takes itself: another may want to come.
                if !hub.ready.is_empty() && hub.active.0.load(Ordering::Relaxed) < hub.workers {
                    let _ = hub.call_workers();
                }
                hub.run(number, &mut hand);
            }
            None => {
                hand.give_back();
                if hub.look_again() {
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

    /// Checks for a while whether more becomes ready.
    fn look_again(&self) -> bool {
        // ORDERING: Relaxed: who does not see it calls a worker for nothing.
        self.looking.0.fetch_add(1, Ordering::Relaxed);
        let found = (0..LOOKS).any(|_| {
            (0..SPINS).for_each(|_| spin_loop());
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
