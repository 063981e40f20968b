//! Ranks over MPI: each test starts itself with `mpirun`, once for each MPI that is installed, and the ranks
//! run its body. Without an `mpirun` the tests say so and pass.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(feature = "mpi")]

#[path = "mpi/abandoned.rs"]
mod abandoned;
#[cfg(feature = "serde")]
#[path = "mpi/by_serde.rs"]
mod by_serde;
#[path = "mpi/collectives.rs"]
mod collectives;
#[path = "it/dice.rs"]
mod dice;
#[path = "it/comm/drawn.rs"]
mod drawn;
#[path = "mpi/endings.rs"]
mod endings;
#[path = "it/comm/exchanges.rs"]
mod exchanges;
#[path = "mpi/failures.rs"]
mod failures;
#[path = "mpi/flows.rs"]
mod flows;
#[path = "mpi/launch.rs"]
mod launch;
#[path = "mpi/order.rs"]
mod order;
#[cfg(feature = "serde")]
#[path = "it/comm/parcels.rs"]
mod parcels;
#[path = "mpi/partitions.rs"]
mod partitions;
#[path = "it/comm/plus.rs"]
mod plus;
#[path = "mpi/solver.rs"]
mod solver;
#[path = "mpi/takes.rs"]
mod takes;
#[path = "mpi/worlds.rs"]
mod worlds;
