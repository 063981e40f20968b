//! The work that kernels request of a stream: memory, copies, fills and launches, part by part.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::device::code::{Code, Launch};
use crate::error::{How, Result};

/// A stream that records work, part by part. The device does the work after it is submitted. An error here
/// refuses the request.
pub(crate) trait Queue: Send + 'static {
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn device_name(&self) -> String;
    /// Begins the part of another node.
    fn begin_part(&mut self, part: Part<'_>);
    /// Discards the work of the last part.
    fn abandon_part(&mut self);
    /// Discards the work of all parts, except operations that are already issued. The parts keep their places
    /// in the order.
    fn abandon_all(&mut self);
    fn alloc(&mut self, bytes: usize) -> Result<Box<dyn Memory>>;
    /// Copies from the host; reads `from` before it returns.
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

/// The work of one node, within one submission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// Parts of the same number run in order.
    pub(crate) stream: u32,
    /// The numbers of the earlier parts that it waits for as well.
    pub(crate) waits: &'a [u32],
    /// Whether a later part waits for it.
    pub(crate) is_awaited: bool,
}

/// A block of a device's memory, or a part of one. Once nothing refers to the block, it is freed when the
/// work that uses it is done.
pub(crate) trait Memory: Send + Sync + 'static {
    fn device_name(&self) -> String;
    fn as_any(&self) -> &dyn Any;
    /// Returns the memory of some of its bytes.
    fn part(&self, bytes: Range<usize>) -> Box<dyn Memory>;
    /// Returns the address of memory of a simulated device, for a use by the host.
    fn on_host(&self, _how: How) -> Option<NonNull<u8>> {
        None
    }
    /// Returns where the memory is, for another library.
    #[cfg(feature = "dlpack")]
    fn export(&self) -> Export {
        Export::Simulated
    }
}

/// Where memory is, for another library.
#[cfg(feature = "dlpack")]
pub(crate) enum Export {
    /// No work uses it.
    Gpu { address: u64, ordinal: u32 },
    /// Work still uses it, or a part of it is borrowed.
    InUse,
    /// A simulated device has it.
    Simulated,
}

/// A block of the host's memory that a device writes a copy to.
pub(crate) trait HostMemory: Send + Sync + 'static {
    /// Whether the copy is done.
    fn is_written(&self) -> bool;
    /// Returns the address of the bytes, as many as the copied block has, aligned for every
    /// [`Element`](crate::device::Element). They do not change once they are written.
    fn as_ptr(&self) -> *const u8;
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    #[doc(hidden)]
    Memory(MemoryArg<'a>),
    /// The bytes of a number, at the beginning of the array.
    #[doc(hidden)]
    Number([u8; 8]),
}

/// The memory of a buffer of any type, and its use; None if a host has the buffer.
#[derive(Clone, Copy)]
pub struct MemoryArg<'a>(pub(in crate::device) Option<&'a dyn Memory>, pub(in crate::device) How);

impl fmt::Debug for MemoryArg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryArg").field(&self.0.map(Memory::device_name)).finish()
    }
}
