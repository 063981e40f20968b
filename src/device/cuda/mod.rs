//! The CUDA device: NVIDIA GPUs, through a driver that is loaded when the device is asked for. The only
//! folder that names cudarc.
//!
//! What kernels ask of their stream is noted down until a segment of the plan is complete, and then
//! submitted: as a CUDA graph if the segment was seen before, else call by call, where a wait is
//! `cuStreamWaitEvent` and a record is `cuEventRecord`. Where the host must know, the stream writes the
//! point's number into a word of the host's memory. One thread at a time submits to a device.

mod checked;
mod checks;
mod context;
mod device;
mod driver;
mod dropped;
mod events;
mod gpu;
mod graphs;
mod host_memory;
mod issue;
mod lane;
mod memory;
mod modules;
mod node;
mod ops;
mod raw;
mod recording;
mod replay;
mod self_test;
mod trials;

pub(crate) use checked::Checked;
pub(crate) use gpu::Gpu;
pub use raw::RawStream;
pub use self_test::{SelfTest, Trial, TrialOutcome};
pub use trials::self_test;

/// How a CUDA device tells the host that work is done. By default an executor tries them in this order, and
/// takes the first that works: see [`self_test`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Completion {
    /// The device writes a number into the host's memory: no call of the driver to look at it. The number has
    /// 64 bits, or 32 where the device can write no more.
    Lane,
    /// An event is recorded, and the driver is asked for it.
    Event,
    /// The driver calls a function of the host's. It stalls the stream meanwhile, and is slower than both
    /// others.
    HostFunction,
}
