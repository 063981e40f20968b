//! A timeline: an observer that keeps the spans of nodes and operations, up to a bound.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Launched, NodeSpan, Observer, OpSpan};
use crate::error::Result;
use crate::plan::gantt::{Gantt, Ran};
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
    spans_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    nodes: Vec<NodeSpan>,
    operations: Vec<OpSpan>,
    /// How many nodes came when it was full.
    nodes_left_out: u64,
}

impl Timeline {
    /// Returns an empty timeline that keeps the first `spans_max` nodes, and as many operations.
    pub fn new(spans_max: usize) -> Self {
        Self { spans_max, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the nodes of runs so far, in the order in which they ended.
    pub fn spans(&self) -> Vec<NodeSpan> {
        self.kept().nodes.clone()
    }

    /// Returns the operations of engines and flows so far, in the order in which they ended.
    pub fn operations(&self) -> Vec<OpSpan> {
        self.kept().operations.clone()
    }

    /// Returns the runs of a plan, in the order in which they began: for each the spans of its nodes, from
    /// its beginning on, as [`Schedule::to_svg`](crate::plan::Schedule::to_svg) draws them. A loop or a
    /// branch is one span; the nodes that ran in it are among [`Timeline::spans`]. Of a pipeline, each item
    /// counts as a run.
    pub fn runs(&self, plan: &Plan) -> Vec<Vec<Span>> {
        let mut runs: BTreeMap<(u64, u64), Vec<NodeSpan>> = BTreeMap::new();
        let nodes = plan.schedule().shape().nodes().len();
        let spans = self.spans().into_iter().filter(|span| span.plan.is_same(plan) && span.id.index() < nodes);
        spans.for_each(|span| runs.entry((span.run, span.item)).or_default().push(span));
        let begin = |spans: &[NodeSpan]| spans.iter().map(|span| span.start).min().expect("a run has a span");
        let mut runs: Vec<Vec<NodeSpan>> = runs.into_values().collect();
        runs.sort_by_key(|spans| begin(spans));
        let drawn = |spans: &Vec<NodeSpan>| {
            let begin = begin(spans);
            let us = |time: Instant| (time - begin).as_secs_f64() * 1e6;
            let span = |&NodeSpan { id: node, stream, start, end, .. }: &NodeSpan| Span {
                node,
                stream,
                start_us: us(start),
                end_us: us(end),
            };
            spans.iter().map(span).collect()
        };
        runs.iter().map(drawn).collect()
    }

    /// Draws all runs as an SVG, from the first start on: a row for each node that the host, or a device, did
    /// at once, and a box for each node. The boxes of a run have one colour; of a run over items, those of an
    /// item. Nodes that failed have a red rim. A loop or a branch is one box. If the timeline was full, the
    /// title says how many nodes are left out.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use anabranch::{Executor, Pipeline, Ranked, Timeline};
    /// use futures::{StreamExt, stream};
    ///
    /// let squares = Pipeline::new("squares", &Ranked::default(), |g, x| g.task("square", &x, |x: &u64| x * x))?;
    /// let timeline = Arc::new(Timeline::new(100_000));
    /// let exec = Executor::builder().workers(2).observer(timeline.clone()).build()?;
    /// futures::executor::block_on(exec.pipe(&squares, stream::iter(0..4)).count());
    /// let picture = timeline.to_svg();
    /// # assert!(picture.contains("4 items · 4 nodes ran"), "{picture}");
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn to_svg(&self) -> String {
        let (mut spans, left_out) = {
            let kept = self.kept();
            (kept.nodes.clone(), kept.nodes_left_out)
        };
        let title = match left_out {
            0 => "timeline".into(),
            _ => format!("timeline, full: the first {} of {} nodes", spans.len(), spans.len() as u64 + left_out).into(),
        };
        spans.retain(|span| span.id.index() < span.plan.schedule().shape().nodes().len());
        spans.sort_by_key(|span| span.start);
        let over_items: HashSet<u64> = spans.iter().filter(|span| span.item > 0).map(|span| span.run).collect();
        let mut runs: Vec<(u64, u64)> = spans.iter().map(|span| (span.run, span.item)).collect();
        runs.sort_unstable();
        runs.dedup();
        let begin = spans.first().map(|span| span.start);
        let us = |time: Instant| begin.map_or(0.0, |begin| (time - begin).as_secs_f64() * 1e6);
        let (what, count) = (if over_items.is_empty() { "run" } else { "item" }, runs.len());
        let ran = |span: &NodeSpan| Ran {
            engine: device_of(span),
            start_us: us(span.start),
            end_us: us(span.end),
            name: span.node.to_string(),
            item: if over_items.contains(&span.run) { format!("#{}", span.item) } else { String::new() },
            group: runs.binary_search(&(span.run, span.item)).unwrap_or(0),
            has_failed: !span.is_ok,
        };
        let gantt = Gantt {
            title,
            counts: format!("{count} {what}{} · ", if count == 1 { "" } else { "s" }),
            makespan_us: spans.iter().map(|span| us(span.end)).fold(0.0, f64::max),
            ran: spans.iter().map(ran).collect(),
        };
        gantt.draw(|device, lane, is_alone| {
            let engine = device.map_or_else(|| "host".into(), |device| format!("GPU {device}"));
            if is_alone { engine } else { format!("{engine} · {lane}") }
        })
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
        let (kept, nodes) = (self.kept(), took.len());
        let spans = kept.nodes.iter().filter(|span| span.is_ok && is_counted(&span.plan) && span.id.index() < nodes);
        spans.for_each(|span| took[span.id.index()].push(span.end - span.start));
        let median = |took: &mut Vec<Duration>| {
            took.sort_unstable();
            took.get(took.len() / 2).map(|time| time.as_secs_f64() * 1e6)
        };
        took.iter_mut().map(median).collect()
    }
}

/// Returns the device that a node's work was enqueued on.
fn device_of(span: &NodeSpan) -> Option<u32> {
    match span.plan.schedule().kind(span.stream) {
        StreamKind::Device(device) if span.launched != Launched::Host => Some(device),
        _ => None,
    }
}

impl Plan {
    /// Compiles the plan's graph again with the times that its nodes really took: [`CriticalPath`] with as
    /// many streams on each device as this plan has on the device with the most. Nodes that the timeline does
    /// not know keep their `cost_us`. Of a kernel on a CUDA device a timeline knows only how long it took to
    /// enqueue its work: give it a `cost_us`, and time it on a host.
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
    fn node(&self, span: &NodeSpan) {
        let mut all = self.kept();
        if all.nodes.len() < self.spans_max {
            all.nodes.push(span.clone());
        } else {
            all.nodes_left_out += 1;
        }
    }

    fn operation(&self, span: &OpSpan) {
        let mut all = self.kept();
        if all.operations.len() < self.spans_max {
            all.operations.push(span.clone());
        }
    }
}
