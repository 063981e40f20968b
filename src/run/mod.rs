//! Runs of plans: a [`Run`] is a future, and so is each of its nodes ([`NodeFuture`]).
//!
//! [`Inputs`] go in, [`Outputs`] come out. A [`Canceller`] cancels a run that is awaited elsewhere. [`lend`]
//! gives runs data that the caller only borrows.
//
// RUNS: carry out plans. The interpreter of programs, loops and branches, async nodes, segments on devices,
// outcomes and errors; and the futures of runs and nodes.
//
// Lives here: `Run`, `NodeFuture`, `Inputs`, `Outputs`, and what changes while a plan runs.
// Never here: which node goes where (`plan`), threads and queues (`device`), admission, lanes and completion
// (`runtime`). See README.md beside this file for the journeys of a node and of a kernel.
//
// Run (a future) ──first poll──▶ admission ──▶ Live: cells, countdowns, places of programs
//   │ drop                                        ▲ resume(program)
//   ▼                                             │
// limbo                                      workers, or the poll itself

mod async_nodes;
mod at_once;
mod blocks;
mod checked;
mod control;
pub(crate) mod countdown;
mod devices;
mod end;
pub(crate) mod enqueue;
mod flight;
mod future;
mod inner;
mod inputs;
mod interpret;
pub(crate) mod items;
mod lend;
mod node;
mod observe;
mod once_box;
mod outcomes;
mod outputs;
mod pipe;
mod polls;
pub(crate) mod port;
mod segments;
mod start;
pub(crate) mod state;
mod step_state;
mod times;
mod values;
mod watch;

pub use crate::runtime::Canceller;
pub use future::Run;
pub use inputs::Inputs;
pub use lend::{Lender, Lent, LentMut, lend};
pub use node::NodeFuture;
pub use outputs::Outputs;
pub(crate) use values::FrameValues;
