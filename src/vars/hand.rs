//! What a thread holds while it enters and leaves queues: what it has made ready and free on the way, to be passed on afterwards.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::hub::Hub;
use super::queue::{Request, RequestId, Requests};
use super::slots::Slot;
use crate::sync::Ordering;

/// What a thread has made ready and free, and has not passed on yet.
pub(super) struct Hand<'h> {
    hub: &'h Hub,
    pub(super) ready: RefCell<SmallVec<[u32; 4]>>,
    pub(super) freed: RefCell<SmallVec<[u32; 4]>>,
}

impl<'h> Hand<'h> {
    pub(super) fn new(hub: &'h Hub) -> Self {
        Self { hub, ready: RefCell::default(), freed: RefCell::default() }
    }

    #[inline]
    pub(super) fn release_hold(&self, number: u32) {
        // ORDERING: AcqRel: who runs it sees what all its requests hand over.
        if self.hub.slots.get(number).holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ready.borrow_mut().push(number);
        }
    }

    pub(super) fn release_looks(&self, number: u32, looks: u32) {
        let slot: &Slot = self.hub.slots.get(number);
        // ORDERING: AcqRel: the slot is used again when all others are done with it.
        if slot.looks.fetch_sub(looks, Ordering::AcqRel) == looks {
            // SAFETY: nobody looks at it any more.
            unsafe { slot.clear() };
            self.freed.borrow_mut().push(number);
        }
    }

    /// Returns the operation that this thread goes on with: the first that it made ready.
    pub(super) fn next_own(&self) -> Option<u32> {
        let mut ready = self.ready.borrow_mut();
        (!ready.is_empty()).then(|| ready.remove(0))
    }

    pub(super) fn give_back(&self) {
        let freed = self.freed.take();
        if !freed.is_empty() {
            self.hub.give_back(freed);
        }
    }
}

impl Requests for Hand<'_> {
    fn request(&self, id: RequestId) -> &Request {
        // SAFETY: it stands in a queue, so its operation is there.
        &unsafe { self.hub.slots.get(id.operation()).job() }.asked[id.number()].request
    }

    fn granted(&self, id: RequestId) {
        self.release_hold(id.operation());
    }

    fn done_with(&self, id: RequestId) {
        self.release_looks(id.operation(), 1);
    }
}
