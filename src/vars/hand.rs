//! What a thread holds while it enters and leaves queues: what it has made ready and free on the way, to be passed on afterwards.

use std::cell::{Cell, RefCell};

use smallvec::SmallVec;

use super::hub::Hub;
use super::queue::{Request, RequestId, Requests};
use super::slots::Slot;
use crate::sync::{AtomicU32, Ordering};

/// What a thread has made ready and free, and has not passed on yet.
pub(super) struct Hand<'h> {
    hub: &'h Hub,
    pub(super) ready: RefCell<SmallVec<[u32; 4]>>,
    pub(super) freed: RefCell<SmallVec<[u32; 4]>>,
    /// The operation that this thread has enter its queues, or leave them, and how many of its requests were granted on the way, or are done with: to be counted together.
    own: Cell<(u32, u32)>,
}

/// No operation.
const NONE: u32 = u32::MAX;

impl<'h> Hand<'h> {
    pub(super) fn new(hub: &'h Hub) -> Self {
        Self { hub, ready: RefCell::default(), freed: RefCell::default(), own: Cell::new((NONE, 0)) }
    }

    /// Does what has that operation's requests granted, or done with, and returns how many of them were by that.
    #[inline]
    pub(super) fn count_own(&self, number: u32, act: impl FnOnce()) -> u32 {
        self.own.set((number, 0));
        act();
        self.own.replace((NONE, 0)).1
    }

    /// Returns true if it is one of those that are counted together.
    #[inline]
    fn is_counted(&self, number: u32) -> bool {
        let (own, count) = self.own.get();
        if own == number {
            self.own.set((own, count + 1));
        }
        own == number
    }

    #[inline]
    pub(super) fn release_holds(&self, number: u32, holds: u32) {
        if release(&self.hub.slots.get(number).holds, holds) {
            self.ready.borrow_mut().push(number);
        }
    }

    #[inline]
    pub(super) fn release_looks(&self, number: u32, looks: u32) {
        let slot: &Slot = self.hub.slots.get(number);
        if release(&slot.looks, looks) {
            // SAFETY: nobody looks at it any more.
            unsafe { slot.clear() };
            self.freed.borrow_mut().push(number);
        }
    }

    /// Returns the operation that this thread goes on with: the first that it made ready of the highest priority.
    #[inline]
    pub(super) fn next_own(&self) -> Option<u32> {
        let mut ready = self.ready.borrow_mut();
        if ready.len() < 2 {
            return ready.pop();
        }
        // SAFETY: they are ready, and nobody has begun them.
        let priority = |&number: &u32| unsafe { self.hub.slots.get(number).job() }.priority;
        let highest = ready.iter().map(priority).max()?;
        let first = ready.iter().position(|number| priority(number) == highest)?;
        Some(ready.remove(first))
    }

    pub(super) fn give_back(&self) {
        if !self.freed.borrow().is_empty() {
            let freed = self.freed.take();
            self.hub.give_back(&freed);
        }
    }
}

impl Requests for Hand<'_> {
    fn request(&self, id: RequestId) -> &Request {
        // SAFETY: it stands in a queue, so its operation is there.
        &unsafe { self.hub.slots.get(id.operation()).job() }.asked[id.number()].request
    }

    fn granted(&self, id: RequestId) {
        if !self.is_counted(id.operation()) {
            self.release_holds(id.operation(), 1);
        }
    }

    fn done_with(&self, id: RequestId) {
        if !self.is_counted(id.operation()) {
            self.release_looks(id.operation(), 1);
        }
    }
}

/// Gives up so many of a count. Returns true if these were the last.
#[inline]
fn release(count: &AtomicU32, of_it: u32) -> bool {
    // ORDERING: Acquire and AcqRel: who gives up the last sees what all others have done. If no others are left then nobody else changes it.
    count.load(Ordering::Acquire) == of_it || count.fetch_sub(of_it, Ordering::AcqRel) == of_it
}
