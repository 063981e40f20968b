//! The programs of all ranks as programs of one machine, for the proof and for simulations.
//!
//! ```text
//!  a message      send on rank 0 ── the message ──> receive on rank 1
//!  a collective   its start on each rank ──> the exchange ──> its end on each rank
//! ```
//! The message and the exchange are nodes with streams of their own. A collective starts on a rank after
//! those before it have started there.

use std::sync::Arc;

use super::pairs::{Ends, ends, peer_of, ranks_of};
use super::schedules::RankSchedules;
use super::units::Unit;
use crate::error::Result;
use crate::graph::{Communication, Edge, Exchange, NodeId, NodeShape, Role, Rows, Shape};
use crate::plan::{Point, Schedule, Step, StreamKind, StreamName};

/// Where a stream does its work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum On {
    /// On a rank: on its host, or on one of its devices.
    Rank(u32),
    /// On the link of a rank that sends.
    Link(u32),
    /// On the links of all ranks.
    Network,
}

/// The programs of one unit on all ranks.
pub(crate) struct Joined {
    pub(crate) shape: Shape,
    pub(crate) programs: Vec<(StreamKind, Vec<Step>)>,
    pub(crate) on: Vec<On>,
    /// The name of each stream.
    pub(crate) names: Vec<StreamName>,
    /// The place of each node among those of its rank.
    pub(crate) places: Vec<u32>,
    pub(crate) exchanges: Vec<Exchanged>,
}

/// A node that stands for an exchange.
pub(crate) struct Exchanged {
    pub(crate) node: NodeId,
    pub(crate) what: What,
    /// The bytes that each rank gives.
    pub(crate) bytes: u64,
}

pub(crate) enum What {
    Exchange(Exchange),
    /// A loop or a branch that communicates: the units inside, by their numbers. Its node has the control.
    Control(Vec<(Role, usize)>),
}

impl Joined {
    /// Joins the programs of a unit. None if its nodes exchange nothing, except for the first unit.
    pub(crate) fn of(schedules: &RankSchedules, unit: usize) -> Option<Self> {
        let of = &schedules.units[unit];
        if unit > 0 && of.communications().next().is_none() && of.inside.is_empty() {
            return None;
        }
        let mut joining = Joining::new(schedules, unit);
        joining.add_meetings();
        joining.add_messages();
        (0..schedules.ranks()).for_each(|rank| joining.add_rank(rank));
        joining.link();
        Some(joining.joined)
    }

    pub(super) fn verify(&self) -> Result<()> {
        self.shape.verify_order(&self.programs)
    }
}

/// An exchange: its node, and its stream. These come first in the joined programs.
#[derive(Clone, Copy)]
struct Carrier {
    node: NodeId,
    stream: u32,
}

/// The message that each node sends or receives on each of its ranks.
struct Messages {
    /// For each node its first rank, and the place of that rank's message. A node without messages has no
    /// places.
    first: Vec<(u32, u32)>,
    all: Vec<Option<Carrier>>,
}

impl Messages {
    fn none(unit: &Unit, size: u32) -> Self {
        let (mut first, mut places) = (Vec::with_capacity(unit.shape.nodes().len() + 1), 0);
        for shape in unit.shape.nodes() {
            let ranks = ranks_of(shape, size);
            first.push((ranks.start, places));
            places += if peer_of(shape).is_some() { ranks.len() as u32 } else { 0 };
        }
        first.push((0, places));
        Self { first, all: vec![None; places as usize] }
    }

    fn set(&mut self, node: NodeId, rank: u32, carrier: Carrier) {
        let (first, place) = self.first[node.index()];
        self.all[(place + (rank - first)) as usize] = Some(carrier);
    }

    fn of(&self, node: NodeId, rank: u32) -> Option<Carrier> {
        let [(first, place), (_, end)] = [self.first[node.index()], self.first[node.index() + 1]];
        if place == end { None } else { self.all[(place + (rank - first)) as usize] }
    }
}

struct Joining<'a> {
    schedules: &'a RankSchedules,
    number: usize,
    unit: &'a Unit,
    joined: Joined,
    /// The collectives, and the loops and branches that communicate, in their order.
    meetings: Vec<(NodeId, Carrier)>,
    /// The bytes that each node reads.
    bytes_into: Vec<u64>,
    messages: Messages,
    /// The points that exchanges wait for, and the nodes behind which they are, with the exchange's stream.
    begins: Vec<(u32, (Point, NodeId))>,
}

impl<'a> Joining<'a> {
    fn new(schedules: &'a RankSchedules, number: usize) -> Self {
        let mut shape = Shape::new();
        let name = schedules.units[0].shape.name();
        name.into_iter().for_each(|name| shape.set_name(name.to_owned()));
        let joined = Joined { shape, programs: vec![], on: vec![], names: vec![], places: vec![], exchanges: vec![] };
        let unit = &schedules.units[number];
        let mut bytes_into = vec![0; unit.shape.nodes().len()];
        for edge in unit.shape.edges().iter().filter(|edge| edge.is_data()) {
            let bytes: &mut u64 = &mut bytes_into[edge.target.index()];
            *bytes = bytes.saturating_add(unit.shape.nodes()[edge.source.index()].bytes.unwrap_or(0));
        }
        let messages = Messages::none(unit, schedules.ranks());
        Self { schedules, number, unit, joined, meetings: Vec::new(), bytes_into, messages, begins: Vec::new() }
    }

    fn add_node(&mut self, node: NodeShape, place: u32) -> NodeId {
        self.joined.places.push(place);
        self.joined.shape.push(node)
    }

    fn add_stream(&mut self, kind: StreamKind, on: On, name: StreamName) -> u32 {
        self.joined.programs.push((kind, Vec::new()));
        self.joined.on.push(on);
        self.joined.names.push(name);
        self.joined.programs.len() as u32 - 1
    }

    /// Adds the node of an exchange, with its stream.
    fn carrier(&mut self, of: NodeId, on: On, what: What) -> Carrier {
        let shape = &self.unit.shape.nodes()[of.index()];
        // The bytes of a node are those of its own value, which may be a part of what it exchanges.
        let bytes = Some(self.bytes_into[of.index()]).filter(|bytes| *bytes > 0).or(shape.bytes).unwrap_or(0);
        let node = self.add_node(bare(shape), 0);
        let name = match on {
            On::Link(rank) => StreamName::Link(rank, shape.name.clone()),
            _ => StreamName::Network(shape.name.clone()),
        };
        let stream = self.add_stream(StreamKind::Host, on, name);
        self.joined.exchanges.push(Exchanged { node, what, bytes });
        Carrier { node, stream }
    }

    fn add_meetings(&mut self) {
        for node in self.unit.meetings() {
            let shape = &self.unit.shape.nodes()[node.index()];
            let what = match (&shape.communication, &shape.control) {
                (Some(communication), _) => What::Exchange(communication.exchange.clone()),
                (None, Some(_)) => What::Control(self.inside(node)),
                (None, None) => continue,
            };
            let control = shape.control.clone();
            let carrier = self.carrier(node, On::Network, what);
            self.joined.shape.nodes_mut()[carrier.node.index()].control = control;
            self.meetings.push((node, carrier));
        }
    }

    /// Returns the units inside of a loop or a branch.
    fn inside(&self, node: NodeId) -> Vec<(Role, usize)> {
        let units = self.schedules.units.iter().zip(0..);
        units.filter_map(|(unit, at)| Some((unit.role_in(self.number, node)?, at))).collect()
    }

    fn add_messages(&mut self) {
        let all = ends(self.unit, self.schedules.ranks()).expect("they were checked before");
        for ((from, to), Ends { sends, receives }) in all {
            for (&send, &receive) in sends.iter().zip(&receives) {
                let exchange = Exchange::SendTo { to: to.into() };
                let carrier = self.carrier(send, On::Link(from), What::Exchange(exchange));
                self.messages.set(send, from, carrier);
                self.messages.set(receive, to, carrier);
            }
        }
    }

    /// Returns the schedule of this unit on a rank, and its nodes.
    fn schedule(&self, rank: u32) -> (&'a Schedule, Option<&'a [NodeId]>) {
        let schedule = self.schedules.of(rank);
        if self.number == 0 {
            return (schedule, Some(self.schedules.nodes(rank)));
        }
        let schedule = self.schedules.inner(rank, &self.unit.path());
        (schedule.expect("each rank has the graphs that communicate"), None)
    }

    fn add_rank(&mut self, rank: u32) {
        let (schedule, nodes) = self.schedule(rank);
        let mut places = vec![0; schedule.order().len()];
        schedule.order().iter().zip(0..).for_each(|(node, place)| places[node.index()] = place);
        let first = self.joined.shape.nodes().len() as u32;
        let of_whole = |node: NodeId| nodes.map_or(node, |nodes| nodes[node.index()]);
        for (node, place) in schedule.shape().ids().zip(places) {
            let of = &schedule.shape().nodes()[node.index()];
            let exchanges = of.communication.is_some() || self.unit.inside.contains_key(&of_whole(node));
            let shape = if exchanges { end(of) } else { NodeShape { cost_us: schedule.takes_us(node), ..bare(of) } };
            self.add_node(shape, place);
        }
        let mut adding = Rank { rank, first, starts: vec![None; schedule.order().len()] };
        adding.add_starts(self, schedule, nodes);
        adding.add_programs(self, schedule, of_whole);
        for edge in schedule.shape().edges() {
            let (source, target) = (adding.node(edge.source), adding.node(edge.target));
            let target = adding.starts[edge.target.index()].map_or(target, |start| start.node);
            self.joined.shape.edge(Edge { source, target, ..*edge });
        }
    }

    /// Lets each exchange wait for its starts, and all that receive it come behind it.
    fn link(&mut self) {
        let begins = Rows::sorted(self.joined.exchanges.len(), self.begins.iter().copied());
        for (exchanged, stream) in self.joined.exchanges.iter().zip(0_u32..) {
            let begins = begins.row(stream);
            let waits = begins.iter().map(|(point, _)| Step::Wait(*point));
            let behind = [Step::Run(exchanged.node), Step::Record(Point::new(stream, 1))];
            self.joined.programs[stream as usize].1 = waits.chain(behind).collect();
            begins.iter().for_each(|&(_, before)| self.joined.shape.order(before, exchanged.node));
        }
    }
}

/// Returns what a simulation needs of a node.
fn bare(shape: &NodeShape) -> NodeShape {
    let NodeShape { name, backend, command, devices, cost_us, bytes, .. } = shape;
    NodeShape {
        name: name.clone(),
        backend: *backend,
        command: command.clone(),
        devices: devices.clone(),
        cost_us: *cost_us,
        bytes: *bytes,
        phase: None,
        control: None,
        ranks: None,
        communication: None,
    }
}

/// Returns the start or the end of an exchange on a rank: the exchange has its time, and no core is busy with
/// it.
fn end(shape: &NodeShape) -> NodeShape {
    let communication = shape.communication.clone().unwrap_or_else(|| Arc::new(Communication::new(Exchange::Barrier)));
    NodeShape { cost_us: 0.0, communication: Some(communication), ..bare(shape) }
}

/// The programs of one rank while they are added.
struct Rank {
    rank: u32,
    /// The number of its first node.
    first: u32,
    /// For each node that is a collective, or a loop or branch that communicates, its start.
    starts: Vec<Option<Start>>,
}

#[derive(Clone, Copy)]
struct Start {
    node: NodeId,
    carrier: Carrier,
    /// The collective that starts before.
    before: Option<NodeId>,
}

/// The points of a rank in the joined programs. They get new numbers: starts and sends have points, too.
struct Renumbered {
    /// The number of the rank's first stream.
    first: u32,
    /// For each stream of the rank, the new numbers of its points.
    seqs: Rows<u32>,
    /// For each node, the point for which an exchange waits.
    began: Vec<Option<Point>>,
}

impl Renumbered {
    fn of(&self, point: Point) -> Point {
        Point::new(self.first + point.stream, self.seqs.row(point.stream)[point.seq as usize - 1])
    }
}

impl Rank {
    fn node(&self, node: NodeId) -> NodeId {
        NodeId(self.first + node.0)
    }

    /// Adds a node for the start of each collective.
    fn add_starts(&mut self, to: &mut Joining<'_>, schedule: &Schedule, nodes: Option<&[NodeId]>) {
        let mut last: Option<(NodeId, NodeId)> = None;
        for at in 0..to.meetings.len() {
            let (meeting, carrier) = to.meetings[at];
            let found = nodes.map_or(Ok(meeting.index()), |nodes| nodes.binary_search(&meeting));
            let node = NodeId(found.expect("all ranks have the nodes in which they meet") as u32);
            let shape = end(&schedule.shape().nodes()[node.index()]);
            let name = format!("{} starts", shape.name).into();
            let start = to.add_node(NodeShape { name, ..shape }, to.joined.places[self.node(node).index()]);
            let before = last.replace((node, start));
            before.into_iter().for_each(|(_, started)| to.joined.shape.order(started, start));
            self.starts[node.index()] = Some(Start { node: start, carrier, before: before.map(|(node, _)| node) });
        }
    }

    fn add_programs(&mut self, to: &mut Joining<'_>, schedule: &Schedule, of_whole: impl Fn(NodeId) -> NodeId) {
        let points = self.renumbered(to, schedule, &of_whole);
        for stream in 0..schedule.streams() {
            let kind = schedule.kind(stream);
            let name = StreamName::Rank(self.rank, schedule.named(stream));
            let own = to.add_stream(kind, On::Rank(self.rank), name);
            let mut steps = Vec::with_capacity(schedule.steps(stream).len());
            for step in schedule.steps(stream) {
                match *step {
                    Step::Run(node) => self.add_run(to, &mut steps, (node, of_whole(node)), &points.began),
                    Step::Record(point) => steps.push(Step::Record(points.of(point))),
                    Step::Wait(point) if point.seq > 0 => steps.push(Step::Wait(points.of(point))),
                    Step::Wait(_) | Step::Release(_) => {}
                }
            }
            to.joined.programs[own as usize].1 = steps;
        }
    }

    fn renumbered(&self, to: &Joining<'_>, schedule: &Schedule, of_whole: impl Fn(NodeId) -> NodeId) -> Renumbered {
        let first = to.joined.programs.len() as u32;
        let (mut seqs, mut began) = (Rows::with_capacity(schedule.streams() as usize), vec![None; self.starts.len()]);
        for stream in 0..schedule.streams() {
            let mut seq = 0;
            seqs.push(schedule.steps(stream).iter().filter_map(|step| match *step {
                Step::Record(_) => {
                    seq += 1;
                    Some(seq)
                }
                Step::Run(node) if self.begins(to, of_whole(node), node) => {
                    seq += 1;
                    began[node.index()] = Some(Point::new(first + stream, seq));
                    None
                }
                _ => None,
            }));
        }
        Renumbered { first, seqs, began }
    }

    /// Returns whether an exchange waits for a node of this rank.
    fn begins(&self, to: &Joining<'_>, whole: NodeId, node: NodeId) -> bool {
        self.starts[node.index()].is_some() || (to.messages.of(whole, self.rank).is_some() && is_send(to.unit, whole))
    }

    fn add_run(&self, to: &mut Joining<'_>, steps: &mut Vec<Step>, (node, whole): (NodeId, NodeId), began: &[Option<Point>]) {
        let run = Step::Run(self.node(node));
        let point_of = |node: NodeId| began[node.index()].expect("an exchange waits for it");
        if let Some(Start { node: start, carrier, before }) = self.starts[node.index()] {
            let point = point_of(node);
            let before = before.map(point_of).filter(|before| before.stream != point.stream);
            steps.extend(before.map(Step::Wait));
            steps.extend([Step::Run(start), Step::Record(point), Step::Wait(Point::new(carrier.stream, 1)), run]);
            to.begins.push((carrier.stream, (point, start)));
            to.joined.shape.order(carrier.node, self.node(node));
            return;
        }
        match to.messages.of(whole, self.rank) {
            Some(carrier) if is_send(to.unit, whole) => {
                steps.extend([run, Step::Record(point_of(node))]);
                to.begins.push((carrier.stream, (point_of(node), self.node(node))));
            }
            Some(carrier) => {
                steps.extend([Step::Wait(Point::new(carrier.stream, 1)), run]);
                to.joined.shape.order(carrier.node, self.node(node));
            }
            None => steps.push(run),
        }
    }
}

fn is_send(unit: &Unit, node: NodeId) -> bool {
    let communication = unit.shape.nodes()[node.index()].communication.as_ref();
    communication.is_some_and(|communication| matches!(communication.exchange, Exchange::SendTo { .. }))
}
