//! What a thread holds while it enters and leaves queues: what it has made ready and free on the way, to be
//! passed on afterwards.

use smallvec::SmallVec;

use super::hub::{FREED_MAX, Hub};
use super::queue::{Request, RequestId, Requests};
use super::slots::Spot;
use crate::sync::{AtomicU32, Ordering};

/// What a thread has made ready and free, and has not passed on yet.
pub(super) struct Hand<'h> {
    hub: &'h Hub,
    pub(super) ready: SmallVec<[u32; 4]>,
    pub(super) freed: SmallVec<[u32; FREED_MAX]>,
    /// The operation that this thread has enter its queues, or leave them.
    own: u32,
    /// How many of that one's requests were granted on the way, or are done with: to be counted together.
    own_count: u32,
}

/// No operation.
const NONE: u32 = u32::MAX;

impl<'h> Hand<'h> {
    #[inline]
    pub(super) fn new(hub: &'h Hub) -> Self {
        Self { hub, ready: SmallVec::new(), freed: SmallVec::new(), own: NONE, own_count: 0 }
    }

    /// From here on requests of that operation are counted that are granted, or done with.
    #[inline]
    pub(super) fn begin_count(&mut self, number: u32) {
        (self.own, self.own_count) = (number, 0);
    }

    /// Returns how many there were.
    #[inline]
    pub(super) fn end_count(&mut self) -> u32 {
        self.own = NONE;
        self.own_count
    }

    /// Returns true if it is one of those that are counted together.
    #[inline]
    fn is_counted(&mut self, number: u32) -> bool {
        let is_own = self.own == number;
        self.own_count += u32::from(is_own);
        is_own
    }

    #[inline]
    pub(super) fn release_holds(&mut self, spot: Spot<'_>, holds: u32) {
        if release(&spot.slot.holds, holds) {
            self.ready.push(spot.number);
        }
    }

    #[inline]
    pub(super) fn release_looks(&mut self, spot: Spot<'_>, looks: u32) {
        if release(&spot.slot.looks, looks) {
            // SAFETY: nobody looks at it any more.
            unsafe { spot.slot.clear() };
            self.freed.push(spot.number);
        }
    }

    /// Returns the operation that this thread goes on with: the first that it made ready of the highest
    /// priority.
    #[inline]
    pub(super) fn next_own(&mut self) -> Option<u32> {
        if self.ready.len() < 2 { self.ready.pop() } else { self.choose() }
    }

    fn choose(&mut self) -> Option<u32> {
        // SAFETY: they are ready, and nobody has begun them.
        let priority = |&number: &u32| unsafe { self.hub.slots.get(number).job() }.priority;
        let highest = self.ready.iter().map(priority).max()?;
        let first = self.ready.iter().position(|number| priority(number) == highest)?;
        Some(self.ready.remove(first))
    }

    /// Leaves to others what it has made ready.
    pub(super) fn pass_on(&mut self) {
        self.ready.drain(..).for_each(|number| self.hub.add_ready(number));
    }

    #[inline]
    pub(super) fn give_back(&mut self) {
        if !self.freed.is_empty() {
            self.hub.give_back(&self.freed);
            self.freed.clear();
        }
    }
}

impl Requests for Hand<'_> {
    fn request(&self, id: RequestId) -> &Request {
        // SAFETY: it stands in a queue, so its operation is there.
        &unsafe { self.hub.slots.get(id.operation()).job() }.asked[id.number()].request
    }

    fn granted(&mut self, id: RequestId) {
        if !self.is_counted(id.operation()) {
            self.release_holds(self.hub.slots.spot(id.operation()), 1);
        }
    }

    fn done_with(&mut self, id: RequestId) {
        if !self.is_counted(id.operation()) {
            self.release_looks(self.hub.slots.spot(id.operation()), 1);
        }
    }
}

/// Gives up so many of a count. Returns true if these were the last.
#[inline]
fn release(count: &AtomicU32, of_it: u32) -> bool {
    // ORDERING: Acquire and AcqRel: who gives up the last sees what all others have done. If no others are
    // left then nobody else changes it.
    count.load(Ordering::Acquire) == of_it || count.fetch_sub(of_it, Ordering::AcqRel) == of_it
}
