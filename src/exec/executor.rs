//! Executors: a device, and the bounds within which it runs plans.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::core::Core;
use super::inside::is_inside;
use super::{ExecutorBuilder, Inputs, Run, SerialStream};
use crate::bridge::WaiterKey;
use crate::device::host::Origin;
use crate::error::{Error, Kind, Result};
use crate::plan::Plan;
use crate::sync::lock;

/// Runs plans on a device. Cheap to clone; all clones are one executor.
///
/// When the last clone is dropped, runs that are still in flight end with an error for which
/// [`Error::is_shut_down`] is true. Dropping does not wait; [`Executor::shutdown`] does.
///
/// A child that is forked from this process does not have the threads of an executor with workers. There, on
/// Linux 4.14 or later, a wait for them is an error for which [`Error::is_shut_down`] is true, and a drop of
/// the executor, or of a run, leaks it. Build executors after the fork. An executor without workers also
/// works in the child.
#[derive(Clone)]
pub struct Executor {
    owner: Arc<Owner>,
}

/// Shared by the clones, and by nothing else: its drop is the last clone's.
struct Owner {
    core: Arc<Core>,
}

impl Executor {
    pub(super) fn of(core: Core) -> Self {
        Self { owner: Arc::new(Owner { core: Arc::new(core) }) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return std::mem::forget(self.core.clone());
        }
        self.core.close();
    }
}

impl Executor {
    /// Returns an executor on the host device, with a worker thread per core.
    ///
    /// # Errors
    /// If the operating system refuses to start the threads.
    pub fn host() -> Result<Self> {
        Self::builder().build()
    }

    /// Returns an executor on the host device without any thread: nodes run inside the poll of whoever awaits
    /// the run.
    pub fn inline() -> Self {
        Self::builder().workers(0).build().expect("an inline executor starts no threads")
    }

    /// Returns an executor on the CUDA device with this ordinal. Kernels for a
    /// [`DeviceStream`](crate::DeviceStream) run there, all else on the host, with a worker thread per core.
    ///
    /// # Errors
    /// If there is no CUDA driver or it is too old, no such device, or the operating system refuses to start
    /// the threads.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: u32) -> Result<Self> {
        Self::builder().cuda(&[ordinal]).build()
    }

    /// Returns the settings of an executor on the host device, to change them.
    pub fn builder() -> ExecutorBuilder {
        ExecutorBuilder::new()
    }

    /// Makes a run of `plan`. Nothing happens until the run is polled. The run does not keep the executor:
    /// when that is dropped first, the run ends with an error for which [`Error::is_shut_down`] is true.
    ///
    /// When `max_in_flight` runs are under way, the run waits for its turn from its first poll on; first
    /// come, first served. A run that is queued and then neither polled nor dropped keeps its turn, and those
    /// behind it wait, as with any fair semaphore.
    pub fn run(&self, plan: &Plan, inputs: Inputs) -> Run {
        Run::new(&self.owner.core, plan, inputs, |_| None)
    }

    /// Makes a run of `plan` that has its place among the `max_in_flight` already, unless there is none. The
    /// place is given back when the run has ended. A run that is dropped before it was polled ends at once,
    /// and so does one of an inline executor. With workers, a dropped run ends when its running tasks and its
    /// submitted device work have ended. [`Executor::in_flight`] counts it until then, and [`Executor::idle`]
    /// waits for it.
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

    /// Ends the executor: lets no run in any more, cancels those in flight (they end with
    /// [`Error::is_shut_down`]), and waits until the worker threads have ended. To let runs finish first,
    /// await [`Executor::idle`].
    ///
    /// # Errors
    /// If it is awaited inside of one of this executor's nodes.
    ///
    /// # Cancellation
    /// The executor is shut down when this is called; dropping the future only stops waiting.
    pub fn shutdown(&self) -> Shutdown {
        let core = &self.owner.core;
        if !is_inside(core.place()) && !core.is_forked() {
            core.close();
        }
        Shutdown { core: core.clone(), key: WaiterKey::default(), idle: self.idle() }
    }

    /// Returns what runs plans without keeping the executor.
    pub(crate) fn runner(&self) -> Runner {
        Runner(self.owner.core.clone())
    }

    /// Returns what all those share who ask for it at the same time; `make` makes it if nobody has it.
    ///
    /// # Errors
    /// Those of `make`; and in a forked child.
    pub(crate) fn common<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> Result<Arc<T>>) -> Result<Arc<T>> {
        self.owner.core.check_process()?;
        let mut common = lock(&self.owner.core.common);
        if let Some(there) = common.as_ref().and_then(Weak::upgrade).and_then(|there| there.downcast().ok()) {
            return Ok(there);
        }
        let made = make()?;
        let shared: Arc<dyn Any + Send + Sync> = made.clone();
        *common = Some(Arc::downgrade(&shared));
        Ok(made)
    }

    /// Returns the mark of the process that has the executor's threads.
    pub(crate) fn origin(&self) -> &Origin {
        self.owner.core.origin()
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.owner.core
    }

    /// Returns true for an executor on the simulated device.
    pub(crate) fn is_simulated(&self) -> bool {
        self.owner.core.rehearsal.is_some()
    }

    /// Returns the number of runs in flight; 0 in a forked child, which has none of the executor's threads.
    pub fn in_flight(&self) -> usize {
        if self.owner.core.is_forked() { 0 } else { self.owner.core.in_flight() }
    }

    /// Returns the number of dropped runs whose memory a worker may still touch; 0 in a forked child.
    pub fn in_limbo(&self) -> usize {
        if self.owner.core.is_forked() { 0 } else { self.owner.core.limbo.len() }
    }

    /// Returns how many blocks of memory (not bytes) are kept from use because a lost device may still touch
    /// them; 0 until a device is lost ([`Error::is_device_lost`](crate::Error::is_device_lost)), and never
    /// less than before: they come back when the process ends.
    pub fn in_quarantine(&self) -> usize {
        self.owner.core.queues.as_ref().map_or(0, |queues| queues.quarantined())
    }

    /// Returns the number of worker threads; 0 for an inline executor.
    pub fn workers(&self) -> usize {
        self.owner.core.pool.as_ref().map_or(0, |pool| pool.workers())
    }
}

/// Runs plans as its executor does, and does not keep it.
#[derive(Clone)]
pub(crate) struct Runner(Arc<Core>);

impl Runner {
    pub(crate) fn run(&self, plan: &Plan, inputs: Inputs) -> Run {
        Run::new(&self.0, plan, inputs, |_| None)
    }

    /// Returns an error in a child that was forked from the process that has the executor's threads.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.0.check_process()
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("workers", &self.workers()).field("in_flight", &self.in_flight()).finish()
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
        core.check_process()?;
        if is_inside(core.place()) {
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
        if !self.core.is_forked() {
            self.core.idle.forget(&mut self.key);
        }
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
        core.exits.poll(workers, key, cx).map(Ok)
    }
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        if !self.core.is_forked() {
            self.core.exits.forget(&mut self.key);
        }
    }
}
