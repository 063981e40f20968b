//! A schedule: one program of steps for each stream. Immutable; what changes while it runs belongs to a run.

use std::fmt;
use std::sync::Arc;

use super::order::{Links, Rows, kahn_order, places};
use super::policy::ask;
use super::releases::{Releases, after_last_readers};
use super::waits::{Waits, fewest};
use super::{Assignment, Policy, chains};
use crate::error::{Kind, Result};
use crate::graph::{NodeId, Shape, check};

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
    /// This stream no longer reads the values of the node. They can go with the last of [`Schedule::releases_of`] releases.
    Release(NodeId),
}

/// What carries out a stream's program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamKind {
    /// A stream of the device, asked for by the policy.
    Device,
    /// A chain of host work.
    Host,
}

/// A graph's shape compiled by a policy: which stream runs which node, in which order, waiting for what.
///
/// Streams are numbered densely: first those that the policy used, by label, then the host's. For every edge the target comes
/// after the source, on the same stream or through waits, and no wait can be left out (in graphs of more than 4,096 nodes a
/// few may be redundant, because the search for them is bounded). Compiling is near-linear and does not recurse.
///
/// Metadata-only edges are kept like all others.
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
    order: Vec<NodeId>,
    predecessors: Rows,
    stream_of: Vec<u32>,
    /// The policy's labels of the streams it used, in order.
    labels: Vec<u32>,
    releases: Vec<u32>,
    /// Where each program starts in `steps`, and where the last one ends.
    starts: Vec<u32>,
    steps: Vec<Step>,
    records: usize,
    waits: usize,
}

impl Shape {
    /// Compiles the shape to a schedule, with the streams that `policy` gives.
    ///
    /// # Errors
    /// If the shape is not a graph that can be run (a cycle, an edge to nowhere, two nodes of one name), or the policy gives no
    /// valid answer: it left a `gpu` or `mixed` node without a stream, used a label above 2³⁰, refused, or panicked.
    pub fn schedule(&self, policy: &dyn Policy) -> Result<Schedule> {
        check(self)?;
        Schedule::new(Arc::new(self.clone()), policy)
    }
}

impl Schedule {
    /// Compiles a shape that has passed [`check`].
    pub(crate) fn new(shape: Arc<Shape>, policy: &dyn Policy) -> Result<Self> {
        if shape.edges().len() > EDGES_MAX {
            return Err(Kind::Limit { what: "the number of edges".into(), got: shape.edges().len(), limit: EDGES_MAX }.into());
        }
        let (policy, assignment) = ask(policy, &shape)?;
        let links = Links::new(&shape);
        let order = kahn_order(&links);
        let (stream_of, labels, streams) = streams(&links, &order, assignment);
        let waits = fewest(&links, &order, &stream_of, streams);
        let releases = after_last_readers(&shape, &links, &places(&order), &stream_of, streams);
        let predecessors = links.into;
        let programs = Programs::new(&order, &stream_of, streams, &waits, &releases);
        Ok(Self {
            shape,
            policy,
            order,
            predecessors,
            stream_of,
            labels,
            releases: releases.counts,
            starts: programs.starts,
            steps: programs.steps,
            records: programs.records,
            waits: waits.sources().len(),
        })
    }

    /// Returns the shape that was compiled.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns all nodes in an order in which one thread may issue them: every program keeps it, and the point of every wait is
    /// recorded before the wait, so issuing in this order never deadlocks.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Returns the number of streams. Each has one program.
    pub fn streams(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// Returns what carries out the program of `stream`.
    pub fn kind(&self, stream: u32) -> StreamKind {
        if (stream as usize) < self.labels.len() { StreamKind::Device } else { StreamKind::Host }
    }

    /// Returns the policy's label of a device stream, or the number of a host stream among the host streams.
    pub fn label(&self, stream: u32) -> u32 {
        let host = || stream - self.labels.len() as u32;
        self.labels.get(stream as usize).copied().unwrap_or_else(host)
    }

    /// Returns the name of `stream`, as the plan's table and errors say it: `stream 0` for the policy's, `host 0` for host chains.
    pub fn stream_name(&self, stream: u32) -> String {
        match self.kind(stream) {
            StreamKind::Device => format!("stream {}", self.label(stream)),
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

    /// Returns the stream that runs `node`.
    ///
    /// # Panics
    /// If the node is not of this schedule's shape; so do `predecessors` and `releases_of`.
    pub fn stream_of(&self, node: NodeId) -> u32 {
        self.stream_of[node.index()]
    }

    /// Returns the sources of all edges into `node`, in the order of the edges; a node with two edges to it comes twice.
    pub fn predecessors(&self, node: NodeId) -> &[NodeId] {
        self.predecessors.of(node)
    }

    /// Returns how many [`Step::Release`] of `node` there are: one on each stream that reads it. None for a node that nobody
    /// reads, or that is an output.
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

/// Gives every node the number of its stream: those of the policy by label, then a host chain for each of the others. Returns
/// that, the labels, and the number of streams.
fn streams(links: &Links, order: &[NodeId], assignment: Assignment) -> (Vec<u32>, Vec<u32>, usize) {
    let chains = chains::lay(links, order, &assignment);
    let mut labels: Vec<u32> = links.ids().filter_map(|node| assignment.of(node)).collect();
    labels.sort_unstable();
    labels.dedup();
    let is_dense = labels.last().is_none_or(|&last| last as usize + 1 == labels.len());
    let devices = labels.len() as u32;
    let mut stream_of = chains.of;
    for node in links.ids() {
        let stream = &mut stream_of[node.index()];
        *stream = match assignment.of(node) {
            None => devices + *stream,
            Some(label) if is_dense => label,
            Some(label) => labels.binary_search(&label).expect("labels holds every label of the assignment") as u32,
        };
    }
    (stream_of, labels, (devices + chains.count) as usize)
}

/// All programs, one behind the other.
struct Programs {
    starts: Vec<u32>,
    steps: Vec<Step>,
    records: usize,
}

impl Programs {
    /// Writes each node's steps to its stream's program, in issue order: waits, run, record, releases. The record comes before
    /// the releases, so that freeing a large value keeps nobody waiting.
    ///
    /// A point is recorded right after its node, and a node is issued after all that it waits for, so the order needs no
    /// repair for waits to come after their records.
    fn new(order: &[NodeId], stream_of: &[u32], streams: usize, waits: &Waits, releases: &Releases) -> Self {
        let mut seqs = vec![0u32; order.len()];
        waits.sources().iter().for_each(|node| seqs[node.index()] = 1);
        let mut starts = vec![0u32; streams + 2];
        for (place, &node) in order.iter().enumerate() {
            let count = waits.of(place).len() as u32 + 1 + seqs[node.index()] + releases.after(node).len() as u32;
            starts[stream_of[node.index()] as usize + 2] += count;
        }
        for stream in 2..starts.len() {
            starts[stream] += starts[stream - 1];
        }
        let mut steps = vec![Step::Run(NodeId(0)); starts[streams + 1] as usize];
        let mut recorded = vec![0u32; streams];
        for (place, &node) in order.iter().enumerate() {
            let stream = stream_of[node.index()];
            // `starts` is shifted by one program, so that it is right once each start has moved to the program's end.
            let next = &mut starts[stream as usize + 1];
            let mut write = |step| {
                steps[*next as usize] = step;
                *next += 1;
            };
            for source in waits.of(place) {
                write(Step::Wait(Point { stream: stream_of[source.index()], seq: seqs[source.index()] }));
            }
            write(Step::Run(node));
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
