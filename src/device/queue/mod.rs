//! The contract with a device that queues work: what kernels request of its streams, how an executor submits
//! the work, and how the host learns the progress of a stream.

mod device;
mod timeline;
mod work;

pub(crate) use device::{Event, Job, Judge, PartTime, PartTimes, QueueDevice, Submitted};
pub(crate) use timeline::{Fault, Timeline};
#[expect(unreachable_pub, reason = "named by hidden methods of public traits")]
pub use work::Arg;
#[cfg(feature = "dlpack")]
pub(crate) use work::Export;
pub(crate) use work::{HostMemory, Memory, MemoryArg, Part, Queue};
