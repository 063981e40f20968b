//! A schedule: one program of steps for each stream. Immutable; what changes while it runs belongs to a run.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::order::{Links, Rows, kahn_order};
use super::parts::{Numbers, Parts};
use super::policy::ask;
use super::releases::{Releases, after_last_readers};
use super::spans::Takes;
use super::streams::Streams;
use super::waits::{Waits, fewest};
use super::{EXACT_NODES_MAX, InnerSchedule, Policy};
use crate::error::{Kind, Result};
use crate::graph::{NodeId, Shape};

/// The most edges one graph may have.
const EDGES_MAX: usize = 1 << 30;

/// A place on a stream's timeline. Point 0 of every stream is always reached; records count from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Point {
    /// The stream, by the number of its program.
    pub stream: u32,
    /// Which record of the stream.
    pub seq: u32,
}

/// One step of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Goes on once another stream has reached the point.
    Wait(Point),
    /// Runs the node.
    Run(NodeId),
    /// Says that this stream has reached the point.
    Record(Point),
    /// This stream no longer reads the values of the node. They can go with the last of
    /// [`Schedule::releases_of`] releases.
    Release(NodeId),
}

/// What carries out a stream's program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamKind {
    /// A stream of the device with this ordinal, asked for by the policy.
    Device(u32),
    /// A chain of host work.
    Host,
}

/// A graph's shape compiled by a policy: which stream runs which node, in which order, waiting for what.
///
/// Streams are numbered densely: first those that the policy used, by label, then the host's. For every edge
/// the target comes after the source, on the same stream or through waits, and no wait can be left out (in
/// graphs of more than 4,096 nodes a few may be redundant, because the search for them is bounded). Compiling
/// is near-linear and does not recurse.
///
/// A node that reads only the shape and type of what a `gpu` or `mixed` node makes does not wait for it: it
/// stands behind it in the order in which nodes are issued. Metadata-only edges from `cpu` nodes are kept
/// like all others.
///
/// A node that spans several devices is run by a stream of each: each of them waits for all that the node
/// needs, and who reads the node on one device waits for that device's stream.
///
/// # Examples
/// ```
/// use anabranch::{Backend, PerOperator, Shape};
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
/// let schedule = shape.schedule(&PerOperator)?;
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
    order: Vec<NodeId>,
    predecessors: Rows,
    streams: Streams,
    releases: Vec<u32>,
    /// Where each program starts in `steps`, and where the last one ends.
    starts: Vec<u32>,
    steps: Vec<Step>,
    records: usize,
    waits: usize,
    /// The schedules of all inner graphs.
    pub(super) inner: Vec<InnerSchedule>,
    /// How long loops and branches take.
    pub(super) controls_us: HashMap<NodeId, Takes>,
}

impl Schedule {
    /// Compiles a shape that has passed its check, without its inner graphs.
    pub(super) fn new(shape: Arc<Shape>, policy: &dyn Policy) -> Result<Self> {
        if shape.edges().len() > EDGES_MAX {
            return Err(Kind::Limit { what: "the number of edges".into(), got: shape.edges().len(), limit: EDGES_MAX }.into());
        }
        let (policy, mut assignment) = ask(policy, &shape)?;
        let remark = assignment.take_remark();
        let links = Links::new(&shape);
        let order = assignment.take_order().unwrap_or_else(|| kahn_order(&links));
        let streams = Streams::new(&shape, &links, &order, &assignment);
        Self::build(shape, (policy, remark), links, order, streams)
    }

    fn build(
        shape: Arc<Shape>,
        (policy, remark): (String, Option<String>),
        links: Links,
        order: Vec<NodeId>,
        streams: Streams,
    ) -> Result<Self> {
        let waiting = waiting_links(&shape);
        let waiting = waiting.as_ref().unwrap_or(&links);
        let parts = Parts::new(waiting, &order, &streams)?;
        let (part_links, stream_of) = parts.as_ref().map_or((waiting, &streams.of), |parts| (&parts.links, &parts.stream_of));
        let numbers = parts.as_ref().map_or_else(Numbers::default, |parts| parts.numbers().clone());
        let waits = fewest(part_links, stream_of, streams.count, order.len() <= EXACT_NODES_MAX);
        let releases = after_last_readers(&shape, &links, &numbers, stream_of, streams.count);
        let programs = Programs::new(stream_of, streams.count, &waits, &releases, &numbers);
        Ok(Self {
            policy,
            remark,
            releases: releases.counts,
            starts: programs.starts,
            steps: programs.steps,
            records: programs.records,
            waits: waits.sources().len(),
            inner: Vec::new(),
            controls_us: HashMap::new(),
            predecessors: links.into,
            streams,
            order,
            shape,
        })
    }

    /// Returns the schedule in which each node is only on the first of its streams, if that is not this one:
    /// a host runs a node once, wherever its work goes.
    pub(super) fn on_first_streams(&self) -> Result<Option<Self>> {
        if self.streams.more.is_empty() {
            return Ok(None);
        }
        let streams = Streams { more: Vec::new(), ..self.streams.clone() };
        let name = (self.policy.clone(), self.remark.clone());
        Self::build(self.shape.clone(), name, Links::new(&self.shape), self.order.clone(), streams).map(Some)
    }

    /// Returns the shape that was compiled.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns what the policy says of how it came to its answer.
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Returns all nodes in an order in which one thread may issue them: every program keeps it, and the
    /// point of every wait is recorded before the wait, so issuing in this order never deadlocks.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Returns the number of streams. Each has one program.
    pub fn streams(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Returns what carries out the program of `stream`.
    pub fn kind(&self, stream: u32) -> StreamKind {
        self.streams.devices.get(stream as usize).map_or(StreamKind::Host, |&device| StreamKind::Device(device))
    }

    /// Returns the policy's label of a device stream, or the number of a host stream among the host streams.
    pub fn label(&self, stream: u32) -> u32 {
        let host = || stream - self.streams.labels.len() as u32;
        self.streams.labels.get(stream as usize).copied().unwrap_or_else(host)
    }

    /// Returns a number that no other stream of the schedule has: the label of a device stream; host streams
    /// count on behind the last label.
    pub fn id(&self, stream: u32) -> u32 {
        let behind = || self.streams.labels.last().map_or(0, |last| last + 1);
        self.label(stream).saturating_add(if self.kind(stream) == StreamKind::Host { behind() } else { 0 })
    }

    /// Returns the name of `stream`, as the plan's table and errors say it: `stream 0` for the policy's,
    /// with its device if that is not device 0, `host 0` for host chains.
    pub fn stream_name(&self, stream: u32) -> String {
        match self.kind(stream) {
            StreamKind::Device(0) => format!("stream {}", self.label(stream)),
            StreamKind::Device(device) => format!("stream {} on device {device}", self.label(stream)),
            StreamKind::Host => format!("host {}", self.label(stream)),
        }
    }

    /// Returns the program of `stream`.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn steps(&self, stream: u32) -> &[Step] {
        &self.steps[self.starts[stream as usize] as usize..self.starts[stream as usize + 1] as usize]
    }

    /// Returns the stream that runs `node`, the first if there are several.
    ///
    /// # Panics
    /// If the node is not of this schedule's shape; so do `streams_of`, `predecessors` and `releases_of`.
    pub fn stream_of(&self, node: NodeId) -> u32 {
        self.streams.of[node.index()]
    }

    /// Returns the streams that run `node`: one, or one for each device that it spans.
    pub fn streams_of(&self, node: NodeId) -> impl Iterator<Item = u32> + '_ {
        self.streams.all_of(node)
    }

    /// Returns the sources of all edges into `node`, in the order of the edges; a node with two edges to it
    /// comes twice.
    pub fn predecessors(&self, node: NodeId) -> &[NodeId] {
        self.predecessors.of(node)
    }

    /// Returns how many [`Step::Release`] of `node` there are: one on each stream that reads it. None for a
    /// node that nobody reads, or that is an output.
    pub fn releases_of(&self, node: NodeId) -> u32 {
        self.releases[node.index()]
    }

    /// Returns the number of [`Step::Record`].
    pub fn records(&self) -> usize {
        self.records
    }

    /// Returns the number of [`Step::Wait`].
    pub fn waits(&self) -> usize {
        self.waits
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("policy", &self.policy)
            .field("nodes", &self.order.len())
            .field("streams", &self.streams())
            .field("records", &self.records)
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}

/// Returns the edges whose targets wait for the end of their sources, if those are not all.
pub(super) fn waiting_links(shape: &Shape) -> Option<Links> {
    if !shape.edges().iter().any(|edge| shape.is_submission(edge)) {
        return None;
    }
    let waiting = shape.edges().iter().filter(|edge| !shape.is_submission(edge));
    let edges: Vec<_> = waiting.map(|edge| (edge.source, edge.target, edge.is_data())).collect();
    Some(Links::of(shape.nodes().len(), edges.into_iter()))
}

/// All programs, one behind the other.
struct Programs {
    starts: Vec<u32>,
    steps: Vec<Step>,
    records: usize,
}

impl Programs {
    /// Writes the steps of each part of a node to its stream's program, in issue order: waits, run, record,
    /// releases. The record comes before the releases, so that freeing a large value keeps nobody waiting.
    ///
    /// A point is recorded right after its node, and a node is issued after all that it waits for, so the
    /// order needs no repair for waits to come after their records.
    fn new(stream_of: &[u32], streams: usize, waits: &Waits, releases: &Releases, numbers: &Numbers) -> Self {
        let parts = || (0..stream_of.len() as u32).map(NodeId);
        let mut seqs = vec![0u32; stream_of.len()];
        waits.sources().iter().for_each(|node| seqs[node.index()] = 1);
        let mut starts = vec![0u32; streams + 2];
        for node in parts() {
            let count = waits.of(node).len() as u32 + 1 + seqs[node.index()] + releases.after(node).len() as u32;
            starts[stream_of[node.index()] as usize + 2] += count;
        }
        for stream in 2..starts.len() {
            starts[stream] += starts[stream - 1];
        }
        let mut steps = vec![Step::Run(NodeId(0)); starts[streams + 1] as usize];
        let mut recorded = vec![0u32; streams];
        for node in parts() {
            let stream = stream_of[node.index()];
            // `starts` is shifted by one program, so that it is right once each start has moved to the
            // program's end.
            let next = &mut starts[stream as usize + 1];
            let mut write = |step| {
                steps[*next as usize] = step;
                *next += 1;
            };
            for source in waits.of(node) {
                write(Step::Wait(Point { stream: stream_of[source.index()], seq: seqs[source.index()] }));
            }
            write(Step::Run(numbers.node(node)));
            if seqs[node.index()] > 0 {
                recorded[stream as usize] += 1;
                seqs[node.index()] = recorded[stream as usize];
                write(Step::Record(Point { stream, seq: seqs[node.index()] }));
            }
            releases.after(node).iter().for_each(|&value| write(Step::Release(value)));
        }
        starts.pop();
        let records = recorded.iter().map(|&count| count as usize).sum();
        Self { starts, steps, records }
    }
}
