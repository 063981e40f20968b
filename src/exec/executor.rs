//! Executors: a device, and the bounds within which it runs plans.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use super::core::Core;
use super::inside::{Inside, is_inside};
use super::observe::Observer;
use super::queues::Queues;
use super::rehearse::Rehearsal;
use super::{Inputs, Run, SerialStream};
use crate::bridge::{Lane, Pace, WaiterKey};
use crate::device::host::{Around, Barrier, Pool, SLOTS_MAX};
use crate::device::queue::QueueDevice;
use crate::device::sim::Order;
use crate::error::{Error, Kind, Result};
use crate::plan::Plan;
use crate::sim::Faults;

/// Runs plans on a device. Cheap to clone; all clones are one executor.
///
/// When the last clone is dropped, runs that are still in flight end with an error for which [`Error::is_shut_down`] is true.
/// Dropping does not wait; [`Executor::shutdown`] does.
#[derive(Clone)]
pub struct Executor {
    owner: Arc<Owner>,
}

/// Shared by the clones, and by nothing else: its drop is the last clone's.
struct Owner {
    core: Arc<Core>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.core.close();
    }
}

/// Settings for an [`Executor`]; made by [`Executor::builder`].
pub struct ExecutorBuilder {
    workers: Option<usize>,
    max_in_flight: usize,
    observer: Option<Arc<dyn Observer>>,
    simulated: Option<(Order, Faults)>,
    devices: Vec<Arc<dyn QueueDevice>>,
    pace: Pace,
}

impl Executor {
    /// Returns an executor on the host device, with a worker thread per core.
    ///
    /// # Errors
    /// If the operating system refuses to start the threads.
    pub fn host() -> Result<Self> {
        Self::builder().build()
    }

    /// Returns an executor on the host device without any thread: nodes run inside the poll of whoever awaits the run.
    pub fn inline() -> Self {
        Self::builder().workers(0).build().expect("an inline executor starts no threads")
    }

    /// Returns an executor on the CUDA device with this ordinal. Kernels for a [`DeviceStream`](crate::DeviceStream) run there, all else on the
    /// host, with a worker thread per core.
    ///
    /// # Errors
    /// If there is no CUDA driver or it is too old, no such device, or the operating system refuses to start the threads.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: u32) -> Result<Self> {
        Self::builder().cuda(&[ordinal])?.build()
    }

    /// Returns the settings of an executor on the host device, to change them.
    pub fn builder() -> ExecutorBuilder {
        ExecutorBuilder {
            workers: None,
            max_in_flight: 1024,
            observer: None,
            simulated: None,
            devices: Vec::new(),
            pace: Pace::default(),
        }
    }

    /// Makes a run of `plan`. Nothing happens until the run is polled. The run does not keep the executor: when that is dropped
    /// first, the run ends with an error for which [`Error::is_shut_down`] is true.
    ///
    /// When `max_in_flight` runs are under way, the run waits for its turn from its first poll on; first come, first served. A run
    /// that is queued and then neither polled nor dropped keeps its turn, and those behind it wait, as with any fair semaphore.
    pub fn run(&self, plan: &Plan, inputs: Inputs) -> Run {
        Run::new(&self.owner.core, plan, inputs)
    }

    /// Makes a run of `plan` that has its place among the `max_in_flight` already, unless there is none. The place is given back
    /// when the run ends or is dropped.
    ///
    /// # Errors
    /// Gives the inputs back, with an error for which [`Error::is_busy`] or [`Error::is_shut_down`] is true.
    pub fn try_run(&self, plan: &Plan, inputs: Inputs) -> Result<Run, (Error, Inputs)> {
        Run::reserved(&self.owner.core, plan, inputs)
    }

    /// Returns a new stream for whole runs, which go one after the other on it.
    pub fn stream(&self) -> SerialStream {
        SerialStream::new(&self.owner.core)
    }

    /// Waits until no run is in flight. Runs that nobody polls stay in flight.
    ///
    /// # Errors
    /// If it is awaited inside of one of this executor's nodes.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn idle(&self) -> Idle {
        Idle { core: self.owner.core.clone(), key: WaiterKey::default() }
    }

    /// Ends the executor: lets no run in any more, cancels those in flight (they end with [`Error::is_shut_down`]), and waits
    /// until the worker threads have ended. To let runs finish first, await [`Executor::idle`].
    ///
    /// # Errors
    /// If it is awaited inside of one of this executor's nodes.
    ///
    /// # Cancellation
    /// The executor is shut down when this is called; dropping the future only stops waiting.
    pub fn shutdown(&self) -> Shutdown {
        let core = &self.owner.core;
        if !is_inside(&core.exits) {
            core.close();
        }
        Shutdown { core: core.clone(), key: WaiterKey::default(), idle: self.idle() }
    }

    pub(super) fn core(&self) -> &Core {
        &self.owner.core
    }

    /// Returns the number of runs in flight.
    pub fn in_flight(&self) -> usize {
        self.owner.core.in_flight()
    }

    /// Returns the number of dropped runs whose memory a worker may still touch.
    pub fn in_limbo(&self) -> usize {
        self.owner.core.limbo.len()
    }

    /// Returns the number of worker threads; 0 for an inline executor.
    pub fn workers(&self) -> usize {
        self.owner.core.pool.as_ref().map_or(0, |pool| pool.workers())
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("workers", &self.workers()).field("in_flight", &self.in_flight()).finish()
    }
}

impl ExecutorBuilder {
    /// Sets the number of worker threads, up to 256. 0 means none: nodes run inside the poll of whoever awaits the run.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sets how many runs may be in flight, from 1 to 65,536; further runs wait for their turn. The default is 1,024. A run that
    /// is awaited inside of a node counts as well: with a bound below the depth of such nesting they wait for each other.
    pub fn max_in_flight(mut self, runs: usize) -> Self {
        self.max_in_flight = runs;
        self
    }

    /// Sets who is told of every node that ran. Costs two clock readings per node.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Makes it an executor on the simulated device, which runs one node at a time in this order, and lets nodes fail as the faults say:
    /// see [`Executor::sim`]. It has no workers. Stalls and
    /// lost devices mean nothing here: real nodes take no virtual time.
    pub fn simulated(mut self, order: Order, faults: Faults) -> Self {
        self.simulated = Some((order, faults));
        self
    }

    /// Adds CUDA devices, by ordinal. Nodes on device 0 of a plan go to the first of them, and so on.
    ///
    /// # Errors
    /// If there is no CUDA driver or it is too old, or no such device.
    #[cfg(feature = "cuda")]
    pub fn cuda(mut self, ordinals: &[u32]) -> Result<Self> {
        for &ordinal in ordinals {
            self.devices.push(Arc::new(crate::device::cuda::Gpu::open(ordinal)?));
        }
        Ok(self)
    }

    /// Sets how the executor waits for its CUDA devices: for the shortest latency, or with little of a core. The default is between them.
    #[cfg(feature = "cuda")]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Returns the executor.
    ///
    /// # Errors
    /// If a setting is out of range, or the operating system refuses to start the threads.
    pub fn build(self) -> Result<Executor> {
        let workers = match self.workers {
            Some(workers @ 1..) if self.simulated.is_some() => {
                return Err(
                    Kind::Setting { what: "the number of workers of a simulated executor", must: "0", got: workers }.into()
                );
            }
            _ if self.simulated.is_some() => 0,
            Some(workers) => workers,
            None => std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(WORKERS_MAX),
        };
        if workers > WORKERS_MAX {
            return Err(Kind::Setting { what: "the number of workers", must: "from 0 to 256", got: workers }.into());
        }
        if !(1..=SLOTS_MAX).contains(&self.max_in_flight) {
            return Err(Kind::Setting { what: "max_in_flight", must: "from 1 to 65536", got: self.max_in_flight }.into());
        }
        if let Some(fault) = self.simulated.as_ref().and_then(|(_, faults)| faults.fault()) {
            return Err(Kind::Simulation { fault }.into());
        }
        let has_queues = !self.devices.is_empty();
        if has_queues && workers == 0 {
            return Err(Kind::Setting {
                what: "the number of workers of an executor with CUDA devices",
                must: "1 or more",
                got: 0,
            }
            .into());
        }
        let exits = Arc::new(Lane::new());
        let barrier = Barrier::new();
        let pool = match workers {
            0 => None,
            _ => Some(Pool::start(workers, self.max_in_flight, barrier, around_workers(exits.clone()), has_queues)?),
        };
        let queues = if has_queues { Some(Arc::new(Queues::start(self.devices, self.pace)?)) } else { None };
        let rehearsal = self.simulated.map(|(order, faults)| Rehearsal::new(order, faults));
        let core = Arc::new(Core::new(pool, barrier, self.observer, rehearsal, queues, self.max_in_flight, exits));
        Ok(Executor { owner: Arc::new(Owner { core }) })
    }
}

const WORKERS_MAX: usize = 256;

/// What each worker's life is wrapped in: it is inside of this executor's nodes, and counted when it ends, however it ends.
fn around_workers(exits: Arc<Lane>) -> Around {
    let ended = Arc::new(AtomicU64::new(0));
    Box::new(move |life| {
        let _counted = Counted { exits: exits.clone(), ended: ended.clone() };
        let _inside = Inside::enter(&exits);
        life();
    })
}

/// A living worker.
struct Counted {
    exits: Arc<Lane>,
    ended: Arc<AtomicU64>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        // ORDERING: AcqRel, so that the last one's signal comes after all that the others did.
        self.exits.signal(self.ended.fetch_add(1, Ordering::AcqRel) + 1);
    }
}

/// Waits until no run is in flight; made by [`Executor::idle`].
///
/// # Errors
/// If it is polled inside of one of the executor's nodes.
///
/// # Cancellation
/// Dropping it changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct Idle {
    core: Arc<Core>,
    key: WaiterKey,
}

impl Future for Idle {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { core, key } = &mut *self;
        if is_inside(&core.exits) {
            return Poll::Ready(Err(Kind::InsideNode.into()));
        }
        // Point u64::MAX never passes: the lane is only rung.
        let rung = core.idle.poll(u64::MAX, key, cx);
        debug_assert!(rung.is_pending());
        if core.in_flight() > 0 {
            return Poll::Pending;
        }
        core.idle.forget(key);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.core.idle.forget(&mut self.key);
    }
}

/// Waits for the end of an executor; made by [`Executor::shutdown`].
///
/// # Errors
/// If it is polled inside of one of the executor's nodes.
///
/// # Cancellation
/// Dropping it only stops waiting: the executor is shut down already.
#[must_use = "futures do nothing unless awaited"]
pub struct Shutdown {
    core: Arc<Core>,
    key: WaiterKey,
    idle: Idle,
}

impl Future for Shutdown {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { core, key, idle } = &mut *self;
        let polled = Pin::new(idle).poll(cx);
        if !matches!(polled, Poll::Ready(Err(_))) && !core.is_closed() {
            // It was made inside of a node.
            core.close();
        }
        let Poll::Ready(Ok(())) = polled else { return polled };
        let workers = core.pool.as_ref().map_or(0, |pool| pool.workers()) as u64;
        let ended = core.exits.poll(workers, key, cx);
        if ended.is_ready() {
            core.limbo.collect();
        }
        ended.map(Ok)
    }
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        self.core.exits.forget(&mut self.key);
    }
}
