//! The handle to workers and devices.

use std::fmt;
use std::sync::Arc;

use futures_core::Stream;

use super::ExecutorBuilder;
use super::flows::SharedEngine;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{BoxError, Refused, Result};
use crate::pipe::{Piped, Pipeline, RunStream};
use crate::plan::Plan;
use crate::run::{Inputs, Run};
use crate::runtime::{Core, Idle, IdleWait, Keeper, Stats};
use crate::value::args::Data;

/// Runs plans, pipelines, engines and flows on workers and devices. A clone is another handle to the same
/// executor.
///
/// When the last handle is dropped, runs that are in flight end with an error for which
/// [`Error::is_shut_down`] is true. The drop does not wait; [`Executor::shutdown`] does.
///
/// # Forked processes
/// A child that is forked from this process lacks the worker threads. So build executors after the fork. In
/// the child, on Linux 4.14 or later, a wait for the workers is an error for which [`Error::is_shut_down`] is
/// true. A drop of the executor, or of a run, leaks it. An executor without workers also works in the child.
///
/// # Examples
/// Two threads use one executor:
/// ```
/// use anabranch::{Executor, Graph, Inputs};
/// use futures::executor::block_on;
///
/// let mut g = Graph::new();
/// let answer = g.task("answer", (), || 42);
/// g.output("answer", &answer);
/// let plan = g.compile()?;
///
/// let exec = Executor::host()?;
/// let (other, same_plan) = (exec.clone(), plan.clone());
/// let thread = std::thread::spawn(move || block_on(other.run(&same_plan, Inputs::new())));
/// assert_eq!(*block_on(exec.run(&plan, Inputs::new()))?.take::<i32>("answer")?, 42);
/// assert_eq!(*thread.join().unwrap()?.take::<i32>("answer")?, 42);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone)]
pub struct Executor {
    pub(super) keeper: Keeper,
    pub(super) flows: Arc<SharedEngine>,
}

impl Executor {
    pub(super) fn new(core: Core) -> Self {
        Self { keeper: Keeper::new(core), flows: Arc::default() }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        self.keeper.core()
    }

    /// Returns an executor on the host device, with a worker thread per core.
    ///
    /// # Errors
    /// If the operating system refuses to start the threads.
    pub fn host() -> Result<Self> {
        Self::builder().build()
    }

    /// Returns an executor on the host device without threads: nodes run in the polls of their run.
    pub fn inline() -> Self {
        Self::builder().workers(0).build().expect("an inline executor starts no threads")
    }

    /// Returns an executor on the CUDA device with this ordinal. Kernels for a
    /// [`DeviceStream`](crate::DeviceStream) run there. All other nodes run on the host, with a worker thread
    /// per core.
    ///
    /// # Errors
    /// If there is no CUDA driver, if it is too old, if there is no such device, if the device does not tell
    /// the host that work is done ([`self_test`](crate::cuda::self_test)), or if the operating system refuses
    /// to start the threads.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: u32) -> Result<Self> {
        Self::builder().cuda(&[ordinal]).build()
    }

    /// Returns a builder with the default settings of an executor on the host device.
    pub fn builder() -> ExecutorBuilder {
        ExecutorBuilder::new()
    }

    /// Returns a run of `plan`, a lazy future: it begins with its first poll.
    ///
    /// The run does not keep the executor alive. If the executor is dropped first, the run ends with an error
    /// for which [`Error::is_shut_down`] is true.
    ///
    /// If `max_in_flight` runs are in flight, the run waits from its first poll on. Waiting runs begin by
    /// [priority](Run::priority), and then in the order of their first polls. A waiting run that is neither
    /// polled nor dropped keeps its place, and the runs behind it wait, as with any fair semaphore.
    pub fn run(&self, plan: &Plan, inputs: Inputs) -> Run {
        Run::new(self.core(), plan, inputs)
    }

    /// Returns a run of `plan` that is in flight from the start, if there is room for it and for all waiting
    /// runs ([`Executor::run`]): at most `max_in_flight` runs are in flight. It begins with its first poll,
    /// and does not wait for other runs.
    ///
    /// The run is in flight until it has ended. If it is dropped before its first poll, it ends at once. So
    /// does a dropped run of an inline executor. With workers, a dropped run ends when its running tasks and
    /// its submitted device work have ended. [`Executor::in_flight`] counts it until then, and
    /// [`Executor::idle`] waits for it.
    ///
    /// # Errors
    /// A [`Refused`] has the inputs, and an error for which [`Error::is_busy`] or [`Error::is_shut_down`] is
    /// true.
    pub fn try_run(&self, plan: &Plan, inputs: Inputs) -> Result<Run, Refused<Inputs>> {
        Run::reserved(self.core(), plan, inputs)
    }

    /// Runs a pipeline over a stream of items. Returns the stream of results, in the order of the items. It
    /// begins with its first poll, and counts as one run in flight. `futures::stream::iter` makes a stream
    /// from an iterator. For a stream of `Result`s use [`Executor::try_pipe`].
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Pipeline, Ranked};
    /// use futures::{TryStreamExt, stream};
    ///
    /// let squares = Pipeline::new("squares", &Ranked::default(), |g, x| g.task("square", &x, |x: &u64| x * x))?;
    /// let exec = Executor::inline();
    /// let results = exec.pipe(&squares, stream::iter(1..=4));
    /// assert_eq!(futures::executor::block_on(results.try_collect::<Vec<_>>())?, [1, 4, 9, 16]);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn pipe<I: Data, T: Send + 'static, S: Stream<Item = I>>(&self, pipeline: &Pipeline<I, T>, items: S) -> Piped<S, I, T> {
        Piped::new(self.core(), pipeline, items, Ok)
    }

    /// Runs a pipeline over a stream of `Result`s, like [`Executor::pipe`]. An error of the source is an
    /// error at the same place in the results.
    pub fn try_pipe<I, T, E, S>(&self, pipeline: &Pipeline<I, T>, items: S) -> Piped<S, I, T>
    where
        I: Data,
        T: Send + 'static,
        E: Into<BoxError>,
        S: Stream<Item = Result<I, E>>,
    {
        Piped::new(self.core(), pipeline, items, |item| item.map_err(Into::into))
    }

    /// Runs a plan for each of a stream of inputs, at most `in_flight` at the same time. Returns the stream
    /// of outputs, in the order of the inputs. It begins with its first poll, and counts as one run in
    /// flight.
    ///
    /// # Errors
    /// If `in_flight` is 0, or too large for the plan.
    pub fn run_stream<S: Stream<Item = Inputs>>(&self, plan: &Plan, inputs: S, in_flight: u32) -> Result<RunStream<S>> {
        RunStream::new(self.core(), plan, inputs, in_flight, true)
    }

    /// Does the same as [`Executor::run_stream`], but yields outputs in the order in which their runs end. To
    /// match outputs with inputs, declare an id as an input that is also an output. An error has the number
    /// of its inputs ([`Error::item`](crate::Error::item)).
    ///
    /// # Errors
    /// If `in_flight` is 0, or too large for the plan.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Graph, inputs};
    /// use futures::{StreamExt, TryStreamExt, stream};
    ///
    /// let mut g = Graph::new();
    /// let (id, x) = (g.input::<u64>("id"), g.input::<f64>("x"));
    /// let root = g.task("root", &x, |x: &f64| x.sqrt());
    /// g.output("id", &id);
    /// g.output("root", &root);
    ///
    /// let requests = stream::iter([(7, 4.0), (8, 9.0)]).map(|(id, x)| inputs! { "id" => id as u64, "x" => x });
    /// let exec = Executor::host()?;
    /// let mut answers = exec.run_stream_unordered(&g.compile()?, requests, 4)?;
    /// # futures::executor::block_on(async {
    /// while let Some(mut answer) = answers.try_next().await? {
    ///     let (id, root) = (answer.take::<u64>("id")?, answer.take::<f64>("root")?);
    ///     assert_eq!(*root, if *id == 7 { 2.0 } else { 3.0 });
    /// }
    /// # Ok::<(), anabranch::Error>(()) })?;
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn run_stream_unordered<S: Stream<Item = Inputs>>(&self, plan: &Plan, inputs: S, in_flight: u32) -> Result<RunStream<S>> {
        RunStream::new(self.core(), plan, inputs, in_flight, false)
    }

    /// Waits until no run is in flight. A run that is never polled or dropped stays in flight.
    ///
    /// # Errors
    /// If the future is polled inside of one of this executor's nodes.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn idle(&self) -> Idle {
        Idle::new(self.core().clone(), IdleWait::default())
    }

    /// Returns the number of runs in flight. It is 0 in a forked child, which lacks the executor's threads.
    pub fn in_flight(&self) -> usize {
        if self.core().is_forked() { 0 } else { self.core().in_flight() }
    }

    /// Returns the present state of the executor: how much work is in flight, waits, or is suspended. In a
    /// forked child, which does not have the executor's threads, all numbers are 0.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Graph, Inputs};
    ///
    /// let mut g = Graph::new();
    /// let a = g.task("a", (), || 1);
    /// g.output("a", &a);
    /// let (exec, plan) = (Executor::inline(), g.compile()?);
    /// let run = exec.try_run(&plan, Inputs::new())?;
    /// assert_eq!(exec.stats().runs_in_flight, 1);
    /// # drop(run);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        if self.core().is_forked() { Stats::default() } else { self.core().stats() }
    }

    /// Returns the number of dropped runs whose memory a worker may still use. It is 0 in a forked child.
    pub fn in_limbo(&self) -> usize {
        if self.core().is_forked() { 0 } else { self.core().limbo.len() }
    }

    /// Returns the number of memory blocks (not bytes) that are not used again, because a lost device may
    /// still use them. It is 0 until a device is lost
    /// ([`Error::is_device_lost`](crate::Error::is_device_lost)), and never becomes smaller: the blocks are
    /// freed when the process ends.
    pub fn in_quarantine(&self) -> usize {
        self.core().devices.as_ref().map_or(0, |devices| devices.quarantined())
    }

    /// Returns the number of worker threads. It is 0 for an inline or simulated executor.
    pub fn workers(&self) -> usize {
        self.core().workers()
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("workers", &self.workers()).field("in_flight", &self.in_flight()).finish()
    }
}
