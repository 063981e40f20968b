//! Schedules: hyperepochs with their engines and epochs, epochs with their runnables and dependencies.

use std::sync::Arc;

use super::fault::Place;
use super::parts::{Component, PassId};
use super::processor::Processor;
use crate::name::Name;

/// A schedule of the application: its hyperepochs run side by side, on resources of their own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StmSchedule {
    /// Its key in the file.
    pub name: Name,
    /// Its hyperepochs, in the order of the file.
    pub hyperepochs: Vec<Hyperepoch>,
}

/// A part of the machine that runs its epochs again and again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hyperepoch {
    /// Its key in the file.
    pub name: Name,
    /// The time after which it begins again, in nanoseconds.
    pub period_ns: u64,
    /// What its runnables occupy.
    pub engines: Arc<[Engine]>,
    /// What its passes hold, one at a time.
    pub mutexes: Vec<Mutex>,
    /// The streams of its processes.
    pub streams: Vec<EngineStream>,
    /// Its epochs, in the order of the file.
    pub epochs: Vec<Epoch>,
}

/// An engine of a hyperepoch, by its position in [`Hyperepoch::engines`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EngineId(pub(super) u32);

impl EngineId {
    /// Returns the position of the engine.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What runnables occupy: all CPUs of a machine, or engines of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Engine {
    /// `machine0.CPU`, or the name in the file if it has one lane: `machine0.dGPU`.
    pub name: Name,
    /// How many runnables it can run at once.
    pub lanes: u32,
    pub(super) machine: Name,
    pub(super) stem: Name,
}

impl Engine {
    pub(super) fn is_for(&self, processor: Processor) -> bool {
        processor.is_engine(&self.stem)
    }
}

/// A mutex of a process. The passes that hold it exclude each other.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Mutex {
    /// Its name in the file: `worker.LOCK`.
    pub name: Name,
    /// The passes that hold it.
    pub passes: Vec<PassId>,
}

/// A stream of a process. In the original, streams limit how many passes of a process are submitted to an
/// engine at once. The engine itself runs one at a time, so they limit nothing here.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EngineStream {
    /// Its name in the file: `worker.CUDA_STREAM0:dGPU`.
    pub name: Name,
    /// The process.
    pub process: Name,
    /// The engine, without its machine: `dGPU`.
    pub engine: Name,
}

/// Passes that run at one period.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Epoch {
    /// Its key in the file.
    pub name: Name,
    /// The time between two of its frames, in nanoseconds.
    pub period_ns: u64,
    /// How often it runs in each period of its hyperepoch.
    pub frames: u32,
    /// The number of its phases: of its rows without row 0.
    pub phases: u32,
    /// What the engines run, in the order of the passes.
    pub runnables: Vec<Runnable>,
    /// Which runnable comes after which, within one frame.
    pub dependencies: Vec<Dependency>,
    /// The connections between its components.
    pub links: Vec<Link>,
    /// The components that take turns.
    pub alias_groups: Vec<AliasGroup>,
    /// What comes after what for one item, from one phase to a later one, within a component.
    pub(super) by_item: Vec<(RunnableId, RunnableId)>,
    pub(super) engines: Arc<[Engine]>,
    pub(super) place: Place,
}

/// A runnable of an epoch, by its position in [`Epoch::runnables`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunnableId(pub(super) u32);

impl RunnableId {
    /// Returns the position of the runnable.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What of a pass a runnable is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// All of it, on a CPU.
    Run,
    /// What submits it to a device, on a CPU.
    Submitter,
    /// What the device does.
    Submittee,
}

/// A pass on a CPU, or one of the two parts of a pass on a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Runnable {
    /// The name of the pass; with `_submittee` behind it for the part on the device.
    pub name: Name,
    /// The pass.
    pub pass: PassId,
    /// What of the pass it is.
    pub role: Role,
    /// The row that names it: a phase, or 0 if it is not pipelined.
    pub row: u32,
    /// What it occupies.
    pub engine: EngineId,
    /// Its cost in nanoseconds.
    pub cost_ns: f64,
    /// True if the file of costs has no entry for it.
    pub is_default_cost: bool,
    /// The mutexes that its pass holds, by position.
    pub mutexes: Vec<u32>,
    /// If it takes turns with others: the position of its alias group, and its turn there.
    pub turn: Option<(u32, u32)>,
}

impl Runnable {
    /// Returns its cost in microseconds.
    pub fn cost_us(&self) -> f64 {
        self.cost_ns / 1e3
    }
}

/// One runnable that comes after another within a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Dependency {
    /// Comes first.
    pub source: RunnableId,
    /// Comes after it.
    pub target: RunnableId,
    /// Why.
    pub reason: Reason,
}

/// Why a runnable comes after another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// They are passes of one component.
    Component,
    /// A device gets the work from the submitter.
    Submission,
    /// It reads a message, by a connection of this position.
    Connection(u32),
    /// The only slot of a connection of this position must be read before it is written again.
    Singleton(u32),
    /// `passDependencies` has it.
    Declared,
}

/// How the messages of a connection find their consumer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Delivery {
    /// Within one frame: the consumer comes after the producer.
    Within,
    /// By item: the consumer of item k, some phases later, gets the message of item k.
    ByItem,
    /// As feedback: the consumer gets the message of an earlier item.
    Feedback,
    /// By item through one slot: the producer of the next item comes after the consumer.
    Inverted,
    /// From an epoch to another: the consumer gets the message that it finds.
    AcrossEpochs,
}

/// A connection as an epoch uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Link {
    /// The position of the connection in [`App::connections`](super::App::connections).
    pub connection: u32,
    /// How many phases the consumer is behind the producer; none if one of them has no phase.
    pub offset: Option<i32>,
    /// How the messages find their consumer.
    pub delivery: Delivery,
    /// True if the consumer chooses the message by its item, because the output port has a consumer in a
    /// later phase.
    pub is_stamped: bool,
    /// How many messages the connection must hold, so that none is lost.
    pub capacity: u32,
}

/// Components of an epoch that take turns: in each frame, one of them runs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AliasGroup {
    /// Its key in the file.
    pub name: Name,
    /// The components, in the order of their turns.
    pub components: Vec<Name>,
}

impl Epoch {
    /// Returns the passes that a pass comes after within a frame, without those of its own component.
    pub fn predecessors(&self, pass: PassId) -> Vec<PassId> {
        let of = |id: RunnableId| self.runnables[id.index()].pass;
        let is_own = |reason| matches!(reason, Reason::Component | Reason::Submission);
        let before = self.dependencies.iter().filter(|dependency| of(dependency.target) == pass && !is_own(dependency.reason));
        let mut passes: Vec<PassId> = before.map(|dependency| of(dependency.source)).collect();
        passes.sort();
        passes.dedup();
        passes
    }

    /// Returns what its runnables occupy.
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    pub(super) fn edges(&self) -> Vec<(u32, u32)> {
        self.dependencies.iter().map(|dependency| (dependency.source.0, dependency.target.0)).collect()
    }

    /// Returns the runnables with which the dependents of a pass begin to wait, and end to wait.
    pub(super) fn ends_of(&self, pass: PassId) -> Option<(RunnableId, RunnableId)> {
        let first = self.runnables.partition_point(|runnable| runnable.pass < pass);
        let count = self.runnables[first..].iter().take_while(|runnable| runnable.pass == pass).count();
        (count > 0).then(|| (RunnableId(first as u32), RunnableId((first + count - 1) as u32)))
    }

    /// Returns the first and the last runnable of a component. The epoch may have only some of its passes.
    pub(super) fn ends_of_component(&self, component: &Component) -> Option<(RunnableId, RunnableId)> {
        let first = self.runnables.partition_point(|runnable| runnable.pass < component.first());
        let end = self.runnables.partition_point(|runnable| runnable.pass <= component.last());
        (first < end).then(|| (RunnableId(first as u32), RunnableId(end as u32 - 1)))
    }
}
