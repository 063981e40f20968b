//! The steps of a schedule's programs, and how the programs are made.

use super::parts::Numbers;
use super::releases::Releases;
use crate::graph::{NodeId, Rows};

/// A point in a stream's order of work. Point 0 of every stream is always reached. Records count from 1.
///
/// ```
/// use anabranch::plan::{Point, Step};
///
/// # let mut shape = anabranch::graph::Shape::new();
/// # let [a, b] = ["a", "b"].map(|name| shape.node(name, anabranch::graph::Backend::Gpu));
/// # let c = shape.node("c", anabranch::graph::Backend::Gpu);
/// # shape.read(a, 0, c);
/// # shape.read(b, 0, c);
/// let schedule = shape.schedule()?;
/// // Stream 0 waits for the first record of stream 1.
/// assert!(schedule.steps(0).contains(&Step::Wait(Point::new(1, 1))));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct Point {
    /// The stream, by the number of its program.
    pub stream: u32,
    /// The number of the record on the stream.
    pub seq: u32,
}

impl Point {
    /// Returns a point of a stream: its record number `seq`.
    pub fn new(stream: u32, seq: u32) -> Self {
        Self { stream, seq }
    }
}

/// One step of a program.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::plan::Step;
///
/// let mut shape = Shape::new();
/// let [a, b] = ["a", "b"].map(|name| shape.node(name, Backend::Gpu));
/// shape.read(a, 0, b);
/// let schedule = shape.schedule()?;
/// assert_eq!(schedule.steps(0), [Step::Run(a), Step::Run(b), Step::Release(a)]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Waits until another stream has reached the point.
    Wait(Point),
    /// Runs the node.
    Run(NodeId),
    /// Records that this stream has reached the point.
    Record(Point),
    /// Marks the end of this stream's reads of the node's value. The value can be dropped after the last of
    /// its [`Schedule::releases_of`](crate::plan::Schedule::releases_of) releases.
    Release(NodeId),
}

/// Returns the program of each stream, and the number of records. The steps of each part of a node go to its
/// stream's program, in issue order: waits, run, record, releases. The record comes before the releases, so
/// that the drop of a large value delays no other stream.
///
/// A point is recorded right after its node, and a node is issued after the nodes that it waits for. So every
/// wait comes after its record.
pub(super) fn programs(
    stream_of: &[u32],
    streams: usize,
    waits: &Rows<NodeId>,
    releases: &Releases,
    numbers: &Numbers,
) -> (Rows<Step>, usize) {
    let parts = || (0..stream_of.len() as u32).map(NodeId);
    let mut seqs = vec![0u32; stream_of.len()];
    waits.items().iter().for_each(|node| seqs[node.index()] = 1);
    let mut starts = vec![0u32; streams + 2];
    for node in parts() {
        let count = waits.of(node).len() as u32 + 1 + seqs[node.index()] + releases.after.of(node).len() as u32;
        starts[stream_of[node.index()] as usize + 2] += count;
    }
    for stream in 2..starts.len() {
        starts[stream] += starts[stream - 1];
    }
    let mut steps = vec![Step::Run(NodeId(0)); starts[streams + 1] as usize];
    let mut recorded = vec![0u32; streams];
    for node in parts() {
        let stream = stream_of[node.index()];
        // `starts` is shifted by one program: each start moves to the end of its program.
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
        releases.after.of(node).iter().for_each(|&value| write(Step::Release(value)));
    }
    starts.pop();
    let records = recorded.iter().map(|&count| count as usize).sum();
    (Rows::of_parts(starts, steps), records)
}
