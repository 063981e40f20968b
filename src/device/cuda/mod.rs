//! The CUDA device: NVIDIA GPUs, through a driver that is loaded when the device is asked for. The only folder that names cudarc.
//!
//! A program's steps become calls of the driver: a wait is `cuStreamWaitEvent`, a run is what the kernel's body launches, a record is
//! `cuEventRecord`; where the host must know, the stream writes the point's number into a word of the host's memory. One thread at a time
//! submits to a device.

mod driver;
mod events;
mod gpu;
mod lane;
mod memory;
mod modules;
mod raw;
mod remains;
mod submission;

pub(crate) use gpu::Gpu;
pub use raw::RawStream;

/// How a CUDA device tells the host that work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// The device writes a number into the host's memory: no call of the driver to look at it. The default where the device can do so;
    /// elsewhere this is [`Completion::Event`].
    Lane,
    /// An event is recorded, and the driver is asked for it.
    Event,
    /// The driver calls a function of the host's. It stalls the stream meanwhile, and is slower than both others.
    HostFunction,
}
