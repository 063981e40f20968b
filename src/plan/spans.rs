//! The times when nodes run: spans on the streams of a schedule, from its costs, a simulation or a real run.
//! Also the critical path.

use std::collections::HashMap;

use super::order::waiting_links;
use super::runs::{Run, Runs};
use super::schedule::Takes;
use super::{Schedule, StreamKind};
use crate::graph::{COST_US_MAX, NODES_MAX, NodeId, Role};

/// The latest end of a span that is drawn: the largest total cost of all nodes of the largest graph.
const END_US_MAX: f64 = COST_US_MAX * NODES_MAX as f64;

/// The time in which one node ran on one stream. Times are in microseconds from the start.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::plan::Span;
///
/// let mut shape = Shape::new();
/// let [a, b] = ["a", "b"].map(|name| shape.node(name, Backend::Gpu));
/// shape.read(a, 0, b);
/// shape.nodes_mut()[a.index()].cost_us = 5.0;
/// let spans = shape.schedule()?.spans();
/// assert_eq!(spans[1], Span::new(b, 0, 5.0, 6.0));
/// assert_eq!(Span::makespan_us(&spans), 6.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Span {
    /// The node.
    pub node: NodeId,
    /// The stream of the schedule.
    pub stream: u32,
    /// The time when the node began.
    pub start_us: f64,
    /// The time when the node ended.
    pub end_us: f64,
}

impl Span {
    /// Returns a span, with times in microseconds.
    pub fn new(node: NodeId, stream: u32, start_us: f64, end_us: f64) -> Self {
        Self { node, stream, start_us, end_us }
    }

    /// Returns the latest end of these spans, in microseconds. NaN counts as 0.
    pub fn makespan_us(spans: &[Self]) -> f64 {
        spans.iter().map(|span| span.end_us).fold(0.0, f64::max)
    }
}

impl Schedule {
    /// Computes the duration of loops and branches, inner before outer.
    pub(super) fn time_controls(&mut self) {
        let mut takes: Vec<Takes> = vec![Takes::default(); self.inner.len()];
        // The inner graphs of a control are consecutive.
        for at in (0..self.inner.len()).rev() {
            let inner = self.inner[at].schedule();
            takes[at] = Takes { spans_us: Span::makespan_us(&inner.spans()), path_us: inner.critical_path_us() };
            let (around, node) = (self.inner[at].around(), self.inner[at].node());
            let is_first = at == 0 || (self.inner[at - 1].around(), self.inner[at - 1].node()) != (around, node);
            if !is_first {
                continue;
            }
            let siblings = self.inner[at..]
                .iter()
                .zip(&takes[at..])
                .take_while(|(inner, _)| (inner.around(), inner.node()) == (around, node));
            let of: HashMap<Role, Takes> = siblings.map(|(inner, takes)| (inner.role(), *takes)).collect();
            let of = |role| of.get(&role).copied().unwrap_or_default();
            let schedule = around.map_or(&*self, |around| self.inner[around].schedule());
            let Some(control) = schedule.shape().nodes()[node.index()].control.clone() else { continue };
            // The bound is the largest cost of a node: nested loops could exceed the range of an `f64`.
            let takes_us = |us: fn(&Takes) -> f64| control.takes_us(|role| us(&of(role))).min(COST_US_MAX);
            let (spans_us, path_us) = (takes_us(|takes| takes.spans_us), takes_us(|takes| takes.path_us));
            let controls_us = match around {
                None => &mut self.controls_us,
                Some(around) => &mut self.inner[around].0.graph.controls_us,
            };
            controls_us.insert(node, Takes { spans_us, path_us });
        }
    }

    /// Returns the span of each node if a node takes its `cost_us`, and nothing else takes time. A stream
    /// delays the nodes behind the current one, and a device runs any number of streams at once. A loop or a
    /// branch takes as long as its inner graphs, at most 10^12 µs. The spans are in issue order. A node on
    /// several streams has a span on each.
    pub fn spans(&self) -> Vec<Span> {
        let runs = Runs::new(self);
        let mut spans: Vec<Span> = Vec::with_capacity(runs.all.len());
        for (index, &Run { node, stream }) in runs.all.iter().enumerate() {
            let start_us = runs.before(index).map(|before| spans[before].end_us).fold(0.0, f64::max);
            let end_us = start_us + self.takes_us(node);
            spans.push(Span { node, stream, start_us, end_us });
        }
        spans
    }

    /// Returns the cost of the most expensive path through the graph, in microseconds. It is a lower bound
    /// for any schedule. A loop or a branch counts at most 10^12 µs.
    pub fn critical_path_us(&self) -> f64 {
        self.dearest_path_us(|node| self.controls_us.get(&node).map_or_else(|| self.cost_us(node), |takes| takes.path_us))
    }

    /// Returns the duration of a node in these spans, in microseconds.
    pub(crate) fn takes_us(&self, node: NodeId) -> f64 {
        self.controls_us.get(&node).map_or_else(|| self.cost_us(node), |takes| takes.spans_us)
    }

    /// Returns the cost of a node. A branch without arms takes no time.
    fn cost_us(&self, node: NodeId) -> f64 {
        let node = &self.shape().nodes()[node.index()];
        if node.control.is_some() { 0.0 } else { node.cost_us }
    }

    pub(super) fn dearest_path_us(&self, cost_us: impl Fn(NodeId) -> f64) -> f64 {
        let waiting = waiting_links(self.shape(), self.phases());
        let sources = |node| waiting.as_ref().map_or_else(|| self.predecessors(node), |links| links.into.of(node));
        let mut ends_us = vec![0.0; self.order().len()];
        let mut longest = 0.0;
        for &node in self.order() {
            let start_us = sources(node).iter().map(|source| ends_us[source.index()]).fold(0.0, f64::max);
            ends_us[node.index()] = start_us + cost_us(node);
            longest = f64::max(longest, ends_us[node.index()]);
        }
        longest
    }

    /// Returns the spans that can be drawn: those of nodes on the streams that run them, with valid times.
    pub(super) fn shown<'a>(&self, spans: &'a [Span]) -> impl Iterator<Item = &'a Span> + Clone {
        let nodes = self.shape().nodes().len();
        spans.iter().filter(move |span| {
            let is_run = span.node.index() < nodes && self.streams_of(span.node).any(|stream| stream == span.stream);
            is_run && 0.0 <= span.start_us && span.start_us <= span.end_us && span.end_us <= END_US_MAX
        })
    }

    /// Returns how much of the makespan of these spans the policy's streams were busy, from 0 to 1. Without
    /// such streams, the host streams count. Spans that [`Schedule::to_svg`] leaves out do not count.
    pub fn utilisation(&self, spans: &[Span]) -> f64 {
        let is_device = |stream: u32| self.kind(stream) != StreamKind::Host;
        let has_device = (0..self.streams()).any(is_device);
        let streams = (0..self.streams()).filter(|&stream| is_device(stream) == has_device).count();
        let busy = self.shown(spans).filter(|span| is_device(span.stream) == has_device);
        let busy_us: f64 = busy.map(|span| span.end_us - span.start_us).sum();
        let room_us = self.shown(spans).map(|span| span.end_us).fold(0.0, f64::max) * streams as f64;
        if room_us > 0.0 { busy_us / room_us } else { 0.0 }
    }
}

/// Returns for each run, by its number, whether it is on the critical path.
///
/// The path starts at the run that ended last. It continues with the direct predecessor that ended last, and
/// so on.
pub(super) fn on_critical_path(runs: &Runs<'_>, spans: &[Option<Span>]) -> Vec<bool> {
    let mut is_on = vec![false; runs.all.len()];
    let end_us = |run: usize| spans[run].map_or(f64::NEG_INFINITY, |span| span.end_us);
    let last = |runs: &mut dyn Iterator<Item = usize>| {
        runs.max_by(|&one, &other| end_us(one).total_cmp(&end_us(other)).then(other.cmp(&one)))
    };
    let mut next = last(&mut (0..runs.all.len()));
    while let Some(run) = next {
        is_on[run] = true;
        next = last(&mut runs.before(run));
    }
    is_on
}
