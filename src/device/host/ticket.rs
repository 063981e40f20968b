//! The entries of queues: "resume these programs of that run", in one word.

use std::task::Waker;

use crate::error::shielded;
use crate::sync::{AtomicU64, Ordering};

/// The right to resume `count` programs of one run, from `first` on. A program has at most one ticket at any
/// time, and only while its run is entered in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(u64);

const PROGRAM_BITS: u32 = 24;
const PROGRAM_MASK: u64 = (1 << PROGRAM_BITS) - 1;

impl Ticket {
    /// A run has at most as many programs as nodes, and a graph has at most 2^24 - 1 nodes.
    pub(crate) fn new(slot: u16, first: u32, count: u32) -> Self {
        debug_assert!(u64::from(first) < PROGRAM_MASK && u64::from(count) <= PROGRAM_MASK && count > 0);
        Self(u64::from(slot) << (2 * PROGRAM_BITS) | u64::from(count) << PROGRAM_BITS | u64::from(first))
    }

    pub(crate) fn slot(self) -> u16 {
        (self.0 >> (2 * PROGRAM_BITS)) as u16
    }

    pub(crate) fn first(self) -> u32 {
        (self.0 & PROGRAM_MASK) as u32
    }

    pub(crate) fn count(self) -> u32 {
        (self.0 >> PROGRAM_BITS & PROGRAM_MASK) as u32
    }

    /// Returns the first program, and a ticket for the rest if there is one.
    #[inline]
    pub(crate) fn split_first(self) -> (u32, Option<Ticket>) {
        // The rest begins one further, and its count is one less.
        (self.first(), (self.count() > 1).then_some(Ticket(self.0 + 1 - (1 << PROGRAM_BITS))))
    }

    /// Splits into tickets for one program each.
    pub(crate) fn singles(self) -> impl Iterator<Item = Ticket> {
        (0..self.count()).map(move |place| Self::new(self.slot(), self.first() + place, 1))
    }

    /// Splits into two halves, for a thief and its victim. A ticket for one program stays whole.
    pub(crate) fn halve(self) -> (Ticket, Option<Ticket>) {
        let count = self.count();
        if count == 1 {
            return (self, None);
        }
        let half = count / 2;
        (Ticket::new(self.slot(), self.first(), half), Some(Ticket::new(self.slot(), self.first() + half, count - half)))
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The common part of the tickets of one item: the slot, and the number of its first program. Each ticket
/// costs one addition.
#[derive(Clone, Copy)]
pub(crate) struct TicketOrigin(u64);

impl TicketOrigin {
    pub(crate) fn new(slot: u16, base: u32) -> Self {
        Self(u64::from(slot) << (2 * PROGRAM_BITS) | u64::from(base))
    }

    /// Returns the ticket of `count` programs from `first` on.
    #[inline(always)]
    pub(crate) fn plus(self, first: u32, count: u32) -> Ticket {
        Ticket(self.0 + (u64::from(count) << PROGRAM_BITS | u64::from(first)))
    }
}

/// The queue of ready programs, as seen by the code that runs programs. There are two kinds: one for programs
/// that several workers may run at once, and one for a single thread, which needs no read-modify-write
/// operations.
pub(crate) trait Queue<'q> {
    /// Whether other threads may run programs of the same run at the same time.
    const IS_SHARED: bool;
    /// Whether the order of programs is chosen, and the sanitizer checks it.
    const IS_CHOSEN: bool = false;

    /// Adds programs for this thread or another to resume.
    fn push(&mut self, ticket: Ticket);

    /// Adds a program that yields to other runs: it continues after them.
    fn defer(&mut self, ticket: Ticket);

    /// Takes a program from the newest of this thread's own tickets, if that ticket is for the run in `slot`.
    fn next_of(&mut self, slot: u16) -> Option<u32>;

    /// Returns the first program of a ticket, and pushes the rest.
    fn keep_first(&mut self, ticket: Ticket) -> u32;

    /// Returns the place where this thread records its current step.
    fn progress(&self) -> &'q Progress;

    /// Announces a step that may take much longer than earlier ones.
    fn expect_long(&mut self);

    /// Returns whether this thread may have other work than the program that it runs.
    fn has_others(&self) -> bool;

    /// Calls a waker, now or a few microseconds later. The caller has no other work. Before it runs anything
    /// else it must take the waker back, by [`Queue::take_left`].
    fn wake(&mut self, waker: Waker) {
        let _ = shielded(|| waker.wake());
    }

    /// Returns the waker of an earlier [`Queue::wake`] that was not called yet. A waker is foreign code: it
    /// may take long, or wait. So the caller must first put back all work that another worker could do.
    #[inline]
    #[must_use]
    fn take_left(&mut self) -> Option<Waker> {
        None
    }

    /// Calls the waker of an earlier [`Queue::wake`] that was not called yet.
    #[inline]
    fn wake_left(&mut self) {
        if let Some(waker) = self.take_left() {
            let _ = shielded(|| waker.wake());
        }
    }

    /// Called before each step. Returns true if the thread should continue; false if it must put its program
    /// back into the queue, because others wait.
    fn has_fuel(&mut self) -> bool;
}

/// The step of a run that a thread is at: all earlier steps of the same program are done. Each thread has a
/// cache line of its own for it, so recording a step costs a store to a line that no other thread writes.
pub(crate) struct Progress(AtomicU64);

impl Progress {
    const NOWHERE: u64 = u64::MAX;

    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Self::NOWHERE))
    }

    #[inline]
    pub(crate) fn set(&self, slot: u16, step: u32) {
        // ORDERING: Release publishes the steps before this one to the Acquire in `get`.
        self.0.store(u64::from(slot) << 32 | u64::from(step), Ordering::Release);
    }

    #[inline]
    pub(crate) fn leave(&self) {
        // ORDERING: Release pairs with the Acquire in `get`: a thread that sees the store sees the place
        // where the program was left.
        self.0.store(Self::NOWHERE, Ordering::Release);
    }

    /// Returns true if this thread, the owner, is at a step.
    pub(crate) fn is_at_a_step(&self) -> bool {
        // ORDERING: Relaxed: this thread stored the value.
        self.0.load(Ordering::Relaxed) != Self::NOWHERE
    }

    /// Returns the step of the owner, if it runs a program of the run in `slot`.
    pub(crate) fn get(&self, slot: u16) -> Option<u32> {
        // ORDERING: Acquire pairs with the Release in `set`.
        let word = self.0.load(Ordering::Acquire);
        (word != Self::NOWHERE && (word >> 32) as u16 == slot).then_some(word as u32)
    }
}
