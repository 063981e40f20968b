//! A schedule: one program of steps for each stream. It is immutable. The state that changes belongs to a
//! run.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::nest::Nested;
use super::order::{links_in_phases, waiting_links};
use super::parts::{Numbers, Parts};
use super::policy::ask;
use super::releases::{Releases, after_last_readers};
use super::steps::{Step, programs};
use super::stream_name::ScheduleStream;
use super::streams::Streams;
use super::waits::fewest;
use super::{EXACT_NODES_MAX, Policy};
use crate::error::{Kind, Result};
use crate::graph::{Links, NodeId, Role, Rows, Shape, kahn_order};

/// The most edges one graph may have.
const EDGES_MAX: usize = 1 << 30;

/// The kind of a stream: a device stream, or a chain of host work.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::plan::StreamKind;
///
/// let mut shape = Shape::new();
/// let (read, scale) = (shape.node("read", Backend::Cpu), shape.node("scale", Backend::Gpu));
/// shape.read(read, 0, scale);
/// let schedule = shape.schedule()?;
/// assert_eq!(schedule.kind(schedule.stream_of(scale)), StreamKind::Device(0));
/// assert_eq!(schedule.kind(schedule.stream_of(read)), StreamKind::Host);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamKind {
    /// A stream, chosen by the policy, of the device with this ordinal.
    Device(u32),
    /// A chain of host work.
    Host,
}

/// A graph's shape compiled by a policy: a program for each stream, with its nodes in order, and its waits.
///
/// Streams are numbered without gaps: first those that the policy used, by label, then those of the host. The
/// target of each edge comes after the source, on the same stream or by waits. No wait is redundant. In
/// graphs of more than 4,096 nodes a few may be, because the search for them is bounded. Compiling is
/// near-linear and does not recurse.
///
/// A node that reads only the shape and type of a value of a `gpu` or `mixed` node does not wait for that
/// value. It only comes later in the issue order. Metadata-only edges from `cpu` nodes are kept like all
/// others.
///
/// A node that spans several devices runs on a stream of each device. Each of these streams waits for all
/// inputs of the node. A reader on one of the devices waits for the stream of that device.
///
/// # Examples
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::policy::PerOperator;
///
/// let mut shape = Shape::new();
/// let load = shape.node("load", Backend::Gpu);
/// let left = shape.node("left", Backend::Gpu);
/// let right = shape.node("right", Backend::Gpu);
/// let join = shape.node("join", Backend::Gpu);
/// shape.read(load, 0, left);
/// shape.read(load, 1, right);
/// shape.read(left, 0, join);
/// shape.read(right, 0, join);
///
/// let schedule = shape.schedule_with(&PerOperator)?;
/// assert_eq!(
///     schedule.to_string(),
///     "\
/// policy per-operator: 4 nodes, 2 streams, 2 records, 2 waits
/// stream 0   run load · record 0@1 · run left · wait 1@1 · run join
/// stream 1   wait 0@1 · run right · record 1@1
/// "
/// );
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Schedule {
    shape: Arc<Shape>,
    policy: String,
    remark: Option<String>,
    /// The phase of each node, in a pipeline.
    phases: Option<Arc<[u32]>>,
    order: Vec<NodeId>,
    predecessors: Rows<NodeId>,
    streams: Streams,
    /// For each part of a node, the parts that it waits for.
    pub(super) waits: Rows<NodeId>,
    pub(super) releases: Releases,
    /// The program of each stream.
    programs: Rows<Step>,
    records: usize,
    /// The schedules of all inner graphs, at any depth.
    pub(super) inner: Vec<InnerSchedule>,
    /// The duration of each loop and branch.
    pub(super) controls_us: HashMap<NodeId, Takes>,
}

impl Schedule {
    /// Compiles a shape that has passed its check, without its inner graphs.
    pub(super) fn new(shape: Arc<Shape>, policy: &dyn Policy, phases: Option<Arc<[u32]>>) -> Result<Self> {
        if shape.edges().len() > EDGES_MAX {
            return Err(Kind::Limit { what: "the number of edges".into(), got: shape.edges().len(), limit: EDGES_MAX }.into());
        }
        let ordered = shape.in_order_of_starts();
        let (policy, mut assignment) = ask(policy, ordered.as_ref().unwrap_or(&shape))?;
        let remark = assignment.take_remark();
        let links = Links::new(&shape);
        let own = || ordered.as_ref().map_or_else(|| kahn_order(&links), Shape::topological_order);
        let order = assignment.take_order().unwrap_or_else(own);
        let in_phases = phases.as_ref().map(|phases| {
            // Phases of different items run at the same time, so no stream has nodes of two phases.
            assignment.split(phases);
            links_in_phases(&shape, phases)
        });
        let streams = Streams::new(&shape, in_phases.as_ref().unwrap_or(&links), &order, &assignment);
        Self::build(shape, (policy, remark), phases, links, order, streams)
    }

    fn build(
        shape: Arc<Shape>,
        (policy, remark): (String, Option<String>),
        phases: Option<Arc<[u32]>>,
        links: Links,
        order: Vec<NodeId>,
        streams: Streams,
    ) -> Result<Self> {
        let waiting = waiting_links(&shape, phases.as_deref());
        let waiting = waiting.as_ref().unwrap_or(&links);
        let parts = Parts::new(waiting, &order, &streams)?;
        let (part_links, stream_of) = parts.as_ref().map_or((waiting, &streams.of), |parts| (&parts.links, &parts.stream_of));
        let numbers = parts.as_ref().map_or_else(Numbers::default, |parts| parts.numbers.clone());
        let waits = fewest(part_links, stream_of, streams.count, order.len() <= EXACT_NODES_MAX);
        let releases = after_last_readers(&shape, &links, &numbers, stream_of, streams.count);
        let (programs, records) = programs(stream_of, streams.count, &waits, &releases, &numbers);
        Ok(Self {
            policy,
            remark,
            phases,
            waits,
            releases,
            programs,
            records,
            inner: Vec::new(),
            controls_us: HashMap::new(),
            predecessors: links.into,
            streams,
            order,
            shape,
        })
    }

    /// Returns the schedule in which each node is only on the first of its streams. None if this is that
    /// schedule. A host runs a node once, whichever devices it spans.
    pub(super) fn on_first_streams(&self) -> Result<Option<Self>> {
        if self.streams.more.is_empty() {
            return Ok(None);
        }
        let streams = Streams { more: Vec::new(), ..self.streams.clone() };
        let name = (self.policy.clone(), self.remark.clone());
        let (shape, links) = (self.shape.clone(), Links::new(&self.shape));
        Self::build(shape, name, self.phases.clone(), links, self.order.clone(), streams).map(Some)
    }

    /// Returns the shape that was compiled.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Returns the phase of each node, from 0 on, in a pipeline.
    pub(crate) fn phases(&self) -> Option<&[u32]> {
        self.phases.as_deref()
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns the policy's remark on its answer.
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Returns all nodes in an order in which one thread may issue them. Each program keeps this order, and
    /// the point of each wait is recorded before the wait. So issuing in this order never deadlocks.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Returns the number of streams. Each has one program.
    pub fn streams(&self) -> u32 {
        self.programs.count()
    }

    /// Returns the kind of `stream`.
    pub fn kind(&self, stream: u32) -> StreamKind {
        self.streams.devices.get(stream as usize).map_or(StreamKind::Host, |&device| StreamKind::Device(device))
    }

    /// Returns the policy's label of a device stream, or the number of a host stream among the host streams.
    pub fn label(&self, stream: u32) -> u32 {
        let host = || stream - self.streams.labels.len() as u32;
        self.streams.labels.get(stream as usize).copied().unwrap_or_else(host)
    }

    /// Returns the unique id of a stream: the label of a device stream. The ids of host streams come after
    /// the last label.
    pub fn id(&self, stream: u32) -> u32 {
        let behind = || self.streams.labels.last().map_or(0, |last| last + 1);
        self.label(stream).saturating_add(if self.kind(stream) == StreamKind::Host { behind() } else { 0 })
    }

    /// Returns the name of `stream`, as in the plan's text and in errors: `host 0` for a host stream, `stream
    /// 0` for a stream of the policy. The name of a stream that is not on device 0 contains its device.
    pub fn stream_name(&self, stream: u32) -> String {
        self.named(stream).to_string()
    }

    pub(crate) fn named(&self, stream: u32) -> ScheduleStream {
        ScheduleStream { kind: self.kind(stream), label: self.label(stream), id: self.id(stream) }
    }

    /// Returns the program of `stream`.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn steps(&self, stream: u32) -> &[Step] {
        self.programs.row(stream)
    }

    /// Returns the stream that runs `node`. If there are several, returns the first.
    ///
    /// # Panics
    /// If the node is not in this schedule's shape. `streams_of`, `predecessors` and `releases_of` panic too.
    pub fn stream_of(&self, node: NodeId) -> u32 {
        self.streams.of[node.index()]
    }

    /// Returns the streams that run `node`: one, or one for each device that the node spans.
    pub fn streams_of(&self, node: NodeId) -> impl Iterator<Item = u32> + '_ {
        self.streams.all_of(node)
    }

    /// Returns the sources of all edges into `node`, in the order of the edges. The source of two edges is
    /// listed twice.
    pub fn predecessors(&self, node: NodeId) -> &[NodeId] {
        self.predecessors.of(node)
    }

    /// Returns the number of [`Step::Release`] steps of `node`: one on each stream that reads it. Returns 0
    /// for an output, and for a node without readers.
    pub fn releases_of(&self, node: NodeId) -> u32 {
        self.releases.counts[node.index()]
    }

    /// Returns the schedules of all inner graphs, at any depth: of the conditions and bodies of loops, and of
    /// the arms of branches. The schedule of a graph comes before those of its inner graphs.
    pub fn inner(&self) -> &[InnerSchedule] {
        &self.inner
    }

    /// Returns the number of [`Step::Record`].
    pub fn records(&self) -> usize {
        self.records
    }

    /// Returns the number of [`Step::Wait`].
    pub fn waits(&self) -> usize {
        self.waits.items().len()
    }
}

/// The duration of a loop or a branch.
#[derive(Clone, Copy, Default)]
pub(super) struct Takes {
    /// With its inner graphs as scheduled.
    pub(super) spans_us: f64,
    /// A lower bound for any schedule of its inner graphs.
    pub(super) path_us: f64,
}

/// The schedule of an inner graph: of the condition or the body of a loop, or of an arm of a branch.
///
/// ```
/// use anabranch::Graph;
/// use anabranch::graph::{Role, times};
///
/// let mut g = Graph::new();
/// let one = g.task("one", (), || 1.0);
/// let grown = g.repeat("grow", &one, times(5), |b, z| b.task("mul", &z, |z: &f64| z * 1.1));
/// g.output("grown", &grown);
/// let plan = g.compile()?;
/// let body = &plan.schedule().inner()[0];
/// assert_eq!((body.role(), body.around()), (Role::Body, None));
/// assert_eq!(body.schedule().order().len(), 1);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug)]
pub struct InnerSchedule(pub(super) Nested<Schedule>);

impl InnerSchedule {
    /// Returns the loop or branch, in the graph around.
    pub fn node(&self) -> NodeId {
        self.0.node
    }

    /// Returns the role of the inner graph.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// Returns the place in [`Schedule::inner`] of the schedule of the graph around. None if that is the
    /// outermost graph.
    pub fn around(&self) -> Option<usize> {
        self.0.around.map(|around| around as usize)
    }

    /// Returns the schedule. Its own list of inner schedules is empty: the outermost schedule has all.
    pub fn schedule(&self) -> &Schedule {
        &self.0.graph
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("policy", &self.policy)
            .field("nodes", &self.order.len())
            .field("streams", &self.streams())
            .field("records", &self.records)
            .field("waits", &self.waits())
            .finish_non_exhaustive()
    }
}
