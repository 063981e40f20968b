//! Devices: the streams that kernels enqueue work on, the buffers and kernels that they use, and [kernels
//! that are built in](kernels).
//!
//! A kernel node gets a [`DeviceStream`], which works on a GPU and on a host, or a [`HostStream`]. A
//! [`Kernel`] is code for a GPU together with its twin for hosts; [`In`], [`Out`] and [`KernelParam`] are the
//! types of its parameters. A [`Buffer`] is memory of a device; a [`HostBuffer`] is memory of the host that
//! is copied to and from a device.
//
// DEVICES: what streams run on. This room knows no graph, no plan and no run: it is given programs, and
// resumes them.
//
// Lives here: `host`, the device that is always present, and `cuda`; `sim`, the choices of a simulated
// device; `sanitize`, which checks the order of streams; and what kernels see of any device: streams,
// buffers, kernels. Never here: which node goes to which stream, or what the steps of a program mean.

mod buffer;
pub(crate) mod code;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(feature = "dlpack")]
mod dlpack;
pub(crate) mod host;
mod kernel;
mod kernel_stream;
pub mod kernels;
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) mod queue;
pub(crate) mod sanitize;
pub(crate) mod sim;
mod slice;
mod stream;

pub use buffer::{Buffer, Element, HostBuffer};
pub use code::Launch;
#[cfg(feature = "dlpack")]
pub(crate) use dlpack::tensor;
pub use host::HostStream;
pub use kernel::{In, Kernel, KernelParam, Out, Params};
pub use kernel_stream::KernelStream;
pub(crate) use kernel_stream::StreamMut;
pub use slice::{BufferSlice, BufferView, BufferViewMut};
pub use stream::DeviceStream;
