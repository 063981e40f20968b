//! A device that queues work, as seen by an executor.

use std::sync::Arc;
use std::time::Instant;

use super::timeline::{Fault, Timeline};
use crate::device::stream::DeviceStream;
use crate::error::{Error, Result, Site};

/// A device that queues work. Its streams are numbered lanes.
pub(crate) trait QueueDevice: Send + Sync + 'static {
    fn name(&self) -> String;
    /// Returns the progress of each lane.
    fn timelines(&self) -> Vec<Arc<dyn Timeline>>;
    /// Returns a stream that records work for a lane. The work will wait for these events, which may be of
    /// other devices.
    ///
    /// # Errors
    /// If the device is lost.
    fn begin(&self, lane: u32, waits: &mut dyn Iterator<Item = Event>) -> Result<DeviceStream>;
    /// Submits what a stream of this device has recorded.
    ///
    /// # Errors
    /// If the device is lost, or if it refuses a wait or a record, which belong to no part.
    fn submit(&self, stream: DeviceStream, job: &mut Job<'_>) -> Result<Submitted>;
    /// Returns a point that must pass before more is submitted to a lane, if the lane has too much work.
    fn backlog(&self, lane: u32) -> Option<u64>;
    /// Signals the host when all work that was submitted to a lane has ended. Returns the point of that end.
    fn mark(&self, lane: u32) -> Result<u64>;
    /// Takes back events that no later work will wait for.
    fn free_events(&self, events: &mut dyn Iterator<Item = Event>);
    /// Frees dropped memory that no work uses. If some remains, returns a lane and the point to wait for.
    fn collect(&self) -> Option<(u32, u64)>;
    /// Returns the number of memory blocks that are never reused because the device is lost.
    fn quarantined(&self) -> usize;
    /// Returns the error for a fault. After a fatal fault the device refuses all further work.
    fn judge(&self, fault: &Fault) -> Error;
}

/// An event, by the driver's handle for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event(pub(crate) usize);

/// How to submit parts.
pub(crate) struct Job<'a> {
    /// The same for every submission of these parts, and for no others; None if the parts do not repeat. The
    /// number is the place of their values: parts of another place have other addresses.
    pub(crate) key: Option<(&'a Arc<()>, u32)>,
    /// Whether another stream will wait for the end.
    pub(crate) is_recorded: bool,
    pub(crate) judge: &'a mut dyn Judge,
}

/// Decides which parts are still submitted after the device has refused some.
pub(crate) trait Judge {
    fn refused(&mut self, part: u32, error: Error);
    /// Whether to submit a part. Called only after another part was refused.
    fn goes_on(&mut self, part: u32) -> bool;
    /// Returns the names of a part, for the sanitizer.
    fn site(&self, part: u32) -> Site;
}

/// The result of a submission.
pub(crate) struct Submitted {
    /// The point of its end on its lane.
    pub(crate) point: u64,
    pub(crate) event: Option<Event>,
    /// Whether it was launched as one graph.
    pub(crate) is_graph: bool,
    /// When the device worked on each part, if it takes times.
    pub(crate) times: Option<Arc<dyn PartTimes>>,
}

/// When a device worked on the parts of a submission.
pub(crate) trait PartTimes: Send + Sync {
    /// Returns whether the device will tell it of a part: the part has work.
    fn has(&self, part: u32) -> bool;
    /// Returns it for a part; None before its end, and on a lost device.
    fn of(&self, part: u32) -> Option<PartTime>;
}

/// When a device worked on a part, on the host's clock, and on which lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartTime {
    pub(crate) lane: u32,
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}
