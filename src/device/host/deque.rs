//! The queue of tickets of one worker: its owner pushes and pops at the bottom, and thieves take from the
//! top. It is the deque of Chase and Lev with the orderings of Le, Pop, Cohen and Zappa Nardelli (PPoPP
//! 2013), of a fixed size: tickets that do not fit go to the pool's common queue.

use super::Ticket;
use crate::sync::{AtomicI64, AtomicU64, Line, Ordering, fence};

/// The deque. Only the thread that owns it calls `push` and `pop`; any thread calls `steal` and `is_empty`.
pub(crate) struct Deque {
    top: Line<AtomicI64>,
    bottom: Line<AtomicI64>,
    ring: Box<[AtomicU64]>,
}

impl Deque {
    /// A power of two. A ticket names a range of programs, so even a node with a million successors needs one
    /// entry.
    pub(crate) const CAPACITY: usize = if cfg!(anabranch_loom) { 4 } else { 512 };

    pub(crate) fn new() -> Self {
        Self {
            top: Line(AtomicI64::new(0)),
            bottom: Line(AtomicI64::new(0)),
            ring: (0..Self::CAPACITY).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Adds a ticket, or returns it if the ring is full.
    pub(crate) fn push(&self, ticket: Ticket) -> Result<(), Ticket> {
        // ORDERING: Relaxed: only the owner writes `bottom`.
        let bottom = self.bottom.0.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with the thieves' exchange of `top`: the thief has read the entry that is
        // overwritten here.
        let top = self.top.0.load(Ordering::Acquire);
        if bottom - top >= Self::CAPACITY as i64 {
            return Err(ticket);
        }
        // ORDERING: Relaxed: the store of `bottom` publishes it.
        self.entry(bottom).store(ticket.to_bits(), Ordering::Relaxed);
        // ORDERING: Release publishes the entry, and the program's state behind it, to the Acquire in
        // `steal`.
        self.bottom.0.store(bottom + 1, Ordering::Release);
        Ok(())
    }

    /// Takes the ticket that was pushed last.
    pub(crate) fn pop(&self) -> Option<Ticket> {
        // ORDERING: Relaxed: only the owner writes `bottom`.
        let bottom = self.bottom.0.load(Ordering::Relaxed) - 1;
        // Only the owner adds tickets, so an empty deque is known without a fence.
        // ORDERING: Relaxed: `top` only grows, so an old value makes the deque look longer, never empty.
        if self.top.0.load(Ordering::Relaxed) > bottom {
            return None;
        }
        // ORDERING: Release pairs with the Acquire in `steal`. A thief that reads this store takes an entry
        // further up, which an earlier push wrote.
        self.bottom.0.store(bottom, Ordering::Release);
        // ORDERING: SeqCst pairs with the fence in `steal`: the thief sees the lowered bottom, or the owner
        // sees the raised top. The fence orders the Relaxed accesses of this function.
        fence(Ordering::SeqCst);
        let top = self.top.0.load(Ordering::Relaxed);
        if top > bottom {
            self.bottom.0.store(bottom + 1, Ordering::Relaxed);
            return None;
        }
        let ticket = Ticket::from_bits(self.entry(bottom).load(Ordering::Relaxed));
        if top < bottom {
            return Some(ticket);
        }
        // The owner and the thieves race for the last entry.
        // ORDERING: SeqCst pairs with the exchange in `steal`: one of the two comes first, and the other
        // fails.
        let is_ours = self.top.0.compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        self.bottom.0.store(bottom + 1, Ordering::Relaxed);
        is_ours.then_some(ticket)
    }

    /// Takes the ticket that was pushed first. Also returns None if another thief was faster.
    pub(crate) fn steal(&self) -> Option<Ticket> {
        // ORDERING: Acquire and the SeqCst fence pair with the fence in `pop`: the owner sees the raised top,
        // or this thief sees the lowered bottom.
        let top = self.top.0.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        // ORDERING: Acquire pairs with the Release in `push`.
        let bottom = self.bottom.0.load(Ordering::Acquire);
        if top >= bottom {
            return None;
        }
        let ticket = Ticket::from_bits(self.entry(top).load(Ordering::Relaxed));
        self.top.0.compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed).ok().map(|_| ticket)
    }

    /// Returns true if there was no ticket at the time of the call.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: Relaxed: the answer may be old. Before a worker sleeps, the barrier orders this check.
        self.top.0.load(Ordering::Relaxed) >= self.bottom.0.load(Ordering::Relaxed)
    }

    fn entry(&self, index: i64) -> &AtomicU64 {
        &self.ring[index as usize & (Self::CAPACITY - 1)]
    }
}
