//! The operations that a thread has made ready, and the slots that it has freed. It collects both while it
//! enters and leaves queues, and passes them on afterwards.

use std::task::Waker;

use smallvec::SmallVec;

use super::queue::{Request, RequestId, Requests};
use super::slots::{LEFT, Slot, Slots, Wakes, spot};
use super::tokens::{Entering, Grant, Left, Runnable};
use super::variable::Variable;
use crate::error::shielded;
use crate::sync::{AtomicU32, Ordering};

/// The most freed slots that a thread keeps.
pub(crate) const FREED_MAX: usize = 32;

pub(crate) struct Batch<'s> {
    slots: &'s Slots,
    pub(crate) ready: SmallVec<[Runnable; 4]>,
    freed: SmallVec<[u32; FREED_MAX]>,
    /// The operation whose queues this thread enters or leaves, or [`NONE`].
    own: u32,
    /// The number of its requests that were granted or released on the way. They are counted together.
    own_count: u32,
    /// Whether wakers are left to this batch's owner, and the one that is.
    leaves_waker: bool,
    waker: Option<Waker>,
}

const NONE: u32 = u32::MAX;

impl<'s> Batch<'s> {
    #[inline]
    pub(crate) fn new(slots: &'s Slots) -> Self {
        let (ready, freed) = (SmallVec::new(), SmallVec::new());
        Self { slots, ready, freed, own: NONE, own_count: 0, leaves_waker: false, waker: None }
    }

    /// Returns the same batch, whose owner calls [`Batch::take_waker`] after each operation.
    #[must_use]
    pub(crate) fn leaving_waker(self) -> Self {
        Self { leaves_waker: true, ..self }
    }

    /// Wakes the task that awaits an operation, or leaves that to the owner.
    pub(crate) fn wake(&mut self, waker: Waker) {
        if self.leaves_waker && self.waker.is_none() {
            self.waker = Some(waker);
        } else {
            let _ = shielded(|| waker.wake());
        }
    }

    #[inline]
    #[must_use]
    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Calls the waker that is left to the owner.
    pub(crate) fn wake_left(&mut self) {
        if let Some(waker) = self.take_waker() {
            let _ = shielded(|| waker.wake());
        }
    }

    /// Enters an operation into the queues of its variables. No other thread enters one meanwhile.
    #[inline(always)]
    pub(crate) fn enter(&mut self, entering: Entering) {
        let (number, slot) = (entering.0.number, self.slots.slot(entering.0));
        // SAFETY: the `Entering` is for the operation in the slot, which ends only after the last hold is
        // released, below.
        let operation = unsafe { slot.operation() };
        let requests = operation.accesses.len() as u32;
        // An operation with one request cannot be half in its queues.
        let own = u32::from(requests != 1);
        // ORDERING: Relaxed: the queues publish it. Release pairs with the Acquire in `Slots::see`: an
        // inspection sees the operation, too.
        slot.holds.store(requests + own, Ordering::Relaxed);
        slot.refs.store(requests + 1, Ordering::Release);
        self.begin_count(number);
        for (place, access) in operation.accesses.iter().enumerate() {
            // SAFETY: the pushing thread has handles to the variables, or the operations that free them are
            // behind this one.
            let variable = unsafe { access.variable() };
            variable.queue.enter(RequestId::new(number, place), &access.request, self);
        }
        let granted = self.end_count();
        if granted + own > 0 {
            self.release_holds(number, slot, granted + own);
        }
    }

    /// Takes an operation out of the queues of its variables. Their memory may be freed then.
    #[inline(always)]
    pub(crate) fn leave(&mut self, operation: Runnable) -> Left {
        let number = operation.number();
        let slot = self.slots.slot(operation.0);
        // SAFETY: the operation stays in its slot until `end` takes the `Left` that this returns.
        let left = unsafe { slot.operation() };
        // For an inspection: the variables may be freed from here on.
        // ORDERING: Relaxed: the changes of the queues, below, order it before the grants of the next
        // requests.
        slot.holds.store(LEFT, Ordering::Relaxed);
        self.begin_count(number);
        for (place, access) in left.accesses.iter().enumerate() {
            // SAFETY: this request has not left, so the variable is alive.
            let variable = unsafe { access.variable() };
            variable.queue.leave(RequestId::new(number, place), &access.request, self);
        }
        let released = self.end_count();
        operation.into_left(1 + released)
    }

    /// Marks an operation as left that has freed its only variable, and the queue with it.
    pub(crate) fn leave_freed(&mut self, operation: Runnable) -> Left {
        operation.into_left(2)
    }

    /// Ends an operation. Its slot is free when no thread looks at its requests any more.
    #[inline]
    pub(crate) fn end(&mut self, operation: Left) {
        self.release_refs(operation.number(), self.slots.slot(operation.spot()), operation.refs);
    }

    /// Calls `look` if no pending operation uses the variable, and returns its result.
    pub(crate) fn glance<R>(&mut self, variable: &Variable, look: impl FnOnce(Grant<'_>) -> R) -> Option<R> {
        // SAFETY: the queue counts `look` as a granted reader of the variable, and it reads no other.
        variable.queue.glance(self, || look(unsafe { Grant::new() }))
    }

    /// Begins to count the granted and released requests of an operation.
    #[inline]
    fn begin_count(&mut self, number: u32) {
        (self.own, self.own_count) = (number, 0);
    }

    #[inline]
    fn end_count(&mut self) -> u32 {
        self.own = NONE;
        self.own_count
    }

    #[inline]
    fn count_if_own(&mut self, number: u32) -> bool {
        let is_own = self.own == number;
        self.own_count += u32::from(is_own);
        is_own
    }

    #[inline]
    fn release_holds(&mut self, number: u32, slot: &Slot, holds: u32) {
        if release(&slot.holds, holds) {
            self.ready.push(Runnable(spot(number, slot)));
        }
    }

    #[inline]
    fn release_refs(&mut self, number: u32, slot: &Slot, refs: u32) {
        if release(&slot.refs, refs) {
            // For an inspection: the operation is cleared from here on.
            // ORDERING: Relaxed: the barrier in `pass` orders it before the load of `is_on`.
            slot.refs.store(0, Ordering::Relaxed);
            self.slots.inspection.pass();
            // SAFETY: `release` took the last ref, so no other thread looks at the operation; `pass` has
            // waited for inspections.
            unsafe { slot.clear() };
            self.freed.push(number);
        }
    }

    /// Returns the operation that this thread continues with: of those that it made ready, the first one of
    /// the highest priority.
    #[inline]
    pub(crate) fn next_own(&mut self) -> Option<Runnable> {
        if self.ready.len() < 2 { self.ready.pop() } else { self.choose() }
    }

    fn choose(&mut self) -> Option<Runnable> {
        // SAFETY: the batch has the operations' `Runnable`s, so they stay in their slots.
        let priority = |ready: &Runnable| unsafe { self.slots.slot(ready.0).operation() }.priority;
        let highest = self.ready.iter().map(priority).max()?;
        let first = self.ready.iter().position(|ready| priority(ready) == highest)?;
        Some(self.ready.remove(first))
    }

    /// Returns the number of freed slots.
    #[inline]
    pub(crate) fn freed(&self) -> usize {
        self.freed.len()
    }

    /// Gives the freed slots back.
    #[inline]
    pub(crate) fn give_back(&mut self) -> Option<Wakes> {
        (!self.freed.is_empty()).then(|| {
            let wakes = self.slots.give_back(&self.freed);
            self.freed.clear();
            wakes
        })
    }
}

impl Requests for Batch<'_> {
    fn request(&self, id: RequestId) -> &Request {
        // SAFETY: the request is in a queue, so its operation has a ref left, and stays in its slot.
        let operation = unsafe { self.slots.get(id.operation()).operation() };
        &operation.accesses[id.number()].request
    }

    fn granted(&mut self, id: RequestId) {
        if !self.count_if_own(id.operation()) {
            self.release_holds(id.operation(), self.slots.get(id.operation()), 1);
        }
    }

    fn done_with(&mut self, id: RequestId) {
        if !self.count_if_own(id.operation()) {
            self.release_refs(id.operation(), self.slots.get(id.operation()), 1);
        }
    }
}

/// Subtracts from a count. Returns true if nothing is left of it.
///
/// ```text
///  count      count after    then
///  by         by             true: no other thread has a share, so none changes the count
///  n > by     n - by         false
///  by (now)   0              true: others have released theirs since the load
/// ```
#[inline]
fn release(count: &AtomicU32, by: u32) -> bool {
    // ORDERING: Acquire and AcqRel pair with each other: the thread that releases the last share sees what
    // all others did before.
    count.load(Ordering::Acquire) == by || count.fetch_sub(by, Ordering::AcqRel) == by
}
