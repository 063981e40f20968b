//! EXECUTORS: what users hold of workers and devices, and how they get everything else from there.
//!
//! Lives here: [`Executor`], its settings, its end; exploration of simulated orders; the engine that flows
//! share. Never here: how anything runs (`runtime`, `run`, `engine`, `flow`).

mod builder;
mod executor;
mod explore;
mod flows;

pub use builder::ExecutorBuilder;
pub use executor::{Executor, Shutdown};
pub use explore::explore;
