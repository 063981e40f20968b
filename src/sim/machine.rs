//! The simulated machine: programs as a discrete-event simulation. Streams advance until they wait for a
//! point or for a slot of an engine. The ends of nodes move the clock. Every event goes into the log.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::clocks::Clocks;
use super::log::{Ending, Race, SimEvent, SimLog};
use super::points::Points;
use super::simulation::{Simulation, on};
use crate::device::sim::Chooser;
use crate::error::{Kind, Result};
use crate::graph::{NodeId, Rows};
use crate::plan::{Point, Step};

/// A machine with the programs of one simulation.
pub(super) struct Machine<'a> {
    simulation: &'a Simulation,
    /// The duration of each loop and branch.
    controls_us: &'a HashMap<NodeId, f64>,
    /// For each node the nodes that it waits for.
    waits_for: Rows<NodeId>,
    /// For each node, the streams that run it.
    runs: Rows<Run>,
    engines: Vec<Engine>,
    /// The engines that have got a stream or a free slot since all slots were filled.
    touched: BTreeSet<usize>,
    streams: Vec<Stream>,
    points: Points,
    /// The streams that resume: at which time, in the order of insertion, and which stream. Times are not
    /// negative, so their bits have the same order as the numbers.
    events: BinaryHeap<Reverse<(u64, u64, u32)>>,
    events_made: u64,
    now_us: f64,
    chooser: Chooser,
    clocks: Option<Clocks>,
    races: Vec<Race>,
    log: Vec<SimEvent>,
    /// Whether a run of the node failed or was skipped.
    is_bad: Vec<bool>,
}

/// A node on one of its streams.
#[derive(Clone, Copy)]
struct Run {
    stream: u32,
    /// The number of nodes before it on its stream.
    index: u32,
    /// The place of its engine in `engines`.
    engine: u32,
}

#[derive(Clone)]
struct Stream {
    /// The next step, or the node that runs.
    next: usize,
    /// The ending of the node that runs.
    ending: Ending,
    /// The place of the engine that the node takes.
    engine: usize,
}

/// The free slots of an engine, and the streams that wait for one.
struct Engine {
    free: u32,
    ready: Ready,
}

/// Streams that have reached a node. With [`Order::InOrder`], the next stream is the one whose node has the
/// lowest place. Otherwise the chooser picks one by number.
enum Ready {
    ByPlace(BinaryHeap<Reverse<(u32, u32)>>),
    Listed(Vec<u32>),
}

impl<'a> Machine<'a> {
    pub(super) fn new(simulation: &'a Simulation, controls_us: &'a HashMap<NodeId, f64>) -> Self {
        let (shape, chooser) = (&simulation.shape, Chooser::new(simulation.order.clone()));
        let waiting = shape.edges().iter().filter(|edge| !shape.is_submission(edge));
        let waits_for = Rows::sorted(shape.nodes().len(), waiting.map(|edge| (edge.target.0, edge.source)));
        let (mut runs, mut places, mut engines) = (Vec::new(), HashMap::new(), Vec::new());
        for (stream, (_, steps)) in (0..).zip(&simulation.programs) {
            let mut index = 0;
            for &step in steps {
                let Step::Run(node) = step else { continue };
                let id = simulation.engine(stream, node);
                let engine = *places.entry(id).or_insert_with(|| {
                    engines.push(Engine { free: simulation.slots_of(id), ready: Ready::new(&chooser) });
                    engines.len() as u32 - 1
                });
                runs.push((node.0, Run { stream, index, engine }));
                index += 1;
            }
        }
        let points = Points::of(&simulation.programs);
        let streams = simulation.programs.len();
        Self {
            simulation,
            controls_us,
            waits_for,
            runs: Rows::sorted(shape.nodes().len(), runs.iter().copied()),
            engines,
            touched: BTreeSet::new(),
            streams: vec![Stream { next: 0, ending: Ending::Done, engine: 0 }; streams],
            events: BinaryHeap::new(),
            events_made: 0,
            now_us: 0.0,
            chooser,
            clocks: Clocks::new(streams, points.count()),
            points,
            races: Vec::new(),
            log: Vec::new(),
            is_bad: vec![false; shape.nodes().len()],
        }
    }

    pub(super) fn run(mut self) -> Result<SimLog> {
        (0..self.streams.len() as u32).for_each(|stream| self.advance(stream));
        loop {
            self.fill_slots();
            let Some(&Reverse((at, ..))) = self.events.peek() else { break };
            self.now_us = f64::from_bits(at);
            // All events at one time come before slots are given out, so that all streams that are ready then
            // compete.
            while let Some(&Reverse((at, _, stream))) = self.events.peek()
                && f64::from_bits(at) <= self.now_us
            {
                self.events.pop();
                if let Some(&Step::Run(node)) = self.steps_left(stream).first() {
                    self.end(stream, node);
                }
                self.advance(stream);
            }
        }
        self.check_ends()?;
        let Self { simulation, clocks, races, log: events, chooser, .. } = self;
        let kinds = simulation.programs.iter().map(|program| program.0).collect();
        let (shape, names, races) = (simulation.shape.clone(), simulation.names.clone(), clocks.is_some().then_some(races));
        let nodes_of_item = simulation.nodes_of_item;
        let on = simulation.on.clone();
        Ok(SimLog { shape, names, kinds, on, nodes_of_item, inside: Vec::new(), events, races, choices: chooser.made })
    }

    /// Returns an error if a stream did not reach its end, or if choices to replay do not fit.
    fn check_ends(&self) -> Result<()> {
        if let Some(stream) = (0..self.streams.len() as u32).find(|&stream| !self.steps_left(stream).is_empty()) {
            let node =
                self.steps_left(stream).iter().find_map(|step| if let Step::Run(node) = step { Some(*node) } else { None });
            return Err(match node {
                Some(node) => Kind::WaitsForever { node: self.simulation.shape.name_of(node).clone() }.into(),
                None => Kind::Program { stream, fault: "ends with a wait for a point that nothing records".into() }.into(),
            });
        }
        self.chooser.misfit_at_end().map_or(Ok(()), |fault| Err(Kind::Simulation { fault }.into()))
    }

    fn steps_left(&self, stream: u32) -> &'a [Step] {
        &self.simulation.programs[stream as usize].1[self.streams[stream as usize].next..]
    }

    /// Advances a stream to its next node, or to a wait for a point that is not recorded yet.
    fn advance(&mut self, stream: u32) {
        while let Some(&step) = self.steps_left(stream).first() {
            match step {
                Step::Run(node) => {
                    let run = self.runs.of(node).iter().find(|run| run.stream == stream);
                    let engine = run.expect("the stream runs it").engine as usize;
                    self.streams[stream as usize].engine = engine;
                    self.touched.insert(engine);
                    return self.engines[engine].ready.push(stream, self.simulation.places[node.index()]);
                }
                Step::Record(point) => self.record(point),
                // Point 0 is always reached.
                Step::Wait(point) if point.seq == 0 => self.pass(stream, point),
                Step::Wait(point) => match self.points.recorded_us(point) {
                    None => return self.points.wait(point, stream),
                    Some(at_us) if at_us + self.simulation.hand_off_us > self.now_us => {
                        return self.push(at_us + self.simulation.hand_off_us, stream);
                    }
                    Some(_) => self.pass(stream, point),
                },
                Step::Release(_) => {}
            }
            self.streams[stream as usize].next += 1;
        }
    }

    fn record(&mut self, point: Point) {
        let Point { stream, seq, .. } = point;
        self.log.push(SimEvent::Record { at_us: self.now_us, stream, seq });
        if let Some(clocks) = &mut self.clocks {
            clocks.record(point);
        }
        for waiter in self.points.record(point, self.now_us) {
            self.push(self.now_us + self.simulation.hand_off_us, waiter);
        }
    }

    fn pass(&mut self, stream: u32, point: Point) {
        self.log.push(SimEvent::Pass { at_us: self.now_us, stream, point: (point.stream, point.seq) });
        if let Some(clocks) = &mut self.clocks {
            clocks.pass(stream, point);
        }
    }

    fn push(&mut self, at_us: f64, stream: u32) {
        self.events_made += 1;
        self.events.push(Reverse((at_us.to_bits(), self.events_made, stream)));
    }

    /// Gives free slots to the streams that wait for them, engine after engine.
    fn fill_slots(&mut self) {
        while let Some(engine) = self.touched.pop_first() {
            while self.engines[engine].free > 0
                && let Some(stream) = self.engines[engine].ready.take(&mut self.chooser)
            {
                let Some(&Step::Run(node)) = self.steps_left(stream).first() else {
                    unreachable!("a stream is ready at a node only")
                };
                self.engines[engine].free -= 1;
                self.start(stream, node);
            }
        }
    }

    fn start(&mut self, stream: u32, node: NodeId) {
        self.check_races(stream, node);
        let (ending, cost_us) = self.outcome(stream, node);
        self.streams[stream as usize].ending = ending;
        if ending != Ending::Skipped {
            self.log.push(SimEvent::Start { at_us: self.now_us, stream, node });
        }
        self.push(self.now_us + cost_us, stream);
    }

    fn end(&mut self, stream: u32, node: NodeId) {
        let Stream { next, ending, engine } = &mut self.streams[stream as usize];
        self.engines[*engine].free += 1;
        self.touched.insert(*engine);
        self.is_bad[node.index()] |= *ending != Ending::Done;
        self.log.push(SimEvent::End { at_us: self.now_us, stream, node, ending: *ending });
        if let Some(clocks) = &mut self.clocks {
            clocks.tick(stream);
        }
        *next += 1;
    }

    /// Checks that the stream knows the end of each node that this node waits for.
    fn check_races(&mut self, stream: u32, node: NodeId) {
        let Some(clocks) = &self.clocks else { return };
        for &source in self.waits_for.of(node) {
            let runs = self.runs.of(source).iter();
            let kind = |stream: u32| self.simulation.programs[stream as usize].0;
            let own = runs.clone().any(|run| run.stream == stream);
            let near = runs.clone().any(|run| kind(run.stream) == kind(stream));
            let is_seen = |run: &&Run| if own { run.stream == stream } else { !near || kind(run.stream) == kind(stream) };
            let is_known = runs.filter(is_seen).all(|run| clocks.knows(stream, run.stream, run.index));
            if !is_known {
                let name = |node| self.simulation.shape.name_of(node).clone();
                let race = Race { earlier: source, later: node, names: (name(source), name(node)) };
                if !self.races.contains(&race) {
                    self.races.push(race);
                }
            }
        }
    }

    /// Returns the ending of a node that begins now, and its duration.
    fn outcome(&self, stream: u32, node: NodeId) -> (Ending, f64) {
        if self.waits_for.of(node).iter().any(|source| self.is_bad[source.index()]) {
            return (Ending::Skipped, 0.0);
        }
        let faults = &self.simulation.faults;
        let own_us = self.simulation.shape.nodes()[node.index()].cost_us;
        let cost_us = self.controls_us.get(&node).copied().unwrap_or(own_us) * faults.factor(node);
        let kind = self.simulation.programs[stream as usize].0;
        match faults.lost_us(kind, on(&self.simulation.on, stream)) {
            Some(lost_us) if lost_us < self.now_us + cost_us => (Ending::Lost, (lost_us - self.now_us).max(0.0)),
            _ if faults.does_fail(node) => (Ending::Failed, cost_us),
            _ => (Ending::Done, cost_us),
        }
    }
}

impl Ready {
    fn new(chooser: &Chooser) -> Self {
        if chooser.is_in_order() { Self::ByPlace(BinaryHeap::new()) } else { Self::Listed(Vec::new()) }
    }

    fn push(&mut self, stream: u32, place: u32) {
        match self {
            Self::ByPlace(heap) => heap.push(Reverse((place, stream))),
            Self::Listed(list) => list.push(stream),
        }
    }

    fn take(&mut self, chooser: &mut Chooser) -> Option<u32> {
        match self {
            Self::ByPlace(heap) => heap.pop().map(|Reverse((_, stream))| stream),
            Self::Listed(list) if list.is_empty() => None,
            Self::Listed(list) => Some(list.swap_remove(chooser.choose(list.len()))),
        }
    }
}
