//! What an operation has submitted to a device, for those who come after it: on a device they wait for its event, on the host for its end.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::queue::Event;
use crate::error::{Error, Result};
use crate::exec::{Berth, Queues};
use crate::plan::Stamp;
use crate::sync::{Mutex, OnceLock, lock};

/// An operation's work on a device, once it is submitted.
pub(super) struct Done {
    pub(super) berth: Berth,
    pub(super) stamp: Stamp,
    /// None if none was recorded, and once the device has done it.
    event: Mutex<Option<Arc<Recorded>>>,
    ending: Ending,
}

/// How something ended, and operations of the host that are to be looked at again then.
pub(crate) struct Ending {
    outcome: OnceLock<Result<()>>,
    waiting: Mutex<SmallVec<[u32; 2]>>,
}

impl Ending {
    pub(crate) fn new() -> Self {
        Self { outcome: OnceLock::new(), waiting: Mutex::default() }
    }

    /// Whether the host has heard of it.
    fn is_over(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// Has an operation looked at again when this is over. Returns false if it is.
    pub(crate) fn wakes(&self, operation: u32) -> bool {
        let mut waiting = lock(&self.waiting);
        // Under the lock: who ends it stores the outcome first, and then asks who waits.
        let is_pending = !self.is_over();
        if is_pending {
            waiting.push(operation);
        }
        is_pending
    }

    /// Says how it ended. Returns who waits for that.
    pub(crate) fn end(&self, outcome: Result<()>) -> SmallVec<[u32; 2]> {
        let _ = self.outcome.set(outcome);
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
        Self { berth, stamp, event: Mutex::new(event), ending: Ending::new() }
    }

    /// Whether the host has heard how it ended.
    pub(super) fn is_over(&self) -> bool {
        self.ending.is_over()
    }

    /// Whether no stream need wait for it. After a fault the device may still be at it: that is heard of before the point is reached.
    pub(super) fn is_left(&self) -> bool {
        self.is_over() && lock(&self.event).is_none()
    }

    /// Returns why the device has not done it, if that is known.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.ending.outcome.get()?.as_ref().err()
    }

    /// Returns the event to wait for on a device, to be kept until the wait is submitted.
    pub(super) fn event(&self) -> Option<Arc<Recorded>> {
        lock(&self.event).clone()
    }

    /// As [`Ending::wakes`].
    pub(super) fn wakes(&self, operation: u32) -> bool {
        self.ending.wakes(operation)
    }

    /// Says how it ended. Returns who waits for that.
    pub(super) fn end(&self, outcome: Result<()>) -> SmallVec<[u32; 2]> {
        let is_ok = outcome.is_ok();
        let waiting = self.ending.end(outcome);
        let event = if is_ok { lock(&self.event).take() } else { None };
        drop(event);
        waiting
    }
}
