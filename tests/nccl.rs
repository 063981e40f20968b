//! Device memory over the software NCCL: every rank is a thread, with a GPU of its own, made of threads.

#![allow(missing_docs, clippy::unwrap_used)]
// The software driver is loaded with calls that only Unix has.
#![cfg(all(unix, feature = "nccl"))]

#[path = "nccl/collectives.rs"]
mod collectives;
#[path = "nccl/failures.rs"]
mod failures;
#[path = "nccl/order.rs"]
mod order;
#[path = "nccl/ranks.rs"]
mod ranks;
