//! Executors: what users hold of workers and devices.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::ExecutorBuilder;
use super::flows::SharedEngine;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Refused, Result};
use crate::plan::Plan;
use crate::run::{Inputs, Run};
use crate::runtime::{Core, Idle, IdleWait, Keeper, WaiterKey, is_inside};

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
    pub(super) keeper: Keeper,
    /// The engine that flows of this executor share.
    pub(super) flows: Arc<SharedEngine>,
}

impl Executor {
    pub(super) fn new(core: Core) -> Self {
        Self { keeper: Keeper::new(core), flows: Arc::default() }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        self.keeper.core()
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

    /// Makes a run of `plan`. It is lazy: nothing happens until the run is polled. The run does not keep the
    /// executor: when that is dropped first, the run ends with an error for which [`Error::is_shut_down`] is
    /// true.
    ///
    /// When `max_in_flight` runs are under way, the run waits for its turn from its first poll on; first
    /// come, first served. A run that is queued and then neither polled nor dropped keeps its turn, and those
    /// behind it wait, as with any fair semaphore.
    pub fn run(&self, plan: &Plan, inputs: Inputs) -> Run {
        Run::new(self.core(), plan, inputs)
    }

    /// Makes a run of `plan` that has its place among the `max_in_flight` already, unless there is none. It
    /// takes the place at once; the nodes are lazy: none starts until the run is polled. The place is given
    /// back when the run has ended. A run that is dropped before it was polled ends at once,
    /// and so does one of an inline executor. With workers, a dropped run ends when its running tasks and its
    /// submitted device work have ended. [`Executor::in_flight`] counts it until then, and [`Executor::idle`]
    /// waits for it.
    ///
    /// # Errors
    /// A [`Refused`] has the inputs, and an error for which [`Error::is_busy`] or [`Error::is_shut_down`] is
    /// true.
    pub fn try_run(&self, plan: &Plan, inputs: Inputs) -> Result<Run, Refused<Inputs>> {
        Run::reserved(self.core(), plan, inputs)
    }

    /// Waits until no run is in flight. Runs that nobody polls stay in flight.
    ///
    /// # Errors
    /// If it is awaited inside of one of this executor's nodes.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn idle(&self) -> Idle {
        Idle::new(self.core().clone(), IdleWait::default())
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
        let core = self.core();
        if !is_inside(core.address()) && !core.is_forked() {
            core.close();
        }
        Shutdown { core: core.clone(), key: WaiterKey::default(), idle: self.idle() }
    }

    /// Returns the number of runs in flight; 0 in a forked child, which has none of the executor's threads.
    pub fn in_flight(&self) -> usize {
        if self.core().is_forked() { 0 } else { self.core().in_flight() }
    }

    /// Returns the number of dropped runs whose memory a worker may still touch; 0 in a forked child.
    pub fn in_limbo(&self) -> usize {
        if self.core().is_forked() { 0 } else { self.core().limbo.len() }
    }

    /// Returns how many blocks of memory (not bytes) are kept from use because a lost device may still touch
    /// them; 0 until a device is lost ([`Error::is_device_lost`](crate::Error::is_device_lost)), and never
    /// less than before: they come back when the process ends.
    pub fn in_quarantine(&self) -> usize {
        self.core().devices.as_ref().map_or(0, |devices| devices.quarantined())
    }

    /// Returns the number of worker threads; 0 for an inline executor.
    pub fn workers(&self) -> usize {
        self.core().workers()
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("workers", &self.workers()).field("in_flight", &self.in_flight()).finish()
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

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").finish_non_exhaustive()
    }
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
        let workers = core.workers() as u64;
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
