//! A use of variables by a submitted kernel. Later kernels wait for its event on their streams, and
//! operations of the host wait for its end.

use std::sync::Arc;

use smallvec::SmallVec;

use super::tokens::{Left, Runnable};
use crate::device::queue::Event;
use crate::error::Error;
use crate::plan::Stamp;
use crate::runtime::{Begun, Devices, LaneId};
use crate::sync::{AtomicBool, Mutex, OnceLock, Ordering, lock};

/// The work of one operation on a device.
pub(crate) struct DeviceUse {
    pub(crate) lane: LaneId,
    pub(crate) stamp: Stamp,
    /// None if no event was recorded, and once the device has done the work.
    event: Mutex<Option<Arc<Recorded>>>,
    pub(crate) ending: Ending<Runnable>,
    /// Early completions of operations that read from this one. They end after this end.
    followers: Mutex<Vec<Completed>>,
}

/// The error of the device, once it is known. Shared by the variables that the operation writes, and by the
/// operations that read them.
pub(crate) type Failure = Arc<OnceLock<Error>>;

pub(crate) struct SubmittedOp {
    pub(crate) operation: Left,
    pub(crate) device_use: Arc<DeviceUse>,
    pub(crate) failure: Failure,
    /// The uses that it reads from, if they may still fail.
    pub(crate) inputs: SmallVec<[(Arc<DeviceUse>, Failure); 2]>,
    /// The number of lane faults found before it was submitted.
    pub(crate) faults: u64,
    pub(crate) error: Option<Error>,
    /// If observers are told of it at its end on the device.
    pub(crate) begun: Option<Begun>,
}

/// A submitted operation whose lane has come to its end.
pub(crate) struct Completed {
    pub(crate) submitted: SubmittedOp,
    pub(crate) outcome: Result<(), Error>,
}

impl Completed {
    /// Keeps this completion until all operations that it reads from have ended, because one may still fail.
    /// Returns it if all have ended.
    pub(crate) fn after_inputs(self) -> Option<Self> {
        if self.outcome.is_err() {
            return Some(self);
        }
        let pending = self.submitted.inputs.iter().find(|(input, _)| !input.is_over()).map(|(input, _)| input.clone());
        match pending {
            Some(input) => input.ending.add(&input.followers, self)?.after_inputs(),
            None => Some(self),
        }
    }
}

/// Whether a use has ended, and the operations of the host that wait for its end.
///
/// ```text
///  event    `is_over`    then
///  wakes    false        under the lock, adds the operation to the list
///  wakes    true         returns the operation: it need not wait
///  end      false        becomes true; then, under the lock, the list is taken
/// ```
/// A thread that finds false under the lock adds its operation before the list is taken.
pub(crate) struct Ending<T> {
    is_over: AtomicBool,
    waiting: Mutex<SmallVec<[T; 2]>>,
}

impl<T> Ending<T> {
    pub(crate) fn new() -> Self {
        Self { is_over: AtomicBool::new(false), waiting: Mutex::new(SmallVec::new()) }
    }

    fn is_over(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `end`: what was stored before the end is visible.
        self.is_over.load(Ordering::Acquire)
    }

    /// Adds an operation to those that the end makes ready. Returns it if the use has ended.
    pub(crate) fn wake_later(&self, operation: T) -> Option<T> {
        self.add(&self.waiting, operation)
    }

    /// Adds an item to a list that is taken after the end. Returns it if the use has ended.
    fn add<U>(&self, list: &Mutex<impl Extend<U>>, item: U) -> Option<U> {
        let mut list = lock(list);
        // Read under the lock: the flag is stored first, and then the list is taken.
        if self.is_over() {
            return Some(item);
        }
        list.extend([item]);
        None
    }

    /// Ends the use. Returns the operations that waited.
    pub(crate) fn end(&self) -> SmallVec<[T; 2]> {
        // ORDERING: Release pairs with the Acquire in `is_over`.
        self.is_over.store(true, Ordering::Release);
        std::mem::take(&mut *lock(&self.waiting))
    }
}

/// An event. It is freed when no more waits for it will be submitted.
pub(crate) struct Recorded {
    devices: Arc<Devices>,
    lane: LaneId,
    pub(crate) event: Event,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.devices.device(self.lane).free_events(&mut std::iter::once(self.event));
    }
}

impl DeviceUse {
    pub(crate) fn new(devices: &Arc<Devices>, lane: LaneId, stamp: Stamp, event: Option<Event>) -> Self {
        let event = event.map(|event| Arc::new(Recorded { devices: devices.clone(), lane, event }));
        Self { lane, stamp, event: Mutex::new(event), ending: Ending::new(), followers: Mutex::default() }
    }

    /// Returns true if the host has seen the end.
    pub(crate) fn is_over(&self) -> bool {
        self.ending.is_over()
    }

    /// Returns true if no stream needs to wait for it. After a fault this is false: the device may still be
    /// working.
    pub(crate) fn is_left(&self) -> bool {
        self.is_over() && lock(&self.event).is_none()
    }

    /// Returns the event for waits on a device. The caller keeps it until the wait is submitted.
    pub(crate) fn event(&self) -> Option<Arc<Recorded>> {
        lock(&self.event).clone()
    }

    /// Ends it. `is_done`: whether the device has done the work. Returns the operations and the completions
    /// that waited for this end.
    pub(crate) fn end(&self, is_done: bool) -> (SmallVec<[Runnable; 2]>, Vec<Completed>) {
        let waiting = self.ending.end();
        let event = if is_done { lock(&self.event).take() } else { None };
        drop(event);
        (waiting, std::mem::take(&mut *lock(&self.followers)))
    }
}
