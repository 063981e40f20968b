//! Collectives and messages of device memory, by NCCL: one communicator and one stream for each rank, used by
//! one thread, which never waits in a call.
//!
//! ```text
//!  a node's future                                    the thread of the communicator
//!  its turn, in the plan's order
//!  the ranks compare their lengths (the world's engine)
//!  hands the operation over, ends its turn  ------->  issues it on the stream, in the order of the turns
//!                                                     asks ncclCommGetAsyncError until it is enqueued
//!                                                     records an event behind it
//!  its end                                  <-------  the event has passed
//! ```
//!
//! When the world breaks, the thread aborts the communicator, on every rank. Buffers of pending operations
//! stay until the stream has passed them.

mod communicator;
mod library;
mod nodes;
mod on_device;
mod open;
mod start;
mod thread;

pub(super) use on_device::OnDevice;
pub(super) use start::start;
pub(super) use thread::Nccl;
