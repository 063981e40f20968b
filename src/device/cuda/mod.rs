//! The CUDA device: NVIDIA GPUs, through a driver that is loaded when the device is requested. Only this
//! folder names cudarc.
//!
//! A kernel's requests to its stream are recorded until a segment of the plan is complete, and then
//! submitted: as a CUDA graph if the segment was seen before, otherwise call by call, where a wait is
//! `cuStreamWaitEvent` and a record is `cuEventRecord`. If the host must know of an end, the stream writes
//! the number of the point into a word of the host's memory. One thread at a time submits to a device.

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
mod settings;
mod times;
#[cfg(feature = "nccl")]
mod transport;
mod trials;

pub(crate) use checked::Checked;
pub(crate) use gpu::Gpu;
pub use raw::RawStream;
pub use self_test::{SelfTest, Trial, TrialOutcome};
pub(crate) use settings::GpuSettings;
#[cfg(feature = "nccl")]
pub(crate) use transport::{Mark, Transport};
pub use trials::self_test;

/// How a CUDA device tells the host that work is done. By default an executor tries them in this order, and
/// takes the first that works: see [`self_test`].
///
/// ```no_run
/// use anabranch::Executor;
/// use anabranch::cuda::Completion;
///
/// let exec = Executor::builder().cuda(&[0]).completion(Completion::Event).build()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Completion {
    /// The device writes a number into the host's memory, so reading it takes no driver call. The number has
    /// 64 bits, or 32 on a device that cannot write more.
    Lane,
    /// An event is recorded, and the driver is queried for it.
    Event,
    /// The driver calls a host function. This stalls the stream during the call, and is slower than both
    /// others.
    HostFunction,
}
