//! THE CONDUCTOR: carries out plans on a device. Executors, runs, node futures, cancellation, errors,
//! observers.
//!
//! Lives here: what changes while a plan runs. Never here: which node goes where (`plan`), threads and queues
//! (`device`), how a completion becomes a wake (`bridge`). See README.md beside this file for who makes a run
//! go on, and what a cancel may count on.
//!
//! ```text
//! Executor ──run──▶ Run (a future) ──first poll──▶ Live: cells, countdowns, programs' places
//!                     │ drop                          ▲ resume(program)
//!                     ▼                               │
//!                   limbo                        workers, or the poll itself
//! ```

mod asyncs;
mod blame;
mod builder;
mod conduct;
mod control;
mod core;
pub(crate) mod countdown;
mod executor;
mod fates;
mod guest;
mod inner;
mod inputs;
mod inside;
mod node;
mod observe;
mod outputs;
mod queues;
mod rehearse;
mod run;
mod serial;
pub(crate) mod state;
mod submit;
pub(crate) mod whole;

pub use builder::ExecutorBuilder;
pub(crate) use executor::Runner;
pub use executor::{Executor, Idle, Shutdown};
pub(crate) use guest::{Guest, Room};
pub use inputs::Inputs;
pub(crate) use inside::{inside, is_inside};
pub use node::NodeFuture;
pub use observe::{Launched, NodeSpan, Observer, Timeline, TimelineSpan};
pub use outputs::Outputs;
pub(crate) use queues::{Berth, Queues};
pub(crate) use rehearse::STEPS_MAX;
pub use rehearse::explore;
pub(crate) use run::Cancel;
pub use run::{Canceller, Run};
pub use serial::SerialStream;
