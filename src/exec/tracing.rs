//! An observer that makes spans of the crate `tracing`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::span::EnteredSpan;
use tracing::{Level, Span, field, span};

use super::{Observer, Origin, RunId, Work, WorkKind, WorkSpan};
use crate::graph::NodeId;

/// An observer that makes a span of the crate [`tracing`](https://docs.rs/tracing) for each piece of work,
/// with the target `anabranch`. Needs the feature `tracing`.
///
/// | span | level | parent | follows from |
/// |---|---|---|---|
/// | `run`, `flow` | info | the span that was current where it was made | |
/// | `item` | debug | its run | |
/// | `node` | debug | its run, or its item | |
/// | `operation` of a flow | debug | its flow | |
/// | `operation` of an engine | debug | none: nothing awaits it, perhaps | the span that was current at its push |
///
/// Each span is open from the beginning of the work to its end. It is the current span while a thread runs
/// the body or polls the future. So what a body logs has the context of its run, and of the request that made
/// the run, on any thread. If spans of nodes are disabled, the span of the run is current in bodies.
///
/// | field | of | |
/// |---|---|---|
/// | `run` | all | the [`RunId`] |
/// | `name` | nodes, operations, runs of a named graph | |
/// | `item` | items | |
/// | `stream` | nodes | the stream of the plan |
/// | `wait_us` | all, when they end | from ready to begun |
/// | `ended` | what did not succeed | `failed` or `cancelled` |
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use anabranch::exec::Tracing;
/// use anabranch::{Executor, Graph, Inputs};
///
/// let mut g = Graph::new();
/// let a = g.task("a", (), || {
///     tracing::info!("in the context of node a, of its run, and of the request");
///     1
/// });
/// g.output("a", &a);
/// let plan = g.compile()?;
/// let exec = Executor::builder().workers(1).observer(Arc::new(Tracing::new())).build()?;
/// let _request = tracing::info_span!("request", id = 7).entered();
/// futures::executor::block_on(exec.run(&plan, Inputs::new()))?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Default)]
pub struct Tracing {
    /// Sharded by run, so that threads that work on different runs do not contend.
    shards: [Mutex<Spans>; SHARDS],
}

const SHARDS: usize = 16;

type Spans = HashMap<(RunId, Key), Span>;

/// The key of a piece of work in its run.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Run,
    Item(u64),
    Node(u64, NodeId),
    Operation(u32),
}

thread_local! {
    /// The spans that this thread has entered and not left.
    static ENTERED: RefCell<Vec<EnteredSpan>> = const { RefCell::new(Vec::new()) };
}

impl Tracing {
    /// Returns the observer. Give it to [`ExecutorBuilder::observer`](super::ExecutorBuilder::observer).
    pub fn new() -> Self {
        Self::default()
    }

    fn shard(&self, run: RunId) -> MutexGuard<'_, Spans> {
        let shard = &self.shards[run.get() as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the span of a piece of work. Without one, returns the span of its run.
    fn span_of(&self, work: &Work) -> Option<Span> {
        let spans = self.shard(work.run);
        spans.get(&(work.run, key(work))).or_else(|| spans.get(&(work.run, Key::Run))).cloned()
    }

    /// Returns the parent span of a node, an item or an operation of a flow.
    fn parent_of(&self, work: &Work) -> Span {
        let spans = self.shard(work.run);
        let item = || spans.get(&(work.run, Key::Item(work.item))).filter(|span| !span.is_disabled());
        let run = || spans.get(&(work.run, Key::Run));
        let parent = if let WorkKind::Node { .. } = work.kind { item().or_else(run) } else { run() };
        parent.cloned().unwrap_or_else(Span::none)
    }
}

fn key(work: &Work) -> Key {
    match work.kind {
        WorkKind::Run { .. } | WorkKind::Flow => Key::Run,
        WorkKind::Item { .. } => Key::Item(work.item),
        WorkKind::Node { id, .. } => Key::Node(work.item, id),
        WorkKind::Operation { number } => Key::Operation(number),
    }
}

impl Observer for Tracing {
    fn origin(&self) -> Option<Origin> {
        let current = Span::current();
        let is_there = !current.is_none();
        is_there.then(|| Arc::new(current) as Origin)
    }

    fn begins(&self, work: &Work, origin: Option<&Origin>) {
        let current = origin.and_then(|origin| origin.downcast_ref::<Span>());
        let span = open(work, current, || self.parent_of(work));
        if !span.is_disabled() {
            self.shard(work.run).insert((work.run, key(work)), span);
        }
    }

    fn enters(&self, work: &Work) {
        let span = self.span_of(work).unwrap_or_else(Span::none);
        // `leaves` removes the span, even if it is None.
        ENTERED.with_borrow_mut(|entered| entered.push(span.entered()));
    }

    fn leaves(&self, _: &Work) {
        // Dropped outside of the borrow, because the drop calls the subscriber.
        let entered = ENTERED.with_borrow_mut(Vec::pop);
        drop(entered);
    }

    fn ended(&self, span: &WorkSpan) {
        let work = &span.work;
        let Some(open) = self.shard(work.run).remove(&(work.run, key(work))) else { return };
        open.record("wait_us", span.wait_time().as_micros() as u64);
        if !span.is_ok() {
            open.record("ended", span.ended.name());
        }
    }
}

/// Opens the span of work that was handed over by code whose current span was `current`.
fn open(work: &Work, current: Option<&Span>, parent: impl FnOnce() -> Span) -> Span {
    let (run, name, item) = (work.run.get(), &*work.name, work.item);
    let none = Span::none();
    match &work.kind {
        WorkKind::Run { .. } => {
            let parent = current.unwrap_or(&none);
            span!(target: "anabranch", parent: parent, Level::INFO, "run", run, name, wait_us = field::Empty, ended = field::Empty)
        }
        WorkKind::Flow => {
            let parent = current.unwrap_or(&none);
            span!(target: "anabranch", parent: parent, Level::INFO, "flow", run, wait_us = field::Empty, ended = field::Empty)
        }
        WorkKind::Item { .. } => {
            span!(target: "anabranch", parent: parent(), Level::DEBUG, "item", run, item, wait_us = field::Empty, ended = field::Empty)
        }
        WorkKind::Node { stream, .. } => {
            span!(target: "anabranch", parent: parent(), Level::DEBUG, "node", run, name, stream, wait_us = field::Empty, ended = field::Empty)
        }
        WorkKind::Operation { .. } => {
            let parent = parent();
            let is_awaited = !parent.is_none();
            let span = span!(target: "anabranch", parent: parent, Level::DEBUG, "operation", run, name, wait_us = field::Empty, ended = field::Empty);
            if let Some(current) = current.filter(|_| !is_awaited) {
                span.follows_from(current);
            }
            span
        }
    }
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing").finish_non_exhaustive()
    }
}
