//! One worker's queue of tickets: its owner pushes and pops at the bottom, thieves take from the top. Chase
//! and Lev's deque with the orderings of Le, Pop, Cohen and Zappa Nardelli (PPoPP 2013), of a fixed size:
//! what does not fit goes to the pool's common queue.

use super::Ticket;
use crate::sync::{AtomicI64, AtomicU64, Line, Ordering, fence};

/// The deque. `push` and `pop` belong to the one thread that owns it; `steal` and `is_empty` are for
/// everyone.
pub(crate) struct Deque {
    top: Line<AtomicI64>,
    bottom: Line<AtomicI64>,
    ring: Box<[AtomicU64]>,
}

impl Deque {
    /// A power of two. Tickets name ranges of programs, so even a node with a million successors needs one
    /// entry.
    pub(crate) const CAPACITY: usize = if cfg!(anabranch_loom) { 4 } else { 512 };

    pub(crate) fn new() -> Self {
        Self {
            top: Line(AtomicI64::new(0)),
            bottom: Line(AtomicI64::new(0)),
            ring: (0..Self::CAPACITY).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Adds a ticket; gives it back when the ring is full.
    pub(crate) fn push(&self, ticket: Ticket) -> Result<(), Ticket> {
        // ORDERING: Relaxed: only the owner writes `bottom`.
        let bottom = self.bottom.0.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with the thieves' exchange of `top`: the entry to be overwritten has been
        // read.
        let top = self.top.0.load(Ordering::Acquire);
        if bottom - top >= Self::CAPACITY as i64 {
            return Err(ticket);
        }
        // ORDERING: Relaxed: published by the store of `bottom`.
        self.entry(bottom).store(ticket.to_bits(), Ordering::Relaxed);
        // ORDERING: Release publishes the entry, and the program's state behind it, to the Acquire in
        // `steal`.
        self.bottom.0.store(bottom + 1, Ordering::Release);
        Ok(())
    }

    /// Takes the ticket that was pushed last.
    pub(crate) fn pop(&self) -> Option<Ticket> {
        let bottom = self.bottom.0.load(Ordering::Relaxed) - 1;
        // Only the owner adds, so an empty deque is known without a fence.
        if self.top.0.load(Ordering::Relaxed) > bottom {
            return None;
        }
        // ORDERING: Release, as in `push`: a thief may read this store, and then takes an entry further up
        // that an earlier push wrote.
        self.bottom.0.store(bottom, Ordering::Release);
        // ORDERING: pairs with the fence in `steal`: either the thief sees the lowered bottom, or the owner
        // the raised top.
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
        // The last entry: race the thieves for it.
        // ORDERING: SeqCst, as the thieves': one of the two exchanges comes first, and the other fails.
        let is_ours = self.top.0.compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        self.bottom.0.store(bottom + 1, Ordering::Relaxed);
        is_ours.then_some(ticket)
    }

    /// Takes the ticket that was pushed first. None also when another thief was faster.
    pub(crate) fn steal(&self) -> Option<Ticket> {
        // ORDERING: Acquire and the fence: see `pop`.
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

    /// Returns true if there was nothing to take just now.
    pub(crate) fn is_empty(&self) -> bool {
        self.top.0.load(Ordering::Relaxed) >= self.bottom.0.load(Ordering::Relaxed)
    }

    fn entry(&self, index: i64) -> &AtomicU64 {
        &self.ring[index as usize & (Self::CAPACITY - 1)]
    }
}
