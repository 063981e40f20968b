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
mod submission;

pub(crate) use gpu::Gpu;
