//! The lanes of an engine's kernels, on an executor with devices that queue work.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::order::{Predecessors, Runnable, Slots, Target};
use crate::error::Result;
use crate::plan::{self, Placed, Placement, Placer};
use crate::runtime::{Devices, LaneId};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, lock};

pub(in crate::engine) struct Lanes {
    pub(in crate::engine) devices: Arc<Devices>,
    placer: Mutex<Placer>,
    /// The placer's streams that are the lanes of each device.
    streams: Box<[Range<u32>]>,
    /// The number of lanes of a device that the placer chooses from.
    max_streams: u32,
    /// Whether work on one stream may depend on work on another.
    has_waits: AtomicBool,
    /// The number of streams given out by name.
    pinned: AtomicU64,
}

impl Lanes {
    pub(in crate::engine) fn new(devices: &Arc<Devices>, placement: Placement, max_streams: u32) -> Self {
        let first = |first: &mut u32, lanes: u32| {
            let own = *first..*first + lanes;
            *first = own.end;
            Some(own)
        };
        let streams: Box<[Range<u32>]> = devices.lanes().scan(0, first).collect();
        let count = streams.last().map_or(0, |last| last.end);
        let has_waits = placement != Placement::Single || streams.len() > 1;
        Self {
            devices: devices.clone(),
            placer: Mutex::new(Placer::new(placement, count)),
            streams,
            max_streams,
            has_waits: AtomicBool::new(has_waits),
            pinned: AtomicU64::new(0),
        }
    }

    pub(in crate::engine) fn device_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns a lane of a device for a stream: each in turn, and the last one first, because the placer
    /// begins with the first.
    pub(in crate::engine) fn pin(&self, device: u32) -> u32 {
        // ORDERING: Relaxed: a late load only costs time. Work that was submitted without an event makes a
        // kernel that needs one wait on the host.
        self.has_waits.store(true, Ordering::Relaxed);
        let lanes = &self.streams[device as usize];
        // ORDERING: Relaxed: it is a count.
        let turn = self.pinned.fetch_add(1, Ordering::Relaxed) % u64::from(lanes.end - lanes.start);
        lanes.end - lanes.start - 1 - turn as u32
    }

    /// Returns true if work on other streams may have to wait for work that is submitted now.
    pub(in crate::engine) fn has_waits(&self) -> bool {
        // ORDERING: Relaxed: see `pin`.
        self.has_waits.load(Ordering::Relaxed)
    }

    pub(in crate::engine) fn place(&self, target: Target, predecessors: &Predecessors) -> (LaneId, Placed) {
        let (device, lanes) = (target.device as usize, &self.streams[target.device as usize]);
        let among = match target.lane {
            Some(lane) => lanes.start + lane..lanes.start + lane + 1,
            None => lanes.start..lanes.end.min(lanes.start.saturating_add(self.max_streams)),
        };
        let is_mixed = !predecessors.0.iter().any(|known| known.input.is_some());
        let known = predecessors.0.iter().map(|known| &*known.device_use);
        let needs: Vec<plan::Need<'_>> =
            known.map(|before| plan::Need { stamp: &before.stamp, is_over: before.is_left() }).collect();
        let placed = self.placer().place(among, is_mixed, &needs);
        (LaneId { device, lane: placed.stream - lanes.start }, placed)
    }

    pub(in crate::engine) fn placer(&self) -> MutexGuard<'_, Placer> {
        lock(&self.placer)
    }

    /// Returns an error if a lane had a fault after the first `found` faults: work submitted to it since may
    /// be wrong.
    pub(in crate::engine) fn check_faults(&self, lane: LaneId, found: u64) -> Result<()> {
        if self.devices.faults() == found {
            return Ok(());
        }
        self.devices.fault_since(found, |other| other == lane).map_or(Ok(()), Err)
    }

    /// Adds an operation of the host to the list of a device's use that it has to wait for. The end of the
    /// use makes it ready. Returns the operation if there is no such use.
    pub(in crate::engine) fn defer(&self, slots: &Slots, mut operation: Runnable) -> Option<Runnable> {
        loop {
            let granted = slots.granted(&mut operation);
            // An operation that frees a variable does not wait: memory of a device knows its last uses.
            if granted.is_kernel || granted.frees() {
                return Some(operation);
            }
            let Some(device_use) = Predecessors::pending(&granted) else { return Some(operation) };
            operation = device_use.ending.wake_later(operation)?;
        }
    }
}
