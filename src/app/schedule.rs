//! Schedules: hyperepochs with their engines and epochs, epochs with their runnables and dependencies.

use std::sync::Arc;

use super::fault::Place;
use super::parts::{Component, PassId};
use super::processor::Processor;
use crate::name::Name;

/// A schedule of the application: its hyperepochs run side by side, on resources of their own.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let schedule = app.schedule(Some("RUN"))?;
/// assert_eq!(schedule.name, "run");
/// assert_eq!(schedule.hyperepochs[0].name, "main");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StmSchedule {
    /// Its key in the file.
    pub name: Name,
    /// Its hyperepochs, in the order of the file.
    pub hyperepochs: Vec<Hyperepoch>,
}

/// A part of the machine that runs its epochs again and again.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let hyperepoch = &app.schedule(None)?.hyperepochs[0];
/// assert_eq!((hyperepoch.period_ns, hyperepoch.epochs.len()), (10_000_000, 2));
/// assert!(hyperepoch.simulate()?.fits());
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let hyperepoch = &app.schedule(None)?.hyperepochs[0];
/// let runnable = &hyperepoch.epochs[0].runnables[0];
/// assert_eq!(hyperepoch.engines[runnable.engine.index()].name, "machine0.CPU");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EngineId(pub(super) u32);

impl EngineId {
    /// Returns the position of the engine.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What runnables occupy: all CPUs of a machine, or engines of one kind.
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let engines = app.schedule(None)?.hyperepochs[0].engines.iter();
/// let lanes: Vec<(&str, u32)> = engines.map(|engine| (&*engine.name, engine.lanes)).collect();
/// assert_eq!(lanes, [("machine0.CPU", 2), ("machine0.dGPU", 1)]);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let mutex = &app.schedule(None)?.hyperepochs[0].mutexes[0];
/// assert_eq!(mutex.name, "worker.DISK");
/// assert!(app.pass("text.WRITE").is_some_and(|pass| mutex.passes.contains(&pass)));
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let stream = &app.schedule(None)?.hyperepochs[0].streams[0];
/// assert_eq!(stream.name, "worker.CUDA_STREAM0:dGPU");
/// assert_eq!(stream.engine, "dGPU");
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// // A pass on a GPU is two runnables.
/// assert_eq!((epoch.phases, epoch.runnables.len()), (2, 4));
/// println!("{}", app.written(epoch)?.phasing);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// use anabranch::app::RunnableId;
///
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// # let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// for dependency in &epoch.dependencies {
///     let name = |id: RunnableId| &epoch.runnables[id.index()].name;
///     println!("{} comes after {}", name(dependency.target), name(dependency.source));
/// }
/// # assert_eq!(epoch.dependencies.len(), 2);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunnableId(pub(super) u32);

impl RunnableId {
    /// Returns the position of the runnable.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What of a pass a runnable is.
///
/// ```
/// use anabranch::app::Role;
///
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// # let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// // `decode` and `track` are on a CPU, `detect` on a GPU.
/// let roles: Vec<Role> = epoch.runnables.iter().map(|runnable| runnable.role).collect();
/// assert_eq!(roles, [Role::Run, Role::Submitter, Role::Submittee, Role::Run]);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// # let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// let longest = epoch.runnables.iter().max_by(|a, b| a.cost_ns.total_cmp(&b.cost_ns));
/// assert!(longest.is_some_and(|runnable| runnable.name == "detect.PROCESS_submittee"));
/// assert_eq!(longest.map(|runnable| (runnable.cost_us(), runnable.row)), Some((5_000.0, 2)));
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// use anabranch::app::Dependency;
///
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// # let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// // Within an item, the submittee of `detect` comes after its submitter, and `track` after both.
/// let pair = |dependency: &Dependency| (dependency.source.index(), dependency.target.index());
/// let pairs = epoch.dependencies.iter().map(pair);
/// assert_eq!(pairs.collect::<Vec<_>>(), [(1, 2), (2, 3)]);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// use anabranch::app::Reason;
///
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// # let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// let is_message = |reason| matches!(reason, Reason::Connection(_));
/// assert_eq!(epoch.dependencies.iter().filter(|dependency| is_message(dependency.reason)).count(), 1);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// use anabranch::app::Delivery;
///
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// # let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// // `decode` sends to a later phase, `detect` within its phase, and `track` back to `detect`.
/// for delivery in [Delivery::ByItem, Delivery::Within, Delivery::Feedback] {
///     assert_eq!(epoch.links.iter().filter(|link| link.delivery == delivery).count(), 1);
/// }
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// # let epoch = &app.schedule(None)?.hyperepochs[0].epochs[0];
/// // `detect` is one phase behind `decode`.
/// let link = epoch.links.iter().find(|link| link.offset == Some(1));
/// assert_eq!(link.map(|link| link.capacity), Some(2));
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// ```
/// # let app = anabranch::app::App::open("src/app/sample/camera.app.json")?;
/// let group = &app.schedule(None)?.hyperepochs[0].epochs[1].alias_groups[0];
/// assert_eq!(group.name, "writers");
/// assert_eq!(group.components, ["text", "video"]);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
