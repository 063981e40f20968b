//! Who wants to know when nodes ran. Off by default; an observed run reads the clock twice per node.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::inner::RunInner;
use crate::bridge::shielded;
use crate::error::Kind;

/// Is told of every node that ran, by the thread that ran it. An observer that panics fails the run.
pub trait Observer: Send + Sync + 'static {
    /// Called after a node's body, or an async node's last poll.
    fn node(&self, span: &NodeSpan<'_>);
}

/// When and where one node ran.
#[derive(Debug, Clone, Copy)]
pub struct NodeSpan<'a> {
    /// Tells runs of one executor apart: equal for the nodes of one run, different for runs that overlap.
    pub run: usize,
    /// The node's name.
    pub node: &'a str,
    /// The stream of the plan that it ran on.
    pub stream: u32,
    /// When its body was called, or an async node first polled.
    pub started: Instant,
    /// When it was done.
    pub ended: Instant,
    /// Whether it succeeded.
    pub is_ok: bool,
}

impl RunInner {
    pub(super) fn observe(&self, step: u32, started: Instant, is_ok: bool) {
        let Some(observer) = &self.core.observer else { return };
        let (plan, code) = (self.plan(), &self.plan().code);
        let node = code.nodes[step as usize];
        let name = plan.schedule.shape().name_of(node);
        let span = NodeSpan {
            run: std::ptr::from_ref(self).addr(),
            node: name,
            stream: code.streams[code.program_of(step) as usize],
            started,
            ended: Instant::now(),
            is_ok,
        };
        if let Err(message) = shielded(|| observer.node(&span)) {
            self.add_fault(node, Kind::Observer { node: name.clone(), message }.into());
        }
    }
}

/// An observer that keeps what it is told, up to a bound.
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
    spans: Mutex<Vec<TimelineSpan>>,
}

/// One node of a [`Timeline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineSpan {
    /// See [`NodeSpan::run`].
    pub run: usize,
    /// The node's name.
    pub node: String,
    /// The stream of the plan that it ran on.
    pub stream: u32,
    /// When it started, since the timeline was made.
    pub start: Duration,
    /// When it was done, since the timeline was made.
    pub end: Duration,
    /// Whether it succeeded.
    pub is_ok: bool,
}

impl Timeline {
    /// Returns an empty timeline that keeps the first `spans_max` spans.
    pub fn new(spans_max: usize) -> Self {
        Self { origin: Instant::now(), spans_max, spans: Mutex::new(Vec::new()) }
    }

    /// Returns the spans so far, in the order in which nodes ended.
    pub fn spans(&self) -> Vec<TimelineSpan> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Timeline {
    fn node(&self, span: &NodeSpan<'_>) {
        let kept = TimelineSpan {
            run: span.run,
            node: span.node.to_owned(),
            stream: span.stream,
            start: span.started.saturating_duration_since(self.origin),
            end: span.ended.saturating_duration_since(self.origin),
            is_ok: span.is_ok,
        };
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < self.spans_max {
            spans.push(kept);
        }
    }
}
