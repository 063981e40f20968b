//! More than one machine: ranks that exchange values, as nodes of a graph and as operations of a flow.
//!
//! A [`World`] is a number of ranks. Every rank builds the same graph, compiles it with
//! [`Graph::compile_for`](crate::Graph::compile_for), and runs it. All communication is a future, and none
//! blocks a thread.
//
// RANKS. Lives here: worlds, the engines that carry values from rank to rank, the nodes and operations that
// communicate, and the order in which they start. Never here: which order that is (`ranks` says it), a
// second way to run a graph.

mod agreement;
#[cfg(feature = "serde")]
mod by_serde;
mod combine;
mod compile;
#[cfg(feature = "mpi")]
mod control;
mod detached;
#[cfg(any(feature = "mpi", feature = "nccl"))]
mod done;
mod elements;
mod engine;
mod flow;
mod given;
mod health;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
mod native;
#[cfg(feature = "nccl")]
mod nccl;
mod nodes;
mod op;
mod operand;
mod perform;
mod report;
mod run_comm;
#[cfg(any(feature = "mpi", test))]
mod sleeper;
#[cfg(feature = "mpi")]
mod spares;
mod steps;
mod transfers;
mod turns;
mod wire;
mod world;

pub use crate::ranks::{Balanced, Block, Blocks, Partition, RankSchedules};
#[cfg(feature = "serde")]
pub use by_serde::Serde;
#[cfg(test)]
pub(crate) use detached::detach;
pub use elements::Elements;
#[cfg(test)]
pub(crate) use health::Health;
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use operand::Operand;
#[cfg(test)]
pub(crate) use sleeper::Sleeper;
#[cfg(test)]
pub(crate) use turns::{Turn, Turns};
pub use wire::Wire;
pub use world::World;
