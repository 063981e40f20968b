//! A pipeline unrolled: each node once for each item, and the programs that a run over items performs. With
//! *marks* it is for proofs, without them for simulations.
//!
//! ```text
//!  mark                     comes after
//!  the begin of item k      the begin of item k - 1, the result of item k - R
//!  the begin of a phase     all arrivals at its gate
//!  the end of a phase       the last nodes of its streams that no other stream waits for
//!  the result of item k     the result of item k - 1, the ends of the last phases of item k
//! ```
//! R is the number of slots. In a proof each item has its own streams: only arrows and slots order two items.
//! In a simulation each slot has streams, and its items follow each other.

use super::arrivals::{Arrivals, Cause};
use super::{NONE, Pipelining, Point, Schedule, Step, StreamKind, Wanted};
use crate::error::{Kind, Result};
use crate::graph::{Edge, Graph, NODES_MAX, NodeId, NodeShape, Shape};

/// A graph, with the rules of a run over items.
pub(crate) struct OverItems<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) schedule: &'a Schedule,
    pub(crate) pipelining: &'a Pipelining,
    /// The phase of each node, from 0 on, even if the schedule has merged phases.
    pub(crate) phase_of: &'a [u32],
    pub(crate) wanted: Wanted,
}

/// Programs for several items, and the shape of their nodes.
pub(crate) struct Unrolled {
    pub(crate) shape: Shape,
    pub(crate) programs: Vec<(StreamKind, Vec<Step>)>,
    /// The number of slots that have programs. The programs of slot 0 come first, that of the consumer last.
    pub(crate) slots: u32,
}

/// The numbers of an unrolled pipeline's nodes: item by item, followed by the marks.
#[derive(Clone, Copy)]
pub(super) struct Ids {
    pub(super) nodes: u32,
    pub(super) items: u32,
    pub(super) depth: u32,
}

impl Ids {
    pub(super) fn node(self, item: u32, node: NodeId) -> NodeId {
        NodeId(item * self.nodes + node.0)
    }

    pub(super) fn item(self, item: u32) -> NodeId {
        self.mark(item, 0)
    }

    pub(super) fn result(self, item: u32) -> NodeId {
        self.mark(item, 1)
    }

    pub(super) fn begin(self, item: u32, phase: u32) -> NodeId {
        self.mark(item, 2 + 2 * phase)
    }

    pub(super) fn end(self, item: u32, phase: u32) -> NodeId {
        self.mark(item, 3 + 2 * phase)
    }

    pub(super) fn cause(self, cause: Cause) -> NodeId {
        match cause {
            Cause::Source(item) => self.item(item),
            Cause::End { phase, item } => self.end(item, phase),
        }
    }

    fn marks(self) -> u32 {
        2 + 2 * self.depth
    }

    fn mark(self, item: u32, mark: u32) -> NodeId {
        NodeId(self.items * self.nodes + item * self.marks() + mark)
    }
}

impl OverItems<'_> {
    /// Proves that a run over `items` items keeps all orders that the graph requires, and ends.
    ///
    /// # Errors
    /// Those of [`Shape::verify_programs`]. The error names the nodes with their items.
    pub(crate) fn verify(&self, items: u32) -> Result<()> {
        let ids = self.ids(items)?;
        let arrivals = Arrivals::new(self.pipelining, items);
        arrivals.check()?;
        let unrolling = Unrolling::new(self, &arrivals, ids, Some(items));
        let mut shape = unrolling.shape();
        unrolling.add_marks(&mut shape);
        self.add_rules(&mut shape, ids, &arrivals);
        shape.verify_order(&unrolling.proof())
    }

    /// Returns the programs of a run over `items` items, for a simulation. The edges are only those within
    /// items: after an item fails, later items continue.
    ///
    /// # Errors
    /// If the unrolled pipeline has too many nodes.
    pub(crate) fn unrolled(&self, items: u32) -> Result<Unrolled> {
        let ids = self.ids(items)?;
        let arrivals = Arrivals::new(self.pipelining, items);
        let unrolling = Unrolling::new(self, &arrivals, ids, None);
        Ok(Unrolled { shape: unrolling.shape(), programs: unrolling.programs(), slots: unrolling.lanes })
    }

    fn ids(&self, items: u32) -> Result<Ids> {
        let (nodes, depth) = (self.schedule.order().len() as u32, self.pipelining.phases.len() as u32);
        let ids = Ids { nodes, items, depth };
        let got = (nodes as usize + ids.marks() as usize).saturating_mul(items as usize);
        if got > NODES_MAX {
            return Err(Kind::Limit { what: "the number of nodes of all items".into(), got, limit: NODES_MAX }.into());
        }
        Ok(ids)
    }

    /// Returns the phase of a node in the schedule.
    pub(super) fn phase(&self, node: NodeId) -> u32 {
        self.schedule.phases().map_or(0, |phases| phases[node.index()])
    }
}

/// The work of one stream of the schedule for an item.
struct Lane {
    /// The phase of its nodes, or [`NONE`] if it has no nodes.
    phase: u32,
    /// Whether it waits only for the begin of its phase.
    is_root: bool,
    /// The number of records for an item.
    records: u32,
    /// Whether no other node of its phase waits for its last node. Then there is one more record, after that
    /// node.
    is_sink: bool,
}

struct Unrolling<'a> {
    over: &'a OverItems<'a>,
    arrivals: &'a Arrivals<'a>,
    ids: Ids,
    streams: Vec<Lane>,
    /// The number of items that have their own streams.
    lanes: u32,
    has_marks: bool,
}

impl<'a> Unrolling<'a> {
    /// Makes the unrolled pipeline. It has marks if each item has its own streams.
    fn new(over: &'a OverItems<'a>, arrivals: &'a Arrivals<'a>, ids: Ids, lanes: Option<u32>) -> Self {
        let lane = |stream| lane(over.schedule.steps(stream), |node| over.phase(node));
        let streams = (0..over.schedule.streams()).map(lane).collect();
        let slots = over.pipelining.slots.min(ids.items).max(1);
        Self { over, arrivals, ids, streams, lanes: lanes.unwrap_or(slots), has_marks: lanes.is_some() }
    }

    /// Returns the nodes of all items, with the edges within items.
    fn shape(&self) -> Shape {
        let (of_one, mut shape) = (self.over.schedule.shape(), Shape::new());
        for item in 0..self.ids.items {
            for node in of_one.nodes() {
                let (name, command) = (format!("{} #{item}", node.name), Some(node.command().clone()));
                // A loop takes the time that its node costs: its inner graphs are not unrolled.
                shape.push(NodeShape { name: name.into(), command, control: None, phase: None, ..node.clone() });
            }
        }
        for item in 0..self.ids.items {
            for edge in of_one.edges() {
                let [source, target] = [edge.source, edge.target].map(|node| self.ids.node(item, node));
                shape.edge(Edge { source, target, ..*edge });
            }
        }
        shape
    }

    fn add_marks(&self, shape: &mut Shape) {
        for item in 0..self.ids.items {
            let mut mark = |name: String| _ = shape.node(name, crate::graph::Backend::Cpu);
            mark(format!("the begin of item #{item}"));
            mark(format!("the result of item #{item}"));
            for phase in 1..=self.ids.depth {
                mark(format!("the begin of phase {phase} #{item}"));
                mark(format!("the end of phase {phase} #{item}"));
            }
        }
    }

    fn stream(&self, item: u32, stream: u32) -> u32 {
        item % self.lanes * self.streams.len() as u32 + stream
    }

    fn point(&self, item: u32, stream: u32, seq: u32) -> Point {
        let before = item / self.lanes * self.streams[stream as usize].records;
        Point { stream: self.stream(item, stream), seq: before + seq }
    }

    /// Returns the first stream after those of all slots. Each mark has one such stream.
    fn behind(&self) -> u32 {
        self.lanes * self.streams.len() as u32
    }

    fn mark(&self, mark: NodeId) -> Point {
        Point { stream: self.behind() + mark.0 - self.ids.items * self.ids.nodes, seq: 1 }
    }

    /// Returns the points after the last nodes of a phase.
    fn ends(&self, item: u32, phase: u32) -> impl Iterator<Item = Point> + '_ {
        let sinks = self.streams.iter().zip(0..).filter(move |(lane, _)| lane.phase == phase && lane.is_sink);
        sinks.map(move |(lane, stream)| self.point(item, stream, lane.records))
    }

    /// Returns the phases at whose end an item ends.
    fn last_phases(&self) -> impl Iterator<Item = u32> + '_ {
        let phases = (0..).zip(&self.over.pipelining.phases);
        phases.filter(|(_, rule)| !rule.is_followed).map(|(phase, _)| phase)
    }

    /// Returns the points that a phase waits for. Either every phase has nodes, or no phase has.
    fn begins(&self, item: u32, phase: u32) -> Vec<Point> {
        if self.has_marks {
            return vec![self.mark(self.ids.begin(item, phase))];
        }
        let mut points = Vec::new();
        for &cause in self.arrivals.at(item, phase) {
            match cause {
                Cause::Source(item) => points.push(Point { stream: self.behind(), seq: item + 1 }),
                Cause::End { phase, item } => points.extend(self.ends(item, phase)),
            }
        }
        points.sort_unstable();
        points.dedup();
        points
    }

    /// Returns the programs of the slots.
    fn of_slots(&self) -> Vec<(StreamKind, Vec<Step>)> {
        let streams = self.streams.len() as u32;
        let kinds = (0..self.behind()).map(|stream| self.over.schedule.kind(stream % streams));
        let mut programs: Vec<_> = kinds.map(|kind| (kind, Vec::new())).collect();
        for item in 0..self.ids.items {
            for stream in 0..streams {
                self.add_steps(item, stream, &mut programs[self.stream(item, stream) as usize].1);
            }
        }
        programs
    }

    /// Adds the steps of a stream for an item.
    fn add_steps(&self, item: u32, stream: u32, steps: &mut Vec<Step>) {
        let lane = &self.streams[stream as usize];
        if lane.is_root {
            let others = self.begins(item, lane.phase).into_iter().filter(|point| point.stream != self.stream(item, stream));
            steps.extend(others.map(Step::Wait));
        }
        steps.extend(self.over.schedule.steps(stream).iter().map(|step| match *step {
            // Point 0 is always reached.
            Step::Wait(Point { seq: 0, .. }) => *step,
            Step::Wait(point) => Step::Wait(self.point(item, point.stream, point.seq)),
            Step::Run(node) => Step::Run(self.ids.node(item, node)),
            Step::Record(point) => Step::Record(self.point(item, stream, point.seq)),
            Step::Release(node) => Step::Release(self.ids.node(item, node)),
        }));
        if lane.is_sink {
            steps.push(Step::Record(self.point(item, stream, lane.records)));
        }
    }

    /// Returns the programs of the slots, and that of the consumer. The consumer begins an item after the
    /// previous item of its slot, and all items before that, ended.
    fn programs(&self) -> Vec<(StreamKind, Vec<Step>)> {
        let (mut programs, mut consumer) = (self.of_slots(), Vec::new());
        for item in 0..self.ids.items {
            if let Some(before) = item.checked_sub(self.over.pipelining.slots) {
                let ends = self.last_phases().flat_map(|phase| self.ends(before, phase));
                consumer.extend(ends.map(Step::Wait));
            }
            consumer.push(Step::Record(Point { stream: self.behind(), seq: item + 1 }));
        }
        programs.push((StreamKind::Host, consumer));
        programs
    }

    /// Returns the programs of the items, and those of the marks.
    fn proof(&self) -> Vec<(StreamKind, Vec<Step>)> {
        let (mut programs, ids) = (self.of_slots(), self.ids);
        let mut add = |mark: NodeId, waits: Vec<Point>| {
            let waits = waits.into_iter().map(Step::Wait);
            let steps = waits.chain([Step::Run(mark), Step::Record(self.mark(mark))]).collect();
            programs.push((StreamKind::Host, steps));
        };
        for item in 0..ids.items {
            let before =
                |items: u32, mark: fn(Ids, u32) -> NodeId| item.checked_sub(items).map(|item| self.mark(mark(ids, item)));
            let slots = self.over.pipelining.slots;
            add(ids.item(item), before(1, Ids::item).into_iter().chain(before(slots, Ids::result)).collect());
            let ends = self.last_phases().map(|phase| self.mark(ids.end(item, phase)));
            add(ids.result(item), before(1, Ids::result).into_iter().chain(ends).collect());
            for phase in 0..ids.depth {
                let begin = ids.begin(item, phase);
                add(begin, self.arrivals.at(item, phase).iter().map(|&cause| self.mark(ids.cause(cause))).collect());
                let mut ends: Vec<Point> = self.ends(item, phase).collect();
                if ends.is_empty() {
                    ends.push(self.mark(begin));
                }
                add(ids.end(item, phase), ends);
            }
        }
        programs
    }
}

/// Reads the program of a stream, which has nodes of one phase.
fn lane(steps: &[Step], phase: impl Fn(NodeId) -> u32) -> Lane {
    let (mut lane, mut waits) = (Lane { phase: NONE, is_root: true, records: 0, is_sink: false }, false);
    for step in steps {
        match *step {
            Step::Wait(point) => waits |= point.seq > 0,
            Step::Run(node) => {
                if lane.phase == NONE {
                    (lane.phase, lane.is_root) = (phase(node), !waits);
                }
                lane.is_sink = true;
            }
            Step::Record(point) => (lane.records, lane.is_sink) = (point.seq, false),
            Step::Release(_) => {}
        }
    }
    lane.records += u32::from(lane.is_sink);
    lane.is_root &= lane.phase != NONE;
    lane
}
