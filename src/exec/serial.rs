//! Streams of whole runs: each begins when those before it have ended.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::core::Core;
use super::{Inputs, Run};
use crate::bridge::Lane;
use crate::plan::Plan;
use crate::sync::{Mutex, lock};

/// A stream that whole runs are scheduled onto, one after the other; made by
/// [`Executor::stream`](crate::Executor::stream). Runs of different plans may follow each other, and what is
/// not on the stream is not held up by it.
///
/// Cheap to clone; clones are the same stream.
///
/// # Examples
/// ```
/// use anabranch::{Executor, Graph, Inputs, Single};
///
/// let mut g = Graph::new();
/// let one = g.task("one", (), || 1);
/// g.output("one", &one);
/// let plan = g.compile(&Single)?;
/// let exec = Executor::host()?;
///
/// let stream = exec.stream();
/// let (first, second) = (stream.run(&plan, Inputs::new()), stream.run(&plan, Inputs::new()));
/// // Polled together; the second begins when the first has ended.
/// let (first, second) = futures::executor::block_on(async { futures::join!(first, second) });
/// # first?;
/// # second?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone)]
pub struct SerialStream {
    core: Arc<Core>,
    queue: Arc<Queue>,
}

impl SerialStream {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self { core: core.clone(), queue: Arc::default() }
    }

    /// Makes a run of `plan` that begins when all runs made before it on this stream have ended, or have been
    /// dropped and their last node is done. Otherwise as [`Executor::run`](crate::Executor::run).
    ///
    /// A run that is neither polled nor dropped keeps its place, and those behind it wait. A run does not
    /// count among those in flight before its turn comes.
    pub fn run(&self, plan: &Plan, inputs: Inputs) -> Run {
        // In a forked child the run is refused when it is polled, and the lock may be held for ever.
        Run::new(&self.core, plan, inputs, |lane| (!self.core.is_forked()).then(|| self.queue.join(lane)))
    }
}

impl fmt::Debug for SerialStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queued = if self.core.is_forked() { 0 } else { lock(&self.queue.runs).lanes.len() };
        f.debug_struct("SerialStream").field("queued", &queued).finish()
    }
}

/// The runs of a stream.
#[derive(Default)]
struct Queue {
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    /// The lanes of the runs that have not ended, by number.
    lanes: BTreeMap<u64, Arc<Lane>>,
    last_number: u64,
}

impl Runs {
    fn first(&self) -> Option<u64> {
        self.lanes.first_key_value().map(|(number, _)| *number)
    }
}

impl Queue {
    fn join(self: &Arc<Self>, lane: &Arc<Lane>) -> Turn {
        let mut runs = lock(&self.runs);
        runs.last_number += 1;
        let number = runs.last_number;
        runs.lanes.insert(number, lane.clone());
        Turn { queue: self.clone(), number }
    }
}

/// A run's place on its stream.
pub(super) struct Turn {
    queue: Arc<Queue>,
    number: u64,
}

impl Turn {
    /// Returns true if all runs before this one have ended. If not, the run's lane is woken when they have.
    pub(super) fn has_come(&self) -> bool {
        lock(&self.queue.runs).first() == Some(self.number)
    }

    /// Ends the run's turn. If the run was the first, wakes the next one, and no other.
    pub(super) fn end(&self) {
        let next = {
            let mut runs = lock(&self.queue.runs);
            let was_first = runs.first() == Some(self.number);
            runs.lanes.remove(&self.number);
            runs.lanes.first_key_value().filter(|_| was_first).map(|(_, lane)| lane.clone())
        };
        next.iter().for_each(|lane| lane.ring());
    }
}
