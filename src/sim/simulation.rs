//! One simulation: a schedule, a machine, an order, faults.

use std::collections::HashMap;
use std::sync::Arc;

use super::clocks::Clocks;
use super::faults::Faults;
use super::inner::Inner;
use super::log::{Ending, Race, SimEvent, SimLog};
use crate::device::sim::{Chooser, Machine, Op, Order, Player, Work};
use crate::error::{Kind, Result};
use crate::graph::{Backend, COST_US_MAX, NodeId, NodeShape, Shape, check_ids};
use crate::plan::{Point, Schedule, Step, StreamKind, check_steps};

/// The work that a simulated machine does at once. Each device has compute and copy engines of its own; the
/// host has cores.
///
/// `gpu` nodes take a compute slot, `mixed` nodes a slot for copies to the device, `cpu` nodes a core. A node
/// whose command is `copy-up` or `copy-down` takes that copy engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Slots {
    /// Kernels at once, on each device.
    pub compute: u32,
    /// Copies from the host at once, on each device.
    pub copy_up: u32,
    /// Copies to the host at once, on each device.
    pub copy_down: u32,
    /// Tasks at once on the host.
    pub cores: u32,
}

impl Default for Slots {
    /// Returns the slots of a large GPU, with 128 kernels and a copy in each direction, and of a host with 8
    /// cores.
    fn default() -> Self {
        Self { compute: 128, copy_up: 1, copy_down: 1, cores: 8 }
    }
}

impl Slots {
    /// Sets the number of kernels that run at once on each device.
    pub fn compute(self, compute: u32) -> Self {
        Self { compute, ..self }
    }

    /// Sets the number of copies from the host that run at once on each device.
    pub fn copy_up(self, copy_up: u32) -> Self {
        Self { copy_up, ..self }
    }

    /// Sets the number of copies to the host that run at once on each device.
    pub fn copy_down(self, copy_down: u32) -> Self {
        Self { copy_down, ..self }
    }

    /// Sets the number of tasks that run at once on the host.
    pub fn cores(self, cores: u32) -> Self {
        Self { cores, ..self }
    }
}

/// A schedule that runs in virtual time. Each node takes its `cost_us`.
///
/// # Examples
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::sim::{Order, Simulation};
///
/// let mut shape = Shape::new();
/// let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| shape.node(name, Backend::Gpu));
/// [(a, b), (a, c), (b, d), (c, d)].into_iter().for_each(|(from, to)| shape.read(from, 0, to));
/// let schedule = shape.schedule()?;
///
/// let log = Simulation::new(&schedule).order(Order::Seeded(7)).run()?;
/// assert_eq!(log.makespan_us(), 3.0);
/// assert!(log.races().is_some_and(|races| races.is_empty()));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    pub(super) shape: Arc<Shape>,
    programs: Vec<(StreamKind, Vec<Step>)>,
    /// What the log calls the streams, and what it calls their points.
    names: Vec<(String, String)>,
    /// The place of each node if nobody chooses.
    places: Vec<u32>,
    pub(super) slots: Slots,
    pub(super) hand_off_us: f64,
    order: Order,
    faults: Faults,
    is_one_at_a_time: bool,
    /// The inner graphs, those around before those inside.
    pub(super) inner: Vec<Inner>,
}

impl Simulation {
    /// Returns the simulation of a schedule: in order, with the default slots, without faults, and with waits
    /// that take no time.
    ///
    /// A loop or branch takes the sum of the times of its inner graphs, each alone on such a machine, in
    /// order and without faults. A loop has the number of iterations that its shape says, and a branch takes
    /// the arm that its shape says.
    pub fn new(schedule: &Schedule) -> Self {
        Self { inner: Inner::all(schedule), ..Self::of_one(schedule) }
    }

    /// Without inner graphs.
    pub(super) fn of_one(schedule: &Schedule) -> Self {
        let programs = (0..schedule.streams()).map(|stream| (schedule.kind(stream), schedule.steps(stream).to_vec())).collect();
        let mut places = vec![0; schedule.order().len()];
        schedule.order().iter().zip(0..).for_each(|(node, place)| places[node.index()] = place);
        let point_name = |stream| match schedule.kind(stream) {
            StreamKind::Device(_) => schedule.label(stream).to_string(),
            StreamKind::Host => schedule.stream_name(stream),
        };
        let names = (0..schedule.streams()).map(|stream| (schedule.stream_name(stream), point_name(stream))).collect();
        Self { places, names, ..Self::of_programs(schedule.shape().clone(), programs) }
    }

    /// Returns the simulation of programs, which need not be a correct plan of `shape`, in the form of
    /// [`Shape::verify_programs`].
    pub fn of_programs(shape: impl Into<Arc<Shape>>, programs: Vec<(StreamKind, Vec<Step>)>) -> Self {
        let shape = shape.into();
        let places = (0..shape.nodes().len() as u32).collect();
        let names = (0..programs.len()).map(|stream| (format!("stream {stream}"), stream.to_string())).collect();
        let (slots, order, faults) = (Slots::default(), Order::default(), Faults::default());
        let inner = Vec::new();
        Self { shape, programs, names, places, slots, hand_off_us: 0.0, order, faults, is_one_at_a_time: false, inner }
    }

    /// Sets the work that the machine does at once. An engine with 0 slots counts as one with 1.
    pub fn slots(self, slots: Slots) -> Self {
        Self { slots, ..self }
    }

    /// Sets the time from a record until a stream that waits for it continues, in microseconds.
    pub fn hand_off_us(self, hand_off_us: f64) -> Self {
        Self { hand_off_us, ..self }
    }

    /// Sets the order: the choice among the nodes that could run next.
    pub fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Sets the faults to inject.
    pub fn faults(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// Runs one node at a time, whatever its engine. Then each order that the programs allow is possible,
    /// whatever the costs.
    pub fn one_at_a_time(self) -> Self {
        Self { is_one_at_a_time: true, ..self }
    }

    /// Runs the programs.
    ///
    /// # Errors
    /// - A stream waits for ever: in a circle, or for a point that no stream records. The error names the
    ///   node that it never reaches.
    /// - The time of a hand-off or of a fault is out of range.
    /// - The shape or a program names a node that the shape does not have.
    /// - A stream records a point of another stream, or its own points out of order.
    /// - The choices to [replay](Order::Replay) do not fit.
    pub fn run(&self) -> Result<SimLog> {
        if !(0.0..=COST_US_MAX).contains(&self.hand_off_us) {
            let fault = format!("the hand-off takes {:?} us: a time is from 0 to 10^12", self.hand_off_us);
            return Err(Kind::Simulation { fault }.into());
        }
        if let Some(fault) = self.faults.fault() {
            return Err(Kind::Simulation { fault }.into());
        }
        check_ids(&self.shape)?;
        check_steps(&self.shape, &self.programs)?;
        self.check_records()?;
        let setup = Setup::new(self);
        let controls_us = self.controls_us()?;
        self.play(&setup, &controls_us)
    }

    /// `controls_us` says how long loops and branches take.
    pub(super) fn play(&self, setup: &Setup, controls_us: &HashMap<NodeId, f64>) -> Result<SimLog> {
        let mut stage = Stage::new(self, setup, controls_us);
        let chooser = Chooser::new(self.order.clone());
        let machine = Machine::new(&setup.programs, &setup.works, &setup.slots, self.hand_off_us, chooser);
        let (chooser, stuck) = machine.run(&mut stage);
        if let Some(stream) = stuck {
            let started = stage.counts[stream as usize] as usize;
            return Err(match self.runs(stream).nth(started) {
                Some(node) => Kind::WaitsForever { node: self.shape.name_of(node).clone() }.into(),
                None => Kind::Program { stream, fault: "ends with a wait for a point that nothing records".into() }.into(),
            });
        }
        if let Some(fault) = chooser.misfit_at_end() {
            return Err(Kind::Simulation { fault }.into());
        }
        let races = stage.clocks.is_some().then_some(stage.races);
        let kinds = self.programs.iter().map(|program| program.0).collect();
        let names = self.names.clone();
        Ok(SimLog { shape: self.shape.clone(), names, kinds, events: stage.events, races, choices: chooser.made })
    }

    /// Checks that each stream records points of its own, in ascending order.
    fn check_records(&self) -> Result<()> {
        for (stream, (_, steps)) in (0..).zip(&self.programs) {
            let mut last = None;
            for step in steps {
                let Step::Record(Point { stream: of, seq }) = *step else { continue };
                let fault = match last.replace(seq) {
                    _ if of != stream => {
                        format!("records point {of}@{seq}, which is of another stream: record its own points only")
                    }
                    Some(last) if last >= seq => format!("records point {of}@{seq} behind {of}@{last}: points count up"),
                    _ => continue,
                };
                return Err(Kind::Program { stream, fault }.into());
            }
        }
        Ok(())
    }

    /// Returns the nodes that a stream runs, in order.
    fn runs(&self, stream: u32) -> impl Iterator<Item = NodeId> + '_ {
        let steps = self.programs[stream as usize].1.iter();
        steps.filter_map(|step| if let Step::Run(node) = step { Some(*node) } else { None })
    }

    /// Returns the device whose engines a node on this stream takes, by kind.
    fn engine(&self, node: &NodeShape, kind: StreamKind) -> (u32, EngineKind) {
        let device = if let StreamKind::Device(device) = kind { device } else { 0 };
        let engine = match (&**node.command(), node.backend) {
            ("copy-up", _) | (_, Backend::Mixed) => EngineKind::CopyUp,
            ("copy-down", _) => EngineKind::CopyDown,
            (_, Backend::Gpu) => EngineKind::Compute,
            (_, Backend::Cpu) => return (0, EngineKind::Cores),
        };
        (device, engine)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum EngineKind {
    Compute,
    CopyUp,
    CopyDown,
    Cores,
}

/// The programs as the machine takes them. The number of a work is that of its run, stream after stream.
pub(super) struct Setup {
    programs: Vec<Vec<Op>>,
    works: Vec<Work>,
    slots: Vec<u32>,
    /// For each node the streams that run it, and which of the stream's runs it is.
    runs: Vec<Vec<(u32, u32)>>,
    /// The node of each work.
    nodes: Vec<NodeId>,
    records: usize,
}

impl Setup {
    pub(super) fn new(simulation: &Simulation) -> Self {
        let nodes = simulation.shape.nodes();
        let mut engines: HashMap<(u32, EngineKind), u32> = HashMap::new();
        let mut setup = Self {
            programs: Vec::new(),
            works: Vec::new(),
            slots: Vec::new(),
            runs: vec![Vec::new(); nodes.len()],
            nodes: Vec::new(),
            records: 0,
        };
        for (stream, (kind, steps)) in simulation.programs.iter().enumerate() {
            let (mut program, mut index) = (Vec::with_capacity(steps.len()), 0);
            for step in steps {
                match *step {
                    Step::Wait(point) => program.push(Op::Wait { stream: point.stream, seq: point.seq }),
                    Step::Record(point) => {
                        program.push(Op::Record { seq: point.seq });
                        setup.records += 1;
                    }
                    Step::Run(node) => {
                        let engine = match simulation.is_one_at_a_time {
                            true => (0, EngineKind::Cores),
                            false => simulation.engine(&nodes[node.index()], *kind),
                        };
                        let next = setup.slots.len() as u32;
                        let engine_number = *engines.entry(engine).or_insert(next);
                        if engine_number == next {
                            setup.slots.push(if simulation.is_one_at_a_time { 1 } else { slots_of(simulation.slots, engine.1) });
                        }
                        program.push(Op::Work(setup.works.len() as u32));
                        setup.works.push(Work { engine: engine_number, place: simulation.places[node.index()] });
                        setup.nodes.push(node);
                        setup.runs[node.index()].push((stream as u32, index));
                        index += 1;
                    }
                    Step::Release(_) => {}
                }
            }
            setup.programs.push(program);
        }
        setup
    }
}

fn slots_of(slots: Slots, engine: EngineKind) -> u32 {
    let slots = match engine {
        EngineKind::Compute => slots.compute,
        EngineKind::CopyUp => slots.copy_up,
        EngineKind::CopyDown => slots.copy_down,
        EngineKind::Cores => slots.cores,
    };
    slots.max(1)
}

/// Where the simulation is played: writes the log, keeps the clocks, lets things go wrong.
struct Stage<'a> {
    simulation: &'a Simulation,
    setup: &'a Setup,
    controls_us: &'a HashMap<NodeId, f64>,
    /// For each node what it waits for.
    waits_for: Vec<Vec<NodeId>>,
    clocks: Option<Clocks>,
    races: Vec<Race>,
    events: Vec<SimEvent>,
    /// How each run will end, and how each node has ended so far: badly if any of its runs has.
    endings: Vec<Ending>,
    is_bad: Vec<bool>,
    /// How many runs each stream has ended.
    counts: Vec<u32>,
}

impl<'a> Stage<'a> {
    fn new(simulation: &'a Simulation, setup: &'a Setup, controls_us: &'a HashMap<NodeId, f64>) -> Self {
        let nodes = simulation.shape.nodes().len();
        let mut waits_for = vec![Vec::new(); nodes];
        let waiting = simulation.shape.edges().iter().filter(|edge| !simulation.shape.is_submission(edge));
        waiting.for_each(|edge| waits_for[edge.target.index()].push(edge.source));
        Self {
            simulation,
            setup,
            controls_us,
            waits_for,
            clocks: Clocks::new(setup.programs.len(), setup.records),
            races: Vec::new(),
            events: Vec::new(),
            endings: vec![Ending::Done; setup.works.len()],
            is_bad: vec![false; nodes],
            counts: vec![0; setup.programs.len()],
        }
    }

    /// Looks whether the stream knows of all that the node waits for.
    fn check_races(&mut self, stream: u32, node: NodeId) {
        let Some(clocks) = &self.clocks else { return };
        for &source in &self.waits_for[node.index()] {
            let runs = self.setup.runs[source.index()].iter();
            let kind = |stream: u32| self.simulation.programs[stream as usize].0;
            let own = runs.clone().any(|run| run.0 == stream);
            let near = runs.clone().any(|run| kind(run.0) == kind(stream));
            let is_seen = |run: &&(u32, u32)| if own { run.0 == stream } else { !near || kind(run.0) == kind(stream) };
            let is_known = runs.filter(is_seen).all(|&(other, index)| clocks.knows(stream, other, index));
            if !is_known {
                let name = |node| self.simulation.shape.name_of(node).clone();
                let race = Race { earlier: source, later: node, names: (name(source), name(node)) };
                if !self.races.contains(&race) {
                    self.races.push(race);
                }
            }
        }
    }

    /// Returns how a node will end that begins now, and how long that takes.
    fn fate(&self, stream: u32, node: NodeId, now_us: f64) -> (Ending, f64) {
        if self.waits_for[node.index()].iter().any(|source| self.is_bad[source.index()]) {
            return (Ending::Skipped, 0.0);
        }
        let faults = &self.simulation.faults;
        let own_us = self.simulation.shape.nodes()[node.index()].cost_us;
        let cost_us = self.controls_us.get(&node).copied().unwrap_or(own_us) * faults.factor(node);
        let lost_us = match self.simulation.programs[stream as usize].0 {
            StreamKind::Device(device) => faults.lost_us(device),
            StreamKind::Host => None,
        };
        match lost_us {
            Some(lost_us) if lost_us < now_us + cost_us => (Ending::Lost, (lost_us - now_us).max(0.0)),
            _ if faults.does_fail(node) => (Ending::Failed, cost_us),
            _ => (Ending::Done, cost_us),
        }
    }
}

impl Player for Stage<'_> {
    fn start(&mut self, stream: u32, work: u32, now_us: f64) -> f64 {
        let node = self.setup.nodes[work as usize];
        self.check_races(stream, node);
        let (ending, cost_us) = self.fate(stream, node, now_us);
        self.endings[work as usize] = ending;
        if ending != Ending::Skipped {
            self.events.push(SimEvent::Start { at_us: now_us, stream, node });
        }
        cost_us
    }

    fn end(&mut self, stream: u32, work: u32, now_us: f64) {
        let (node, ending) = (self.setup.nodes[work as usize], self.endings[work as usize]);
        self.is_bad[node.index()] |= ending != Ending::Done;
        self.counts[stream as usize] += 1;
        self.events.push(SimEvent::End { at_us: now_us, stream, node, ending });
        if let Some(clocks) = &mut self.clocks {
            clocks.tick(stream);
        }
    }

    fn record(&mut self, stream: u32, seq: u32, now_us: f64) {
        self.events.push(SimEvent::Record { at_us: now_us, stream, seq });
        if let Some(clocks) = &mut self.clocks {
            clocks.record(stream, seq);
        }
    }

    fn pass(&mut self, stream: u32, point: (u32, u32), now_us: f64) {
        self.events.push(SimEvent::Pass { at_us: now_us, stream, point });
        if let Some(clocks) = &mut self.clocks {
            clocks.pass(stream, point);
        }
    }
}
