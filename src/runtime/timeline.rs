//! A timeline: an observer that keeps the spans of nodes and operations, up to a bound.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Launched, NodeSpan, Observer, OpSpan};
use crate::error::Result;
use crate::graph::NodeId;
use crate::name::Name;
use crate::plan::{CriticalPath, Plan, Span, StreamKind};

/// An observer that keeps the spans of nodes and operations, up to a bound.
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
    origin: Instant,
    spans_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    nodes: Vec<TimelineSpan>,
    operations: Vec<TimelineOp>,
}

/// One node of a [`Timeline`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TimelineSpan {
    /// See [`NodeSpan::run`].
    pub run: u64,
    /// The plan of the run.
    pub plan: Plan,
    /// The node, in the plan's shape.
    pub id: NodeId,
    /// The node's name.
    pub node: Name,
    /// The stream of the plan that it ran on.
    pub stream: u32,
    /// When it started, since the timeline was made.
    pub start: Duration,
    /// When it was done, since the timeline was made. For a kernel on a CUDA device: when its body had
    /// returned, which only enqueues the work.
    pub end: Duration,
    /// Whether it succeeded.
    pub is_ok: bool,
    /// How its work went to its device.
    pub launched: Launched,
}

/// One operation of a [`Timeline`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TimelineOp {
    /// See [`OpSpan::engine`].
    pub engine: u64,
    /// The operation's name.
    pub operation: Name,
    /// When it started, since the timeline was made.
    pub start: Duration,
    /// When it was done, since the timeline was made; of a kernel on a CUDA device, when its body had
    /// returned, which only asks for the work.
    pub end: Duration,
    /// Whether it succeeded.
    pub is_ok: bool,
    /// How its work went to its device.
    pub launched: Launched,
}

impl TimelineSpan {
    /// Returns the span of a node of run 0 that succeeded on a host: for tests of code that shows timelines.
    ///
    /// # Panics
    /// If the plan has no such node.
    pub fn new(plan: &Plan, id: NodeId, stream: u32, start: Duration, end: Duration) -> Self {
        let node = plan.inner().name_of(id);
        Self { run: 0, plan: plan.clone(), id, node, stream, start, end, is_ok: true, launched: Launched::Host }
    }
}

impl Timeline {
    /// Returns an empty timeline that keeps the first `spans_max` nodes, and as many operations.
    pub fn new(spans_max: usize) -> Self {
        Self { origin: Instant::now(), spans_max, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the nodes of runs so far, in the order in which they ended.
    pub fn spans(&self) -> Vec<TimelineSpan> {
        self.kept().nodes.clone()
    }

    /// Returns the operations of engines and flows so far, in the order in which they ended.
    pub fn operations(&self) -> Vec<TimelineOp> {
        self.kept().operations.clone()
    }

    fn since_origin(&self, time: Instant) -> Duration {
        time.saturating_duration_since(self.origin)
    }

    /// Returns the runs of a plan, in the order in which they began: for each the spans of its nodes, from
    /// its beginning on, as [`Schedule::to_svg`](crate::plan::Schedule::to_svg) draws them. A loop or a
    /// branch is one span; the nodes that ran in it are among [`Timeline::spans`].
    pub fn runs(&self, plan: &Plan) -> Vec<Vec<Span>> {
        let mut runs: BTreeMap<u64, Vec<TimelineSpan>> = BTreeMap::new();
        let nodes = plan.schedule().shape().nodes().len();
        let spans = self.spans().into_iter().filter(|span| span.plan.is_same(plan) && span.id.index() < nodes);
        spans.for_each(|span| runs.entry(span.run).or_default().push(span));
        let mut runs: Vec<(Duration, Vec<TimelineSpan>)> =
            runs.into_values().map(|spans| (spans.iter().map(|span| span.start).min().unwrap_or_default(), spans)).collect();
        runs.sort_by_key(|run| run.0);
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let span = |begin: Duration, span: &TimelineSpan| {
            let (start_us, end_us) = (us(span.start - begin), us(span.end - begin));
            Span { node: span.id, stream: span.stream, start_us, end_us }
        };
        runs.iter().map(|(begin, spans)| spans.iter().map(|each| span(*begin, each)).collect()).collect()
    }

    /// Returns, for each node of a plan, the median of how long it took, in microseconds; none for nodes that
    /// have not succeeded yet.
    pub fn costs_us(&self, plan: &Plan) -> Vec<Option<f64>> {
        let mut took: Vec<Vec<Duration>> = vec![Vec::new(); plan.schedule().shape().nodes().len()];
        let (kept, nodes) = (self.kept(), took.len());
        let spans = kept.nodes.iter().filter(|span| span.is_ok && span.plan.is_same(plan) && span.id.index() < nodes);
        spans.for_each(|span| took[span.id.index()].push(span.end - span.start));
        let median = |took: &mut Vec<Duration>| {
            took.sort_unstable();
            took.get(took.len() / 2).map(|time| time.as_secs_f64() * 1e6)
        };
        took.iter_mut().map(median).collect()
    }
}

impl Plan {
    /// Compiles the plan's graph again with the times that its nodes really took: [`CriticalPath`] with as
    /// many streams on each device as this plan has on the device with the most. Nodes that the timeline does
    /// not know keep their `cost_us`. Of a kernel on a CUDA device a timeline knows only how long it took to
    /// enqueue its work: give it a `cost_us`, and time it on a host.
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
    fn node(&self, span: &NodeSpan<'_>) {
        let kept = TimelineSpan {
            run: span.run,
            plan: span.plan.clone(),
            id: span.id,
            node: span.node.clone(),
            stream: span.stream,
            start: self.since_origin(span.started),
            end: self.since_origin(span.ended),
            is_ok: span.is_ok,
            launched: span.launched,
        };
        let mut all = self.kept();
        if all.nodes.len() < self.spans_max {
            all.nodes.push(kept);
        }
    }

    fn operation(&self, span: &OpSpan<'_>) {
        let kept = TimelineOp {
            engine: span.engine,
            operation: span.operation.clone(),
            start: self.since_origin(span.started),
            end: self.since_origin(span.ended),
            is_ok: span.is_ok,
            launched: span.launched,
        };
        let mut all = self.kept();
        if all.operations.len() < self.spans_max {
            all.operations.push(kept);
        }
    }
}
