//! Simulation: schedules on a simulated machine in virtual time. It shows how long they take, in which orders
//! they can run, and whether they have a race.
//!
//! A [`Simulation`] runs a schedule and returns a [`SimLog`]. [`Slots`] limit the work that the machine does
//! at the same time. [`Order`] chooses among the nodes that could run next. [`Faults`] make nodes fail.
//! [`Simulation::explore`] tries all orders. The same seed gives the same log, byte for byte, on every
//! machine.
//!
//! Real runs can be simulated too: see [`Executor::sim`](crate::Executor::sim) and
//! [`explore`](crate::explore).
//
// REHEARSAL. Lives here: the simulation, its machine and its log, the clocks that find races, injected
// faults, and the exploration of all orders. Never here: a closure of a graph, a thread, a real clock.

mod clocks;
mod explore;
mod faults;
mod inner;
mod links;
mod log;
mod machine;
mod of_ranks;
mod points;
mod simulation;
mod svg;

pub use crate::device::sim::Order;
pub use explore::Explored;
pub use faults::Faults;
pub use links::Links;
pub use log::{Ending, Race, SimEvent, SimLog};
pub use simulation::{Simulation, Slots};
