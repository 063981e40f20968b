//! What an operation has submitted to a device, for those who come after it: on a device they wait for its
//! event, on the host for its end.

use std::sync::Arc;

use smallvec::SmallVec;

use super::enqueue::Completion;
use crate::device::queue::Event;
use crate::error::Error;
use crate::exec::{Berth, Queues};
use crate::plan::Stamp;
use crate::sync::{AtomicBool, Mutex, OnceLock, Ordering, lock};

/// An operation's work on a device, once it is submitted.
pub(super) struct Done {
    pub(super) berth: Berth,
    pub(super) stamp: Stamp,
    /// None if none was recorded, and once the device has done it.
    event: Mutex<Option<Arc<Recorded>>>,
    ending: Ending,
    /// The ends of operations that read what this one writes, and that the host heard of first. They run
    /// after this end.
    behind: Mutex<Vec<Arc<Completion>>>,
}

/// Why the device has not done what it should have, once that is known. What an operation has written has it,
/// and who reads from there; nobody else, so that it is gone when nobody can be told.
pub(super) type Fate = Arc<OnceLock<Error>>;

/// Whether something is over, and operations of the host that are to be looked at again then.
pub(crate) struct Ending {
    is_over: AtomicBool,
    waiting: Mutex<SmallVec<[u32; 2]>>,
}

impl Ending {
    pub(crate) fn new() -> Self {
        Self { is_over: AtomicBool::new(false), waiting: Mutex::default() }
    }

    /// Whether the host has heard of it.
    fn is_over(&self) -> bool {
        // ORDERING: Acquire, and Release below: who sees that it is over sees how it ended.
        self.is_over.load(Ordering::Acquire)
    }

    /// Has an operation looked at again when this is over. Returns false if it is.
    pub(crate) fn wakes(&self, operation: u32) -> bool {
        let mut waiting = lock(&self.waiting);
        // Under the lock: who ends it says so first, and then asks who waits.
        let is_pending = !self.is_over();
        if is_pending {
            waiting.push(operation);
        }
        is_pending
    }

    /// Says that it is over. Returns who waits for that.
    pub(crate) fn end(&self) -> SmallVec<[u32; 2]> {
        self.is_over.store(true, Ordering::Release);
        std::mem::take(&mut *lock(&self.waiting))
    }
}

/// An event, given back when nobody is about to wait for it any more.
pub(super) struct Recorded {
    queues: Arc<Queues>,
    berth: Berth,
    pub(super) event: Event,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.queues.device(self.berth).free_events(&mut std::iter::once(self.event));
    }
}

impl Done {
    pub(super) fn new(queues: &Arc<Queues>, berth: Berth, stamp: Stamp, event: Option<Event>) -> Self {
        let event = event.map(|event| Arc::new(Recorded { queues: queues.clone(), berth, event }));
        Self { berth, stamp, event: Mutex::new(event), ending: Ending::new(), behind: Mutex::default() }
    }

    /// Makes an end follow this one. Returns false if this one is over.
    pub(super) fn precedes(&self, end: &Arc<Completion>) -> bool {
        let mut behind = lock(&self.behind);
        // Must be read under the lock: `followers` takes the list after `end`, so a push that sees no end is
        // in time.
        let is_pending = !self.is_over();
        if is_pending {
            behind.push(end.clone());
        }
        is_pending
    }

    /// Takes the ends that follow this one. Must come after [`end`](Self::end).
    pub(super) fn followers(&self) -> Vec<Arc<Completion>> {
        std::mem::take(&mut *lock(&self.behind))
    }

    /// Whether the host has heard that it is.
    pub(super) fn is_over(&self) -> bool {
        self.ending.is_over()
    }

    /// Whether no stream need wait for it. After a fault the device may still be at it: that is heard of
    /// before the point is reached.
    pub(super) fn is_left(&self) -> bool {
        self.is_over() && lock(&self.event).is_none()
    }

    /// Returns the event to wait for on a device, to be kept until the wait is submitted.
    pub(super) fn event(&self) -> Option<Arc<Recorded>> {
        lock(&self.event).clone()
    }

    /// As [`Ending::wakes`].
    pub(super) fn wakes(&self, operation: u32) -> bool {
        self.ending.wakes(operation)
    }

    /// Says that it is over, and whether the device has come to its end. Returns who waits for that.
    pub(super) fn end(&self, is_done: bool) -> SmallVec<[u32; 2]> {
        let waiting = self.ending.end();
        let event = if is_done { lock(&self.event).take() } else { None };
        drop(event);
        waiting
    }
}
