//! The contract between kernels and a device that queues work: what a stream, a block of memory and a
//! completion are, whatever the device.

use std::any::Any;
use std::sync::Arc;

use super::DeviceStream;
use super::kernel::{Code, Launch};
use crate::error::{Error, Result};

/// A stream that notes down work, part by part. Whatever is asked of it is done after it is submitted; errors
/// here are of the asking.
pub(crate) trait Queue: Send + 'static {
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn device_name(&self) -> String;
    /// What follows is another node's.
    fn begin_part(&mut self, part: Part<'_>);
    /// Forgets what the last part asked for.
    fn abandon_part(&mut self);
    /// Forgets what all parts asked for, unless it is issued. Their places in the order stay.
    fn abandon_all(&mut self);
    fn alloc(&mut self, bytes: usize) -> Result<Box<dyn Memory>>;
    /// Copies from the host; `from` is read before this returns.
    fn upload(&mut self, from: &[u8], to: &dyn Memory) -> Result<()>;
    /// Copies to the host.
    fn download(&mut self, from: &dyn Memory) -> Result<Box<dyn HostMemory>>;
    /// Copies from any device into new memory of this one.
    fn fetch(&mut self, from: &dyn Memory) -> Result<Box<dyn Memory>>;
    fn copy(&mut self, from: &dyn Memory, to: &dyn Memory) -> Result<()>;
    /// Fills with a pattern of 1, 2 or 4 bytes.
    fn fill(&mut self, pattern: &[u8], to: &dyn Memory) -> Result<()>;
    fn launch(&mut self, code: &Arc<Code>, launch: &Launch, args: &[Arg<'_>]) -> Result<()>;
}

/// A block of a device's memory. Dropping it frees it once what was asked of it is done.
pub(crate) trait Memory: Send + Sync + 'static {
    fn device_name(&self) -> String;
    fn as_any(&self) -> &dyn Any;
}

/// A block of the host's memory that a device copies to.
pub(crate) trait HostMemory: Send + Sync + 'static {
    /// Whether the copy is done.
    fn is_written(&self) -> bool;
    /// Returns the address, aligned for every [`Element`](super::Element), of as many bytes as the copied
    /// block has. They stay as they are once they are written.
    fn as_ptr(&self) -> *const u8;
}

/// An argument of a launch.
#[derive(Clone, Copy)]
pub enum Arg<'a> {
    #[doc(hidden)]
    Memory(MemoryArg<'a>),
    /// The bytes of a number, in the first bytes.
    #[doc(hidden)]
    Number([u8; 8]),
}

/// A buffer of any type, if it is a device's.
#[derive(Clone, Copy)]
pub struct MemoryArg<'a>(pub(super) Option<&'a dyn Memory>);

/// A device that queues work, as an executor uses it. Its streams are numbered lanes.
pub(crate) trait QueueDevice: Send + Sync + 'static {
    fn name(&self) -> String;
    /// How far each lane is.
    fn timelines(&self) -> Vec<Arc<dyn Timeline>>;
    /// Returns a stream that notes down what is to be submitted to a lane, after these events; they may be of
    /// other devices.
    ///
    /// # Errors
    /// If the device is lost.
    fn begin(&self, lane: u32, waits: &mut dyn Iterator<Item = Event>) -> Result<DeviceStream>;
    /// Submits what a stream of this device has noted down.
    ///
    /// # Errors
    /// If the device is lost, or refuses what is not of one part: a wait or a record.
    fn submit(&self, stream: DeviceStream, job: &mut Job<'_>) -> Result<Submitted>;
    /// Returns a point that must pass before more is submitted to a lane, if there is too much on it.
    fn backlog(&self, lane: u32) -> Option<u64>;
    /// Lets the host hear of the end of all that was submitted to a lane. Returns its point.
    fn mark(&self, lane: u32) -> Result<u64>;
    /// Takes back events that nobody will wait for any more.
    fn free_events(&self, events: &mut dyn Iterator<Item = Event>);
    /// Frees what was dropped and nothing works on any more. Returns a lane and its point to wait for, if
    /// something is left.
    fn collect(&self) -> Option<(u32, u64)>;
    /// Returns how many blocks of memory are kept from use because the device is lost.
    fn quarantined(&self) -> usize;
    /// Returns what to say of a fault. After a fatal one the device refuses all further work.
    fn judge(&self, fault: &Fault) -> Error;
}

/// An event, by the driver's handle for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event(pub(crate) usize);

/// One of the nodes that are submitted together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// Parts of the same number are done in order.
    pub(crate) stream: u32,
    /// The earlier parts that it waits for besides, by their numbers.
    pub(crate) waits: &'a [u32],
    /// Whether a later one waits for it.
    pub(crate) is_awaited: bool,
}

/// How parts are to be submitted.
pub(crate) struct Job<'a> {
    /// What is the same whenever these parts are submitted, and only then; None if they do not come again.
    pub(crate) key: Option<&'a Arc<()>>,
    /// Whether another stream will wait for the end.
    pub(crate) is_recorded: bool,
    pub(crate) judge: &'a mut dyn Judge,
}

/// Who knows what becomes of parts when the device refuses some.
pub(crate) trait Judge {
    fn refused(&mut self, part: u32, error: Error);
    /// Whether a part is to be submitted, asked after another was refused.
    fn goes_on(&mut self, part: u32) -> bool;
}

/// What was submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    /// The point of its end on its lane.
    pub(crate) point: u64,
    pub(crate) event: Option<Event>,
    /// Whether it was launched as one.
    pub(crate) is_graph: bool,
}

/// How far a stream is, for those who wait for it from the host.
pub(crate) trait Timeline: Send + Sync + 'static {
    /// Returns the last point that has passed; everything done before it is visible.
    fn reached(&self) -> u64;
    /// Returns the last certain point, once the device is lost: all work that it depends on, on any lane, is
    /// known to have passed.
    fn certain(&self) -> u64 {
        self.reached()
    }
    /// Asks the driver whether all is well, which may take a microsecond. A fault that is not fatal is
    /// returned once.
    fn check(&self) -> Result<(), Fault>;
    /// Returns which other lanes of the device, as bits, the work up to a point has used. Reports each piece
    /// of work once.
    fn others(&self, _reached: u64) -> u64 {
        0
    }
}

/// What a driver says is wrong with a stream.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) code: u32,
    pub(crate) name: Arc<str>,
    /// Nothing will ever run on the device again.
    pub(crate) is_fatal: bool,
}
