//! REHEARSAL: schedules carried out by the simulated device, to see how long they take, in which orders they
//! can run, and that nothing depends on luck.
//!
//! Lives here: [`Simulation`] and its [`SimLog`], the clocks that find races, injected [`Faults`], and the
//! exploration of all orders. Never here: a closure of a graph, a thread, a real clock. The log of a seed is
//! the same, byte for byte, on every machine.

mod clocks;
mod explore;
mod faults;
mod inner;
mod log;
mod simulation;

pub use explore::Explored;
pub use faults::Faults;
pub use log::{Ending, Race, SimEvent, SimLog, Touch, TouchKind};
pub use simulation::{Simulation, Slots};
