//! The ways to run a chain over a stream of items, behind one small interface.
//!
//! Every peer builds what it can before the clock starts. The clock runs from the first item to the last
//! result, and the sum of the results is checked.

mod channels;
mod runs;
mod tbb;

use std::time::Duration;

use crate::chain::Chain;
use crate::ours::{Consumer, Ours, Split};

/// One way to run a chain over items.
pub(crate) trait Peer {
    fn name(&self) -> &'static str;

    /// Returns the ns per item, over about `target`. None if this peer has no such mode.
    fn run(&mut self, chain: &Chain, target: Duration) -> Option<f64>;

    /// Returns advice for a peer that cannot run on this machine.
    fn missing(&self) -> Option<&str> {
        None
    }
}

/// The columns, in order.
pub(crate) const ONE_PHASE: usize = 0;
pub(crate) const PHASE_EACH: usize = 1;
pub(crate) const TBB: usize = 2;
pub(crate) const CHANNELS: usize = 3;
pub(crate) const RUNS: usize = 4;
pub(crate) const ONE_PHASE_ON_WORKERS: usize = 5;
pub(crate) const PHASE_EACH_ON_WORKERS: usize = 6;

/// Returns all peers, in the order of the columns.
pub(crate) fn all() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(Ours(Split::One, Consumer::Beside)),
        Box::new(Ours(Split::Each, Consumer::Beside)),
        Box::new(tbb::Tbb::new()),
        Box::new(channels::Channels),
        Box::new(runs::Runs),
        Box::new(Ours(Split::One, Consumer::OnWorkers)),
        Box::new(Ours(Split::Each, Consumer::OnWorkers)),
    ]
}
