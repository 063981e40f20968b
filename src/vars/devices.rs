//! The devices of an engine's executor: where its kernels go, and who waits for room there.
//!
//! What the queues of variables order is submission: a kernel leaves them when its work is on a stream, and
//! what it used keeps the point ([`Trail`](super::trail::Trail)). The streams wait for each other; operations
//! of the host are put aside until a point has passed, and no thread waits for that.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use super::done::Done;
use super::hub::Hub;
use super::op::Job;
use super::trail::Needs;
use crate::bridge::shielded;
use crate::device::queue::QueueDevice;
use crate::error::Result;
use crate::exec::{Berth, Queues};
use crate::plan::{self, Placed, Placement, Placer, Stamp};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

/// Where an engine's kernels go.
pub(super) struct Devices {
    pub(super) queues: Arc<Queues>,
    placer: Mutex<Placer>,
    /// Of each device which of the placer's streams are its lanes.
    streams: Box<[Range<u32>]>,
    /// How many lanes of a device the placer chooses among.
    max_streams: u32,
    /// Whether work of one stream may come to depend on that of another.
    has_waits: AtomicBool,
    /// How many streams were given out by name.
    pinned: AtomicU64,
}

/// Which stream an operation asks for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) device: u32,
    /// None: any.
    pub(super) lane: Option<u32>,
}

impl Devices {
    pub(super) fn new(queues: &Arc<Queues>, placement: Placement, max_streams: u32) -> Self {
        let first = |first: &mut u32, lanes: u32| {
            let own = *first..*first + lanes;
            *first = own.end;
            Some(own)
        };
        let streams: Box<[Range<u32>]> = queues.lanes().scan(0, first).collect();
        let count = streams.last().map_or(0, |last| last.end);
        let has_waits = placement != Placement::Single || streams.len() > 1;
        Self {
            queues: queues.clone(),
            placer: Mutex::new(Placer::new(placement, count)),
            streams,
            max_streams,
            has_waits: AtomicBool::new(has_waits),
            pinned: AtomicU64::new(0),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.streams.len()
    }

    /// Returns a lane of a device for who wants one of its own: each in turn, the last first, since the
    /// placer begins with the first.
    pub(super) fn pin(&self, device: u32) -> u32 {
        // ORDERING: Relaxed: work that is under way has no event, so who comes to need one waits on the host.
        self.has_waits.store(true, Ordering::Relaxed);
        let lanes = &self.streams[device as usize];
        let turn = self.pinned.fetch_add(1, Ordering::Relaxed) % u64::from(lanes.end - lanes.start);
        lanes.end - lanes.start - 1 - turn as u32
    }

    /// Whether others may have to wait for what is submitted.
    pub(super) fn has_waits(&self) -> bool {
        self.has_waits.load(Ordering::Relaxed)
    }

    pub(super) fn device(&self, berth: Berth) -> &dyn QueueDevice {
        self.queues.device(berth)
    }

    /// Chooses a lane.
    pub(super) fn place(&self, target: Target, needs: &Needs) -> (Berth, Placed) {
        let (device, lanes) = (target.device as usize, &self.streams[target.device as usize]);
        let among = match target.lane {
            Some(lane) => lanes.start + lane..lanes.start + lane + 1,
            None => lanes.start..lanes.end.min(lanes.start + self.max_streams),
        };
        let is_mixed = !needs.list().iter().any(|need| need.input.is_some());
        let needs: Vec<plan::Need<'_>> =
            needs.list().iter().map(|need| plan::Need { stamp: &need.done.stamp, is_over: need.done.is_left() }).collect();
        let placed = lock(&self.placer).place(among, is_mixed, &needs);
        (Berth { device, lane: placed.stream - lanes.start }, placed)
    }

    pub(super) fn submitted(&self, placed: Placed, point: u64, has_waited: bool) -> Stamp {
        lock(&self.placer).submitted(placed, point, has_waited)
    }

    pub(super) fn withdraw(&self, placed: Placed) {
        lock(&self.placer).withdraw(placed);
    }

    /// Returns an error if a lane had a fault after the first `found` faults: work submitted to it since may
    /// be wrong.
    pub(super) fn check_faults(&self, berth: Berth, found: u64) -> Result<()> {
        if self.queues.faults() == found {
            return Ok(());
        }
        self.queues.fault_since(found, |other| other == berth).map_or(Ok(()), Err)
    }

    pub(super) fn end(&self, done: &Done) {
        lock(&self.placer).end(done.stamp.stream);
    }

    /// Puts an operation of the host aside until devices are done with what it uses. Returns true if it is,
    /// and so another thread may have it.
    pub(super) fn puts_aside(&self, number: u32, job: &Job) -> bool {
        // What frees a variable need not wait: memory of a device knows its last uses.
        if job.is_kernel || job.frees() {
            return false;
        }
        while let Some(done) = Needs::pending(job) {
            if done.wakes(number) {
                return true;
            }
        }
        false
    }
}

/// An operation that goes on when there is room on its lane.
pub(super) struct WaitForRoom {
    pub(super) hub: Arc<Hub>,
    pub(super) number: u32,
    pub(super) berth: Berth,
    pub(super) point: u64,
    pub(super) is_over: AtomicBool,
}

impl Wake for WaitForRoom {
    fn wake(self: Arc<Self>) {
        let devices = self.hub.devices.as_ref().expect("it waits for one");
        if let Poll::Ready(outcome) = devices.queues.poll(self.berth, self.point, Waker::from(self.clone()))
            && !self.is_over.swap(true, Ordering::AcqRel)
        {
            match outcome {
                Ok(()) => self.hub.make_ready(self.number),
                // Asked again it would be told the same, for as long as the lane stands still.
                Err(fault) => self.hub.fail(self.number, devices.device(self.berth).judge(&fault)),
            }
        }
        let _ = shielded(|| drop(self));
    }
}
