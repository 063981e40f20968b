//! The schedulers that are measured, behind one small interface.
//!
//! Every peer runs the same shapes with the same bodies, builds what it can before the clock starts, and
//! checks that each node ran exactly once.

mod executor_tasks;
mod tbb;
mod tokio_tasks;
mod unordered;

pub(crate) use self::tbb::NAME as TBB;

use std::fmt;
use std::str::FromStr;

use crate::ours::Ours;
use crate::shapes::Shape;

/// One way of running graphs.
pub(crate) trait Peer {
    fn name(&self) -> &'static str;

    /// Returns the median time per node in ns over `load.runs` runs, or `None` if this peer has no such mode.
    fn run(&mut self, shape: &Shape, load: &Load) -> Option<f64>;

    /// Returns advice for a peer that cannot run on this machine.
    fn missing(&self) -> Option<&str> {
        None
    }

    /// Returns whether nodes of this peer are so expensive that it skips the largest graphs and runs the
    /// others less often.
    fn is_slow(&self) -> bool {
        false
    }
}

/// Returns all peers, in the order of the columns.
pub(crate) fn all() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(Ours::new()),
        Box::new(tbb::Tbb::new()),
        Box::new(tokio_tasks::TokioTasks),
        Box::new(executor_tasks::ExecutorTasks),
        Box::new(unordered::Unordered),
    ]
}

/// How a shape is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) workers: Workers,
    pub(crate) payload: Payload,
    /// How long each node spins.
    pub(crate) work_ns: u64,
    /// How many runs are timed.
    pub(crate) runs: usize,
    /// Whether a counting run must first show that every node runs exactly once.
    pub(crate) is_checked: bool,
}

/// The work of nodes, besides spinning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Nothing: one empty closure for all.
    Empty,
    /// Nothing, with as many different closures as `Values` needs: the cost of calls that the processor
    /// cannot predict. Only measured for this library.
    Assorted,
    /// Each adds up its predecessors' `u64`s, plus one.
    Values,
}

/// The threads that run the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// The thread that waits for the run.
    Inline,
    /// This many threads.
    Threads(usize),
}

impl Workers {
    /// Returns the number of threads besides the one that waits.
    pub(crate) fn threads(self) -> usize {
        match self {
            Self::Inline => 0,
            Self::Threads(count) => count,
        }
    }
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count @ 1..) => Ok(Self::Threads(count)),
            _ if text == "inline" => Ok(Self::Inline),
            _ => Err(format!("`{text}` is neither `inline` nor a number of threads")),
        }
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline => f.pad("inline"),
            Self::Threads(count) => count.fmt(f),
        }
    }
}
