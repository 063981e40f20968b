//! What workers do for an engine.

use std::sync::Arc;

use super::hand::Hand;
use super::hub::Hub;
use crate::bridge::shielded;
use crate::device::host::{Alone, Queue, Shared, Ticket};
use crate::sync::Ordering;

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
