//! THE MACHINES: what streams run on. Knows no graph, no plan and no run: it is given programs, and resumes
//! them.
//!
//! Lives here: [`host`], the device that is always there, and [`sim`], the one in virtual time; what kernels
//! see of any device: streams, buffers, kernels. Never here: which node goes where, or what a program's steps
//! mean.

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
pub(crate) mod sim;
mod stream;

pub use buffer::{Buffer, Element, HostBuffer};
pub use code::Launch;
pub use kernel::{In, Kernel, KernelParam, Out, Params};
pub use kernel_stream::KernelStream;
#[expect(unreachable_pub, reason = "named by hidden methods of public traits")]
pub use kernel_stream::StreamMut;
pub use stream::DeviceStream;
