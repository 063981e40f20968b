//! One simulation: a schedule, a machine, an order, faults.

use std::sync::Arc;

use super::faults::Faults;
use super::inner::Inner;
use super::log::SimLog;
use super::machine::Machine;
use crate::device::sim::Order;
use crate::error::{Kind, Result};
use crate::graph::{Backend, COST_US_MAX, NodeId, NodeShape, Shape, check_ids};
use crate::plan::{Point, Schedule, Step, StreamKind, StreamName, check_steps};
use crate::ranks::On;

/// The work that a simulated machine does at the same time. Each device has its own compute and copy engines.
/// The host has cores.
///
/// A `gpu` node takes a compute slot, a `mixed` node a slot for copies to the device, a `cpu` node a core. A
/// node whose command is `copy-up` or `copy-down` takes a slot of that copy engine.
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::sim::{Simulation, Slots};
///
/// let mut shape = Shape::new();
/// ["a", "b", "c", "d"].map(|name| shape.node(name, Backend::Gpu));
/// // Two kernels at the same time, and then the other two.
/// let slots = Slots::default().compute(2);
/// let log = Simulation::new(&shape.schedule()?).slots(slots).run()?;
/// assert_eq!(log.makespan_us(), 2.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Slots {
    /// The number of kernels at the same time, on each device.
    pub compute: u32,
    /// The number of copies from the host at the same time, on each device.
    pub copy_up: u32,
    /// The number of copies to the host at the same time, on each device.
    pub copy_down: u32,
    /// The number of tasks at the same time on the host.
    pub cores: u32,
}

impl Default for Slots {
    /// Returns the slots of a large GPU, with 128 kernels and one copy in each direction, and of a host with
    /// 8 cores.
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
    pub(super) programs: Vec<(StreamKind, Vec<Step>)>,
    /// The name of each stream in the log, and the name of its points.
    pub(super) names: Arc<[StreamName]>,
    /// The number of nodes of each item. 0 if the nodes are not those of items.
    pub(super) nodes_of_item: u32,
    /// The place of each node in issue order.
    pub(super) places: Vec<u32>,
    /// Where each stream does its work. Empty if that is one machine.
    pub(super) on: Arc<[On]>,
    pub(super) slots: Slots,
    pub(super) hand_off_us: f64,
    pub(super) order: Order,
    pub(super) faults: Faults,
    is_one_at_a_time: bool,
    /// The inner graphs, outer before inner.
    pub(super) inner: Vec<Inner>,
}

impl Simulation {
    /// Returns a simulation of a schedule: in order, with the default slots, without faults, and with
    /// hand-offs that take no time.
    ///
    /// A loop or branch takes the sum of the times of its inner graphs, each alone on such a machine, in
    /// order and without faults. A loop has the expected number of iterations of its shape, and a branch
    /// takes the expected arm.
    pub fn new(schedule: &Schedule) -> Self {
        Self { inner: Inner::all(schedule), ..Self::of_one(schedule) }
    }

    /// Returns a simulation without inner graphs.
    pub(super) fn of_one(schedule: &Schedule) -> Self {
        let programs = (0..schedule.streams()).map(|stream| (schedule.kind(stream), schedule.steps(stream).to_vec())).collect();
        let mut places = vec![0; schedule.order().len()];
        schedule.order().iter().zip(0..).for_each(|(node, place)| places[node.index()] = place);
        let names = (0..schedule.streams()).map(|stream| StreamName::Schedule(schedule.named(stream))).collect();
        Self { places, names, ..Self::of_programs(schedule.shape().clone(), programs) }
    }

    /// Returns a simulation of programs, in the form of [`Shape::verify_programs`]. They need not be a
    /// correct plan of `shape`.
    pub fn of_programs(shape: impl Into<Arc<Shape>>, programs: Vec<(StreamKind, Vec<Step>)>) -> Self {
        let shape = shape.into();
        let places = (0..shape.nodes().len() as u32).collect();
        let names = (0..programs.len() as u32).map(StreamName::Program).collect();
        let (slots, order, faults) = (Slots::default(), Order::default(), Faults::default());
        Self {
            shape,
            programs,
            names,
            nodes_of_item: 0,
            places,
            on: Arc::default(),
            slots,
            hand_off_us: 0.0,
            order,
            faults,
            is_one_at_a_time: false,
            inner: Vec::new(),
        }
    }

    /// Sets the number of nodes of each item, the names of streams, and the place of each node in issue
    /// order.
    pub(crate) fn over_items(self, nodes_of_item: u32, names: Arc<[StreamName]>, places: Vec<u32>) -> Self {
        Self { nodes_of_item, names, places, ..self }
    }

    /// Sets where each stream does its work, the names of streams, and the place of each node in the issue
    /// order of its rank.
    pub(super) fn over_ranks(self, on: Vec<On>, names: Vec<StreamName>, places: Vec<u32>) -> Self {
        Self { on: on.into(), names: names.into(), places, ..self }
    }

    /// Returns the shape. The ids of its nodes are those in faults and in the log.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Sets the work that the machine does at the same time. An engine with 0 slots counts as one with 1.
    pub fn slots(self, slots: Slots) -> Self {
        Self { slots, ..self }
    }

    /// Sets the time from a record until a waiting stream resumes, in microseconds. The default is 0.
    pub fn hand_off_us(self, hand_off_us: f64) -> Self {
        Self { hand_off_us, ..self }
    }

    /// Sets the order, which chooses among the nodes that could run next.
    pub fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Sets the faults to inject.
    pub fn faults(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// Makes the machine run one node at a time, on any engine. Then each order that the programs allow is
    /// possible, with any costs.
    pub fn one_at_a_time(self) -> Self {
        Self { is_one_at_a_time: true, ..self }
    }

    /// Runs the programs.
    ///
    /// # Errors
    /// - A stream waits for ever: in a cycle, or for a point that no stream records. The error names the node
    ///   that the stream never reaches.
    /// - The time of a hand-off or of a fault is out of range.
    /// - The shape or a program names an unknown node.
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
        let (controls_us, inside) = self.inside()?;
        Ok(SimLog { inside, ..Machine::new(self, &controls_us).run()? })
    }

    /// Checks that each stream records only its own points, in ascending order.
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

    /// Returns the engine that a node on this stream takes.
    pub(super) fn engine(&self, stream: u32, node: NodeId) -> EngineId {
        if self.is_one_at_a_time {
            return EngineId { rank: 0, device: 0, kind: EngineKind::Cores };
        }
        engine_of(on(&self.on, stream), self.programs[stream as usize].0, &self.shape.nodes()[node.index()])
    }

    /// Returns the number of slots that an engine has.
    pub(super) fn slots_of(&self, engine: EngineId) -> u32 {
        let slots = match engine.kind {
            _ if self.is_one_at_a_time => 1,
            EngineKind::Compute => self.slots.compute,
            EngineKind::CopyUp => self.slots.copy_up,
            EngineKind::CopyDown => self.slots.copy_down,
            EngineKind::Cores => self.slots.cores,
            EngineKind::Link => 1,
            EngineKind::Network => u32::MAX,
        };
        slots.max(1)
    }
}

/// Returns where a stream does its work.
pub(super) fn on(all: &[On], stream: u32) -> On {
    all.get(stream as usize).copied().unwrap_or(On::Rank(0))
}

/// Returns the engine that a node on a stream of this kind takes.
pub(super) fn engine_of(on: On, kind: StreamKind, node: &NodeShape) -> EngineId {
    let on_device = if let StreamKind::Device(device) = kind { device } else { 0 };
    let (rank, device, kind) = match (on, &**node.command(), node.backend) {
        (On::Network, ..) => (u32::MAX, 0, EngineKind::Network),
        (On::Link(rank), ..) => (rank, 0, EngineKind::Link),
        (On::Rank(rank), ..) if node.communication.is_some() => (rank, 0, EngineKind::Network),
        (On::Rank(rank), "copy-up", _) | (On::Rank(rank), _, Backend::Mixed) => (rank, on_device, EngineKind::CopyUp),
        (On::Rank(rank), "copy-down", _) => (rank, on_device, EngineKind::CopyDown),
        (On::Rank(rank), _, Backend::Gpu) => (rank, on_device, EngineKind::Compute),
        (On::Rank(rank), _, Backend::Cpu) => (rank, 0, EngineKind::Cores),
    };
    EngineId { rank, device, kind }
}

/// An engine. The network is behind all ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EngineId {
    pub(super) rank: u32,
    pub(super) device: u32,
    pub(super) kind: EngineKind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum EngineKind {
    Cores,
    Compute,
    CopyUp,
    CopyDown,
    Link,
    Network,
}
