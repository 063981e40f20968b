//! Jobs: async nodes with several values, whose bodies are not user closures. Rooms below this one use them
//! for their own kinds of nodes.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Backend;
use super::NodeId;
use super::body::Body;
use super::builder::{Graph, NodeWork};
use super::communication::{Communication, Ranks};
use super::handle::Value;
use super::values::{Maker, Transfer, Type, Use, ValueInfo};
use crate::device::StreamMut;
use crate::error::{BoxError, Error, Result};
use crate::name::Name;
use crate::value::args::Data;
use crate::value::{Call, Cells, Outcome, Slot, TypedBody};

/// A value that a job reads.
pub(crate) type Shared = Arc<dyn Any + Send + Sync>;
/// A value that a job makes.
pub(crate) type Made = Box<dyn Any + Send + Sync>;
/// The work of a job in one run. It returns one value for each declared value, of the declared type.
pub(crate) type JobFuture = Pin<Box<dyn Future<Output = Result<Vec<Made>, BoxError>> + Send>>;

/// What the nodes of one run share beside its values. The plan makes one for each run.
pub(crate) trait RunContext: Any + Send + Sync {
    /// Gets the failure of a node, by its full name, while other nodes may still run.
    fn fail(&self, node: &Name, error: &Error);
    /// Gets the verdict of the run, before the tasks that await it are woken.
    fn end(&self, verdict: &Result<()>);
}

/// The context of a run, as its nodes read it.
pub(crate) type SharedContext = Arc<dyn RunContext>;

/// Facts about a job that the plan of a graph has, in addition to its node.
pub(crate) trait Detail: Any + fmt::Display + Send + Sync {}

/// The body of a job.
pub(crate) trait Job: Send + Sync + 'static {
    /// Returns the work of the job in a run, from the values that it reads, and the context of the run if it
    /// reads that.
    fn start(&self, given: Vec<Shared>, context: Option<SharedContext>) -> JobFuture;
}

/// A job whose reads and values are being declared. Its node is in the graph.
pub(crate) struct NewJob<'g> {
    graph: &'g mut Graph,
    node: NodeId,
    reads: Vec<JobRead>,
    context: Option<Slot<SharedContext>>,
    first: u32,
    outs: Vec<(u32, &'static Transfer)>,
}

impl Graph {
    /// Adds the node of a job. [`NewJob::end`] completes it.
    pub(crate) fn job(&mut self, name: Name) -> NewJob<'_> {
        let node = self.shape_mut().node(name, Backend::Cpu);
        let first = self.values.len() as u32;
        NewJob { graph: self, node, reads: Vec::new(), context: None, first, outs: Vec::new() }
    }
}

impl NewJob<'_> {
    /// Adds a read of a value, of this graph or of one around it.
    pub(crate) fn read<T: Data>(&mut self, value: &Value<T>) {
        let slot = self.graph.read_value(value, self.node, Use::Await);
        self.reads.push(JobRead { offset: slot.offset(), get: Type::of::<T>().transfer.share });
    }

    /// Adds a read of a value that the job takes: it gets the `Arc` that the run has.
    pub(crate) fn take<T: Data>(&mut self, value: &Value<T>) {
        let slot = self.graph.read_value(value, self.node, Use::Take);
        self.reads.push(JobRead { offset: slot.offset(), get: Type::of::<T>().transfer.take_as_shared });
    }

    /// Makes the job a node of communication, which reads the context of the run.
    pub(crate) fn communicate(&mut self, communication: Communication) {
        let before = self.graph.chain.add(self.node, communication.is_collective());
        let shape = self.graph.shape_mut();
        shape.nodes_mut()[self.node.index()].communication = Some(Arc::new(communication));
        before.into_iter().for_each(|before| shape.order(before, self.node));
        self.read_context();
    }

    /// Lets the job read the context of the run.
    pub(crate) fn read_context(&mut self) {
        let Graph { context, layout, .. } = &mut *self.graph;
        self.context = Some(*context.get_or_insert_with(|| layout.slot()));
    }

    /// Makes the job a transfer, which is a node of communication that no loop or branch needs an order with.
    pub(crate) fn transfer(&mut self, communication: Communication, ranks: Ranks) {
        let node = &mut self.graph.shape_mut().nodes_mut()[self.node.index()];
        (node.communication, node.ranks) = (Some(Arc::new(communication)), Some(ranks));
        self.read_context();
    }

    /// Adds a read of a value of this graph, by its number. If `is_here` is false, the graph shows the read,
    /// and the job does not get the value.
    pub(crate) fn read_number(&mut self, value: u32, is_here: bool) {
        let offset = self.graph.read_own(value, self.node, Use::Await);
        if is_here {
            self.reads.push(JobRead { offset, get: self.graph.values[value as usize].of.transfer.share });
        }
    }

    /// Makes a value again, on a rank where its node does not run: of the same type, in the same cell. If
    /// `is_here` is false, the graph shows the value, and the job does not make it.
    pub(crate) fn make_again(&mut self, value: u32, taker: Option<NodeId>, is_here: bool) {
        let ValueInfo { of, offset, .. } = self.graph.values[value as usize];
        let again = self.graph.value_of_type(of, offset, Maker::Node(self.node));
        let again = &mut self.graph.values[again as usize];
        (again.is_read, again.taker) = (true, taker);
        if is_here {
            self.outs.push((offset, of.transfer));
        }
    }

    /// Adds an order edge from another node.
    pub(crate) fn after(&mut self, before: NodeId) {
        self.graph.shape_mut().order(before, self.node);
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the path of the node from the outermost graph on.
    pub(crate) fn full_name(&self) -> Name {
        self.graph.full_name(self.node)
    }

    /// Adds a value that the job makes.
    pub(crate) fn make<T: Data>(&mut self) -> Value<T> {
        let slot = self.graph.layout.slot::<T>();
        self.outs.push((slot.offset(), Type::of::<T>().transfer));
        self.graph.value(slot, Maker::Node(self.node))
    }

    /// Keeps a mistake instead of the job, so that the graph does not compile.
    pub(crate) fn fail(self, error: Error) {
        self.graph.mistake(error);
        self.add(Box::new(Never));
    }

    /// Adds facts for plans of the graph, under the node's name.
    pub(crate) fn detail(&mut self, detail: Arc<dyn Detail>) {
        let name = self.full_name();
        self.graph.details.push((name, detail));
    }

    /// Completes the node.
    pub(crate) fn end(self, job: Box<dyn Job>) {
        self.add(job);
    }

    fn add(self, job: Box<dyn Job>) {
        let Self { graph, reads, context, first, outs, .. } = self;
        let (values, future) = (graph.values.len() as u32 - first, graph.layout.slot::<JobFuture>());
        graph.bodies.push(JobBody { job, reads, context, outs, future }, |body| body);
        graph.works.push(NodeWork { value: first, values, is_async: true, is_control: false });
    }
}

impl Graph {
    /// Returns the cells of values that no node releases. A node is not released if one of its values leaves
    /// the graph, and a job may have other values beside that one; or if no node reads its values.
    pub(crate) fn left_behind(&self) -> Vec<(u32, &'static Transfer)> {
        let outputs = self.shape().outputs();
        let is_output = |node: NodeId| outputs.iter().any(|&(output, _)| output == node);
        let jobs = (0..).map(NodeId).zip(&self.works).filter(|(_, work)| work.values > 1 && !work.is_control);
        let unread = self.unread.iter().map(|&node| (node, &self.works[node.index()]));
        let values = jobs.filter(|&(node, _)| is_output(node)).chain(unread).flat_map(|(node, work)| {
            let others = (0..work.values).filter(move |&value| !outputs.contains(&(node, value)));
            others.map(|value| &self.values[(work.value + value) as usize])
        });
        values.map(|value| (value.offset, value.of.transfer)).collect()
    }
}

/// The job of a graph that does not compile. It never runs.
struct Never;

impl Job for Never {
    fn start(&self, _: Vec<Shared>, _: Option<SharedContext>) -> JobFuture {
        unreachable!("a graph with a mistake has no runs")
    }
}

/// A value that a job reads, and how it gets that: by `share` or `take_as_shared` of its type.
struct JobRead {
    offset: u32,
    get: fn(Cells<'_>, u32) -> Shared,
}

struct JobBody {
    job: Box<dyn Job>,
    reads: Vec<JobRead>,
    context: Option<Slot<SharedContext>>,
    outs: Vec<(u32, &'static Transfer)>,
    future: Slot<JobFuture>,
}

impl TypedBody for JobBody {
    fn run(&self, _: Cells<'_>, _: StreamMut<'_>) -> Outcome {
        unreachable!("async nodes are polled")
    }
}

impl Body for JobBody {
    fn call(&self, is_in_place: bool) -> Call {
        Call::of(self, is_in_place)
    }

    fn poll(&self, cells: Cells<'_>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let start = || {
            let given = self.reads.iter().map(|read| (read.get)(cells, read.offset)).collect();
            self.job.start(given, self.context.map(|context| cells.get(context).clone()))
        };
        cells.poll(self.future, start, cx).map_ok(|made| {
            debug_assert_eq!(made.len(), self.outs.len(), "a job makes the values that it declared");
            for (value, &(offset, of)) in made.into_iter().zip(&self.outs) {
                // In a loop, the value of the previous iteration may still be there.
                (of.clear)(cells, offset);
                (of.fill)(cells, offset, value);
            }
        })
    }

    fn abort(&self, cells: Cells<'_>) {
        cells.clear(self.future);
    }

    fn release(&self, cells: Cells<'_>) {
        self.outs.iter().for_each(|(offset, of)| (of.clear)(cells, *offset));
    }

    fn needs_release(&self) -> bool {
        true
    }
}
