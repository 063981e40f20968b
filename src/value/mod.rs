//! VALUES: where the values of one run live. One block of memory per run, one typed cell per value, no locks.
//!
//! Lives here: [`Layout`] (where each cell stands), [`Slot`] (the typed key of a cell), [`Frame`] (a run's memory) and
//! [`Cells`] (a node's view of it). Never here: who may touch which cell when; that is the plan's order, kept by `exec`.

mod cell;
mod direct;
mod frame;

pub(crate) use direct::Direct;
pub(crate) use frame::Frame;
pub(crate) use frame::Layout;
#[expect(unreachable_pub, reason = "named by hidden methods of public traits")]
pub use frame::{Cells, Slot};
