//! Features for services: deadlines, priorities, a drain, and runs as `tower` services.

use anabranch::Executor;

use crate::waiting_runs::{Receiver, letter, waiting};

mod deadlines;
mod draining;
mod priorities;
#[cfg(feature = "tower")]
mod tower;

/// Returns executors that have one run in flight at a time.
fn one_at_a_time() -> [Executor; 3] {
    [0, 1, 2].map(|workers| Executor::builder().workers(workers).max_in_flight(1).build().unwrap())
}
