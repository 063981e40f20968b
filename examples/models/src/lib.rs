//! Concurrent code of a user of Anabranch, and loom models of it.
//!
//! [`SingleFlight`] shares the result of one run among tasks. [`Uploads`] counts finished operations of an
//! engine for a progress bar. `models.rs` checks both in every interleaving with Anabranch's own threads.

mod single_flight;
mod sync;
mod uploads;

#[cfg(test)]
mod models;

pub use single_flight::SingleFlight;
pub use uploads::{Done, Uploads};
