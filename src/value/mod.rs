//! VALUES: where the values of one run live, and the bodies that use them. One block of memory per run, one
//! typed cell per value, no locks.
//!
//! Lives here: [`Layout`] (where each cell stands), [`Slot`] (the typed key of a cell), [`Frame`] (a run's
//! memory), [`Given`] (a value on its way into it), [`Cells`] (a node's view of it), [`Arena`] (where a
//! graph's bodies lie, side by side) and [`Call`] (a body, ready to be called with such a view). [`VarCell`]
//! is the cell of a variable, which outlives runs, [`StateRef`] a state of a pipeline, which outlives items.
//! [`args`] has what closures read and get, for nodes and operations. Never here: which thread may touch
//! which cell when. The plan orders that, and `run` keeps the order; for variables their queues do.

mod arena;
pub(crate) mod args;
mod call;
mod cell;
mod frame;
mod given;
mod shelf;
mod state;

pub(crate) use arena::Arena;
pub(crate) use call::{Call, Outcome, TypedBody};
pub(crate) use frame::{Access, Frame, Layout};
#[expect(unreachable_pub, reason = "named by hidden methods of public traits")]
pub use frame::{Cells, Slot};
pub(crate) use given::{Given, id_of};
pub(crate) use shelf::{Untakable, VarCell};
pub use state::StateGuard;
pub(crate) use state::StateRef;
