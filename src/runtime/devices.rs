//! The devices of an executor that queue work, and the reactor that watches their lanes.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{Pace, Reactor, RemoteLane, WaiterKey, when_reached};
use crate::device::queue::{Fault, QueueDevice};
use crate::device::sanitize::Sanitizer;
use crate::error::{Error, Kind, Result};

pub(crate) struct Devices {
    devices: Vec<Queued>,
    reactor: Reactor,
    /// What checks the order of all lanes, if that is wanted.
    sanitizer: Option<Arc<Sanitizer>>,
}

struct Queued {
    device: Arc<dyn QueueDevice>,
    /// The number of its first lane in the reactor.
    first: usize,
    lanes: u32,
}

/// A lane of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneId {
    pub(crate) device: usize,
    pub(crate) lane: u32,
}

impl Devices {
    /// Starts the reactor of the executor with that address.
    ///
    /// # Errors
    /// If the operating system refuses to start its thread.
    pub(crate) fn start(
        devices: Vec<Arc<dyn QueueDevice>>,
        pace: Pace,
        sanitizer: Option<Arc<Sanitizer>>,
        executor: usize,
    ) -> Result<Self> {
        let (mut lanes, mut queued) = (Vec::new(), Vec::new());
        for (number, device) in devices.into_iter().enumerate() {
            let first = lanes.len();
            lanes.extend(device.timelines().into_iter().map(|timeline| Arc::new(RemoteLane::new(timeline, number as u32))));
            queued.push(Queued { device, first, lanes: (lanes.len() - first) as u32 });
        }
        let reactor = Reactor::start(lanes, pace, executor);
        let reactor = reactor.map_err(|cause| Error::with_source(Kind::Thread, Box::new(cause)))?;
        Ok(Self { devices: queued, reactor, sanitizer })
    }

    /// Returns a lane of a device. Numbers beyond its last lane begin again at its first.
    ///
    /// # Errors
    /// If there is no such device.
    pub(crate) fn lane(&self, device: u32, number: u32) -> Result<LaneId> {
        let queued = self.devices.get(device as usize);
        let queued = queued.ok_or_else(|| Kind::NoSuchDevice { device, count: self.devices.len() }.into())?;
        Ok(LaneId { device: device as usize, lane: number % queued.lanes })
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = u32> {
        self.devices.iter().map(|queued| queued.lanes)
    }

    pub(crate) fn device(&self, id: LaneId) -> &dyn QueueDevice {
        &*self.devices[id.device].device
    }

    pub(crate) fn sanitizer(&self) -> Option<&Arc<Sanitizer>> {
        self.sanitizer.as_ref()
    }

    /// Notes that the host acts on the end of work. What it submits from now on comes after that.
    pub(super) fn note_reached(&self, id: LaneId, point: u64) {
        if let Some(sanitizer) = &self.sanitizer {
            sanitizer.reached(id.device as u32, id.lane, point);
        }
    }

    /// Returns how many blocks of memory are kept from use because their device is lost.
    pub(crate) fn quarantined(&self) -> usize {
        self.devices.iter().map(|queued| queued.device.quarantined()).sum()
    }

    /// Frees dropped memory: now, or when its last use has passed.
    pub(crate) fn collect(self: &Arc<Self>) {
        for (device, queued) in self.devices.iter().enumerate() {
            if let Some((lane, point)) = queued.device.collect() {
                let devices = self.clone();
                when_reached(self, LaneId { device, lane }, point, move |outcome| {
                    // After a loss, a collection keeps the device's memory from use. After another fault the
                    // memory waits for the next collection.
                    if outcome.as_ref().err().is_none_or(Error::is_device_lost) {
                        devices.collect();
                    }
                });
            }
        }
    }

    /// Returns the number of faults found so far that were not fatal.
    pub(crate) fn faults(&self) -> u64 {
        self.reactor.faults().found()
    }

    /// Returns the error for a fault of one of these lanes, after the first `found` faults. Drivers do not
    /// say which work of a lane has failed.
    #[cold]
    pub(crate) fn fault_since(&self, found: u64, is_used: impl Fn(LaneId) -> bool) -> Option<Error> {
        let id = |lane: usize| {
            let device = self.devices.partition_point(|queued| queued.first <= lane) - 1;
            LaneId { device, lane: (lane - self.devices[device].first) as u32 }
        };
        let fault = self.reactor.faults().since(found, |lane| is_used(id(lane)))?;
        Some(Kind::Driver { code: fault.code, name: fault.name }.into())
    }

    /// Returns how the wait for a point ended. While it is pending, the waker is registered.
    pub(super) fn poll(&self, id: LaneId, point: u64, waker: &Waker) -> Poll<Result<(), Fault>> {
        let lane = self.devices[id.device].first + id.lane as usize;
        self.reactor.poll(lane, point, &mut WaiterKey::default(), &mut Context::from_waker(waker))
    }
}

/// Frees dropped memory of devices when it is dropped: for the values that a run still had.
pub(crate) struct Collector(pub(crate) Option<Arc<Devices>>);

impl Drop for Collector {
    fn drop(&mut self) {
        self.0.iter().for_each(Devices::collect);
    }
}
