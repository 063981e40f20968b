//! Device memory over the software NCCL: every rank is a thread, or a process of MPI, with a GPU of its own,
//! made of threads.

#![allow(missing_docs, clippy::unwrap_used)]
// The software driver is loaded with calls that only Unix has.
#![cfg(all(unix, feature = "nccl"))]

#[path = "nccl/collectives.rs"]
mod collectives;
#[path = "nccl/failures.rs"]
mod failures;
#[cfg(feature = "mpi")]
#[allow(dead_code)]
#[path = "mpi/launch.rs"]
mod launch;
#[path = "nccl/order.rs"]
mod order;
#[cfg(feature = "mpi")]
#[path = "nccl/processes.rs"]
mod processes;
#[path = "nccl/ranks.rs"]
mod ranks;
