//! The contract between kernels and a device that queues work: what a stream, a block of memory and a completion are, whatever the device.

use std::any::Any;
use std::sync::Arc;

use super::DeviceStream;
use super::kernel::{Code, Launch};
use crate::error::{Error, Result};

/// A stream that queues work. Whatever is asked of it is done later, in order; errors here are of the asking.
pub(crate) trait Queue: Send + 'static {
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn device_name(&self) -> String;
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

/// A block of a device's memory. Dropping it frees it once what was queued with it is done.
pub(crate) trait Memory: Send + Sync + 'static {
    fn device_name(&self) -> String;
    fn as_any(&self) -> &dyn Any;
}

/// A block of the host's memory that a device copies to.
pub(crate) trait HostMemory: Send + Sync + 'static {
    /// Whether the copy is done.
    fn is_written(&self) -> bool;
    /// Returns the address, aligned for every [`Element`](super::Element), of as many bytes as the copied block has. They stay as they are once
    /// they are written.
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
    /// Submits a node to a lane.
    ///
    /// # Errors
    /// If the device is lost, or refuses a wait or a record. What the body says is the body's.
    fn submit(&self, lane: u32, job: &mut Job<'_>) -> Result<Submitted>;
    /// Returns a point that must pass before more is submitted to a lane, if there is too much on it.
    fn backlog(&self, lane: u32) -> Option<u64>;
    /// Lets the host hear of the end of all that was submitted to a lane. Returns its point.
    fn mark(&self, lane: u32) -> Result<u64>;
    /// Takes back events that nobody will wait for any more.
    fn free_events(&self, events: &mut dyn Iterator<Item = Event>);
    /// Frees what was dropped and nothing works on any more. Returns a lane and its point to wait for, if something is left.
    fn collect(&self) -> Option<(u32, u64)>;
    /// Refuses all further work: the device is lost.
    fn lose(&self, fault: &Fault) -> Error;
}

/// An event, by the driver's handle for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event(pub(crate) usize);

/// What is to be submitted as one node.
pub(crate) struct Job<'a> {
    /// Whether this thread may have done other things since it last submitted to the device.
    pub(crate) is_fresh: bool,
    /// What the stream waits for first; may be of other devices.
    pub(crate) waits: &'a mut dyn Iterator<Item = Event>,
    /// Whether another stream will wait for this.
    pub(crate) is_recorded: bool,
    /// Whether the host must hear of its end.
    pub(crate) is_marked: bool,
    /// Enqueues the work.
    pub(crate) body: &'a mut dyn FnMut(&mut DeviceStream),
}

/// What was submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    /// The point of its end on its lane.
    pub(crate) point: u64,
    pub(crate) event: Option<Event>,
}

/// How far a stream is, for those who wait for it from the host.
pub(crate) trait Timeline: Send + Sync + 'static {
    /// Returns the last point that has passed; everything done before it is visible.
    fn reached(&self) -> u64;
    /// Asks the driver whether all is well, which may take a microsecond.
    fn check(&self) -> Result<(), Fault>;
}

/// What a driver says is wrong with a stream.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) code: u32,
    pub(crate) name: Arc<str>,
    /// Nothing will ever run on the device again.
    pub(crate) is_fatal: bool,
}
