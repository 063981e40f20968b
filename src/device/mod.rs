//! Devices: the streams that kernels enqueue work on, the buffers and kernels that they use, and [kernels
//! that are built in](kernels).
//!
//! A kernel node gets a [`DeviceStream`], which works on a GPU and on a host, or a [`HostStream`]. A
//! [`Kernel`] is code for a GPU with its twin for hosts; [`In`], [`Out`] and [`KernelParam`] say what its
//! parameters can be. A [`Buffer`] is memory of a device, a [`HostBuffer`] memory that is copied to and from
//! there.
//
// THE MACHINES: what streams run on. Knows no graph, no plan and no run: it is given programs, and resumes
// them.
//
// Lives here: `host`, the device that is always there, and `cuda`; `sim`, the choices of a simulated one;
// `sanitize`, which checks the order of streams;
// what kernels see of any device: streams, buffers, kernels. Never here: which node goes where, or what a
// program's steps mean.

mod buffer;
pub(crate) mod code;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
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
pub use host::HostStream;
pub use kernel::{In, Kernel, KernelParam, Out, Params};
pub use kernel_stream::KernelStream;
pub(crate) use kernel_stream::StreamMut;
pub use slice::{BufferSlice, BufferView, BufferViewMut};
pub use stream::DeviceStream;
