//! Streams of whole runs: each begins when those before it have ended.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::core::Core;
use super::inner::COMPLETE;
use super::{Inputs, Run};
use crate::bridge::{Lane, WaiterKey};
use crate::plan::Plan;
use crate::sync::{Mutex, lock};

/// A stream that whole runs are scheduled onto, one after the other; made by [`Executor::stream`](crate::Executor::stream). Runs of
/// different plans may follow each other, and what is not on the stream is not held up by it.
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

    /// Makes a run of `plan` that begins when all runs made before it on this stream have ended, or have been dropped and their last
    /// node is done. Otherwise as [`Executor::run`](crate::Executor::run).
    ///
    /// A run that is neither polled nor dropped keeps its place, and those behind it wait. A run does not count among those in flight
    /// before its turn comes.
    pub fn run(&self, plan: &Plan, inputs: Inputs) -> Run {
        Run::in_turn(&self.core, plan, inputs, |lane| self.queue.join(lane))
    }
}

impl fmt::Debug for SerialStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SerialStream").field("queued", &lock(&self.queue.runs).lanes.len()).finish()
    }
}

/// The runs of a stream.
#[derive(Default)]
struct Queue {
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    /// The lanes of runs that may not have ended, in their order.
    lanes: VecDeque<Arc<Lane>>,
    /// The number of the first.
    first: u64,
}

impl Runs {
    fn forget_ended(&mut self) {
        // A lane that is dropped here has no waiters: it was signalled.
        while self.lanes.front().is_some_and(|lane| lane.has_reached(COMPLETE)) {
            self.lanes.pop_front();
            self.first += 1;
        }
    }
}

impl Queue {
    fn join(self: &Arc<Self>, lane: &Arc<Lane>) -> Turn {
        let mut runs = lock(&self.runs);
        runs.forget_ended();
        runs.lanes.push_back(lane.clone());
        let number = runs.first + runs.lanes.len() as u64 - 1;
        Turn { queue: self.clone(), number, lane: lane.clone(), awaited: None }
    }
}

/// A run's place on its stream.
pub(super) struct Turn {
    queue: Arc<Queue>,
    number: u64,
    lane: Arc<Lane>,
    /// The run that this one has asked to be told of.
    awaited: Option<(Arc<Lane>, WaiterKey)>,
}

impl Turn {
    /// Returns whether all runs before this one have ended; if not, the run's lane is rung when it is worth asking again.
    pub(super) fn poll(&mut self) -> Poll<()> {
        let ring = Waker::from(Arc::new(Ring(self.lane.clone())));
        while let Some(before) = self.before() {
            if !self.awaited.as_ref().is_some_and(|(lane, _)| Arc::ptr_eq(lane, &before)) {
                self.forget();
            }
            let (lane, key) = self.awaited.get_or_insert_with(|| (before, WaiterKey::default()));
            if lane.poll(COMPLETE, key, &mut Context::from_waker(&ring)).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Returns the lane of the nearest run before this one that has not ended.
    fn before(&self) -> Option<Arc<Lane>> {
        let mut runs = lock(&self.queue.runs);
        runs.forget_ended();
        let place = self.number.checked_sub(runs.first)?;
        runs.lanes.range(..place as usize).rev().find(|lane| !lane.has_reached(COMPLETE)).cloned()
    }

    fn forget(&mut self) {
        if let Some((lane, mut key)) = self.awaited.take() {
            lane.forget(&mut key);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Rings a run's lane, so that its tasks look again.
struct Ring(Arc<Lane>);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}
