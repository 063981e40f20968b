//! The simulated device: programs in virtual time, on engines with limited slots, in an order of your choice.
//!
//! Lives here: [`Machine`], which carries programs out as a discrete-event simulation, and [`Order`], which
//! picks who comes next where several could. Never here: a graph, a node, a value, a real clock. The same
//! programs and the same order give the same events, on every machine.

mod machine;
mod order;

pub(crate) use machine::{Machine, Op, Player, Work};
pub use order::Order;
pub(crate) use order::{Chooser, Draw, next_order};
