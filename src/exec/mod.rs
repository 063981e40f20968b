//! Executors: workers and devices that run plans, engines and flows.
//!
//! An [`ExecutorBuilder`] has the settings of an [`Executor`]. An [`Observer`] is called for all work.
//! [`Timeline`] is an observer. [`explore`](explore()) runs a test in every order in which its nodes can run.
//
// EXECUTORS: the handles to workers and devices; they make runs, engines and flows.
//
// Lives here: `Executor`, its settings, its end; exploration of simulated orders; the engine that flows
// share. Never here: how work runs (`runtime`, `run`, `engine`, `flow`).

mod builder;
mod executor;
mod explore;
mod flows;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(test, not(anabranch_loom)))]
mod nothing_else;
#[cfg(feature = "tower")]
mod service;
mod shutdown;
#[cfg(feature = "tracing")]
mod tracing;

pub use crate::runtime::{
    DeviceSpan, Ended, Idle, Launched, Observer, Origin, RunId, Stats, Timeline, Work, WorkKind, WorkSpan, WorkThread,
};
pub use builder::ExecutorBuilder;
pub use executor::Executor;
pub use explore::explore;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
#[cfg(feature = "tower")]
pub use service::Service;
pub use shutdown::{Drain, Shutdown};
#[cfg(feature = "tracing")]
pub use tracing::Tracing;
