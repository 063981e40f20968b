//! A timeline: an observer that keeps the spans of all work, up to a bound.

mod svg;
#[cfg(feature = "json")]
mod trace;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::{Observer, RunId, Work, WorkKind, WorkSpan, WorkThread};
use crate::error::Result;
use crate::graph::NodeId;
use crate::plan::{CriticalPath, Plan, Span, StreamKind};

/// An observer that keeps the spans of all work, up to a bound: for pictures, for traces, and for the costs
/// of nodes. One timeline can observe several executors.
///
/// ```
/// use std::sync::Arc;
/// use anabranch::{Executor, Timeline};
///
/// let timeline = Arc::new(Timeline::new(100_000));
/// let exec = Executor::builder().observer(timeline.clone()).build()?;
/// // ... runs ...
/// assert!(timeline.spans().is_empty());
/// # drop(exec);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug)]
pub struct Timeline {
    spans_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default, Clone)]
struct Kept {
    spans: Vec<WorkSpan>,
    /// How many spans came when it was full.
    left_out: u64,
    /// The names of threads.
    threads: Vec<(ThreadId, String)>,
}

impl Timeline {
    /// Returns an empty timeline that keeps the first `spans_max` spans.
    pub fn new(spans_max: usize) -> Self {
        Self { spans_max, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all work so far, in the order in which it ended.
    pub fn spans(&self) -> Vec<WorkSpan> {
        self.kept().spans.clone()
    }

    /// Returns the nodes of runs so far, in the order in which they ended.
    pub fn nodes(&self) -> Vec<WorkSpan> {
        self.kept().spans.iter().filter(|span| span.work.node_id().is_some()).cloned().collect()
    }

    /// Returns the operations of engines and flows so far, in the order in which they ended.
    pub fn operations(&self) -> Vec<WorkSpan> {
        self.kept().spans.iter().filter(|span| span.work.is_operation()).cloned().collect()
    }

    /// Returns the runs of a plan, in the order in which they began: for each the spans of its nodes, from
    /// its beginning on, as [`Schedule::to_svg`](crate::plan::Schedule::to_svg) draws them. A loop or a
    /// branch is one span; the nodes that ran in it are among [`Timeline::nodes`]. Of a pipeline, each item
    /// counts as a run.
    pub fn runs(&self, plan: &Plan) -> Vec<Vec<Span>> {
        let nodes = self.nodes();
        let mut runs: BTreeMap<(RunId, u64), Vec<&WorkSpan>> = BTreeMap::new();
        for span in nodes.iter().filter(|span| outer_node(&span.work).is_some_and(|(of, ..)| of.is_same(plan))) {
            runs.entry((span.work.run, span.work.item)).or_default().push(span);
        }
        let begin = |spans: &[&WorkSpan]| spans.iter().map(|span| span.ran().0).min();
        let mut runs: Vec<Vec<&WorkSpan>> = runs.into_values().collect();
        runs.sort_by_key(|spans| begin(spans));
        let drawn = |spans: &Vec<&WorkSpan>| {
            let us = |time: Instant| begin(spans).map_or(0.0, |begin| (time - begin).as_secs_f64() * 1e6);
            let drawn = spans.iter().filter_map(|span| Some((span, outer_node(&span.work)?)));
            let drawn = drawn.map(|(span, of)| (span.ran(), of));
            drawn.map(|((start, end), (_, id, stream))| Span::new(id, stream, us(start), us(end))).collect()
        };
        runs.iter().map(drawn).collect()
    }

    /// Returns, for each node of a plan, the median of how long it took, in microseconds; none for nodes that
    /// have not succeeded yet.
    pub fn costs_us(&self, plan: &Plan) -> Vec<Option<f64>> {
        self.medians_us(plan, |of| of.is_same(plan))
    }

    /// Returns the same for all plans of its graph together.
    pub(crate) fn costs_of_graph_us(&self, plan: &Plan) -> Vec<Option<f64>> {
        self.medians_us(plan, |of| of.is_of_same_graph(plan))
    }

    fn medians_us(&self, plan: &Plan, is_counted: impl Fn(&Plan) -> bool) -> Vec<Option<f64>> {
        let mut took: Vec<Vec<Duration>> = vec![Vec::new(); plan.schedule().shape().nodes().len()];
        for span in self.kept().spans.iter().filter(|span| span.is_ok()) {
            if let Some((_, id, _)) = outer_node(&span.work).filter(|(of, ..)| is_counted(of)) {
                took[id.index()].push(span.run_time());
            }
        }
        let median = |took: &mut Vec<Duration>| {
            took.sort_unstable();
            took.get(took.len() / 2).map(|time| time.as_secs_f64() * 1e6)
        };
        took.iter_mut().map(median).collect()
    }
}

/// Returns the plan, the node and its stream, if it is a node that is in no loop or branch.
fn outer_node(work: &Work) -> Option<(&Plan, NodeId, u32)> {
    match &work.kind {
        WorkKind::Node { plan, id, stream } if id.index() < plan.schedule().shape().nodes().len() => Some((plan, *id, *stream)),
        _ => None,
    }
}

impl Plan {
    /// Compiles the plan's graph again with the times that its nodes really took: [`CriticalPath`] with as
    /// many streams on each device as this plan has on the device with the most. Nodes that the timeline does
    /// not know keep their `cost_us`. Of kernels on CUDA devices it knows what they took only with [device
    /// times](crate::exec::ExecutorBuilder); without them, only how long it took to enqueue their work.
    ///
    /// A timeline without a run of the plan changes no cost. So make it the
    /// [observer](crate::exec::ExecutorBuilder::observer) of an executor, and run the plan there first.
    ///
    /// # Errors
    /// As [`Graph::compile`](crate::Graph::compile), whose checks this plan has passed.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use anabranch::{Executor, Graph, Inputs, Timeline};
    ///
    /// let mut g = Graph::new();
    /// let a = g.task("a", (), || 1);
    /// g.output("a", &a);
    /// let plan = g.compile()?;
    /// let timeline = Arc::new(Timeline::new(100_000));
    /// let exec = Executor::builder().observer(timeline.clone()).build()?;
    /// futures::executor::block_on(exec.run(&plan, Inputs::new()))?;
    ///
    /// let picture = plan.schedule().to_svg(&timeline.runs(&plan)[0]);
    /// let better = plan.recompile(&timeline)?;
    /// # assert!(picture.starts_with("<svg") && better.schedule().policy() == "critical-path");
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn recompile(&self, timeline: &Timeline) -> Result<Plan> {
        let schedule = self.schedule();
        let mut streams: BTreeMap<u32, u32> = BTreeMap::new();
        for stream in 0..schedule.streams() {
            if let StreamKind::Device(device) = schedule.kind(stream) {
                *streams.entry(device).or_default() += 1;
            }
        }
        let most = streams.into_values().max().unwrap_or(1);
        self.inner().recompile(&timeline.costs_us(self), &CriticalPath::default().streams(most))
    }
}

impl Observer for Timeline {
    fn needs_begins(&self) -> bool {
        false
    }

    fn ended(&self, span: &WorkSpan) {
        let mut kept = self.kept();
        if kept.spans.len() == self.spans_max {
            kept.left_out += 1;
            return;
        }
        // There are few threads, and most often it is one of the first.
        if !kept.threads.iter().any(|(id, _)| *id == span.thread.id) {
            kept.threads.push((span.thread.id, thread_name(span.thread)));
        }
        kept.spans.push(span.clone());
    }
}

/// Returns a name for this thread.
fn thread_name(thread: WorkThread) -> String {
    match (thread.worker, std::thread::current().name()) {
        (Some(worker), _) => format!("worker {worker}"),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "a thread".to_owned(),
    }
}
