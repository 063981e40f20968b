//! Settings of executors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Executor;
#[cfg(feature = "cuda")]
use crate::device::cuda::{Checked, Completion, Gpu, GpuSettings};
use crate::device::host::{Around, Barrier, Pool, SLOTS_MAX};
use crate::device::queue::QueueDevice;
#[cfg(feature = "cuda")]
use crate::device::sanitize::Sanitizer;
use crate::device::sim::Order;
use crate::error::{Kind, Result};
use crate::runtime::{
    Choices, Core, Devices, ENGINES_MAX, Lane, Limits, NESTED_MAX, Observer, Observers, Pace, address_of, inside_executor,
    note_worker,
};
use crate::sim::Faults;

/// The settings of an [`Executor`]. Made by [`Executor::builder`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use anabranch::Executor;
///
/// // For a service whose tasks block now and then: no poll of a run does their work.
/// let exec = Executor::builder().workers(2).max_in_flight(64).poll_budget(Duration::ZERO).build()?;
/// assert_eq!(exec.workers(), 2);
/// assert!(Executor::builder().workers(1_000).build().is_err());
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct ExecutorBuilder {
    workers: Option<usize>,
    max_in_flight: usize,
    poll_budget: Duration,
    observers: Vec<Arc<dyn Observer>>,
    simulated: Option<(Order, Faults)>,
    ordinals: Vec<u32>,
    /// Devices of models.
    devices: Vec<Arc<dyn QueueDevice>>,
    #[cfg(test)]
    barrier: Option<Barrier>,
    #[cfg(feature = "cuda")]
    completion: Option<Completion>,
    #[cfg(feature = "cuda")]
    has_graphs: bool,
    #[cfg(feature = "cuda")]
    takes_times: bool,
    #[cfg(feature = "cuda")]
    is_sanitized: bool,
    pace: Pace,
}

impl fmt::Debug for ExecutorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorBuilder")
            .field("workers", &self.workers)
            .field("max_in_flight", &self.max_in_flight)
            .field("simulated", &self.simulated)
            .finish_non_exhaustive()
    }
}

impl ExecutorBuilder {
    pub(super) fn new() -> Self {
        Self {
            workers: None,
            max_in_flight: 1024,
            // In a model, polls run cheap work only if the model sets a budget.
            poll_budget: if cfg!(anabranch_loom) { Duration::ZERO } else { Duration::from_micros(20) },
            observers: Vec::new(),
            simulated: None,
            ordinals: Vec::new(),
            devices: Vec::new(),
            #[cfg(test)]
            barrier: None,
            #[cfg(feature = "cuda")]
            completion: None,
            #[cfg(feature = "cuda")]
            has_graphs: true,
            #[cfg(feature = "cuda")]
            takes_times: false,
            #[cfg(feature = "cuda")]
            is_sanitized: false,
            pace: Pace::default(),
        }
    }

    /// Sets the number of worker threads, from 0 to 256. With 0, the polls of a run execute its nodes. An
    /// executor with CUDA devices needs at least one worker.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sets the number of runs that may be in flight, from 1 to 65,024. Further runs wait. The default is
    /// 1,024.
    ///
    /// A run that a node awaits counts too, except for the runs of [scopes](crate::scope). If such runs are
    /// nested deeper than this limit, they wait for each other for ever.
    pub fn max_in_flight(mut self, runs: usize) -> Self {
        self.max_in_flight = runs;
        self
    }

    /// Sets the time that a poll may work beside the workers before other tasks get the thread: at most 100
    /// µs. The default is 20 µs.
    ///
    /// To hand cheap work to a worker and back takes longer than the work. So the library measures work, and
    /// the thread that asks for cheap work does it:
    /// - a run of a plan by its first poll, if such runs take less than half of this;
    /// - an operation by its push, if its variables are free, and it takes at most 2 µs (joined ones 5 µs,
    ///   and 60 ns more for each of several variables);
    /// - a call of a graph in a flow ([`Flow::call`](crate::Flow::call)), if such runs are cheap, and its one
    ///   or two arguments are free and only read;
    /// - items of a [`Pipeline`](crate::Pipeline) by the poll of their results, if each takes less than a
    ///   microsecond.
    ///
    /// That thread may also be a worker that polls a future of a node or of an operation. A worker that
    /// reaches a cheap call runs the graph like the body of an operation.
    ///
    /// Workers do all unknown and expensive work, all futures and kernels, and all work of an executor with
    /// an observer. If cheap work suddenly takes long, one poll is delayed: the clock is read at least every
    /// 64 nodes, so the delay is one body of an operation, or up to 64 nodes of a run. If the work takes at
    /// most 50 µs, the cause may be an interruption by the operating system, and the work may delay one more
    /// poll. After that, workers do it until it has been cheap for a while.
    ///
    /// After a thread has worked for this time, the next future of this library that is polled on it returns
    /// `Pending` once, even if it is ready, and wakes its task.
    ///
    /// With zero, only workers do work. Set zero if bodies of tasks block: on a lock that the polling code
    /// holds, on a message from that code, or on a future (`block_on`, which panics inside of another one).
    /// Also set it if no poll may ever be delayed.
    pub fn poll_budget(mut self, budget: Duration) -> Self {
        self.poll_budget = budget;
        self
    }

    /// Adds an observer, which is called for all work of the executor. For each node and operation it costs
    /// some calls and two reads of the clock. With an observer, polls do no work beside workers
    /// ([`ExecutorBuilder::poll_budget`]).
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Makes the executor use the simulated device, without workers: see [`Executor::sim`]. It runs one node
    /// at a time, in the order `order`, and nodes fail according to `faults`. Stalls and lost devices have no
    /// effect, because real nodes take no virtual time.
    pub fn simulated(mut self, order: Order, faults: Faults) -> Self {
        self.simulated = Some((order, faults));
        self
    }

    /// Adds CUDA devices, by ordinal. Nodes on device 0 of a plan go to the first of them, and so on. If an
    /// ordinal is given twice, it counts as two devices, each with its own streams. So a plan for two GPUs
    /// can run on one.
    #[cfg(feature = "cuda")]
    pub fn cuda(mut self, ordinals: &[u32]) -> Self {
        self.ordinals.extend(ordinals);
        self
    }

    #[cfg(test)]
    pub(crate) fn device(mut self, device: Arc<dyn QueueDevice>) -> Self {
        self.devices.push(device);
        self
    }

    /// Sets the barrier between workers and the threads that watch them, for tests.
    #[cfg(test)]
    pub(crate) fn barrier(mut self, barrier: Barrier) -> Self {
        self.barrier = Some(barrier);
        self
    }

    /// Sets the way in which CUDA devices signal the end of work to the host.
    ///
    /// By default it is the first that reaches the host: [`Completion::Lane`], [`Completion::Event`], and at
    /// last [`Completion::HostFunction`]. Some drivers accept a call and never carry it out, so each is tried
    /// when the executor is built, once for each device in a process:
    /// see [`self_test`](crate::cuda::self_test). If the one that is set here does not reach the host,
    /// [`build`](Self::build) returns an error that says why, and which do.
    #[cfg(feature = "cuda")]
    pub fn completion(mut self, completion: Completion) -> Self {
        self.completion = Some(completion);
        self
    }

    /// Sets whether repeated work is launched as a CUDA graph, which costs the host one call for many nodes.
    /// The default is true.
    ///
    /// Nodes of one device without a host node between them are submitted together. If a later run makes the
    /// same calls (kernels, copies and fills in the same order), they are built as a CUDA graph. From then on
    /// they are launched as one: see [`Launched`](crate::exec::Launched). Grids, addresses, numbers and sizes
    /// may differ. Runs on different streams at the same time have graphs of their own. At most 256 graphs
    /// are kept, the last ones used.
    ///
    /// With `false` every call is made by itself, which helps tools that trace calls. Nodes that use
    /// [`DeviceStream::raw`](crate::DeviceStream::raw), or fetch from another device, are always enqueued
    /// call by call.
    #[cfg(feature = "cuda")]
    pub fn cuda_graphs(mut self, is_on: bool) -> Self {
        self.has_graphs = is_on;
        self
    }

    /// Sets whether CUDA devices note when they work on each node and operation, for
    /// [observers](Self::observer): see [`WorkSpan::on_device`](crate::exec::WorkSpan::on_device). The
    /// default is false, and a span then has only the time in which the body enqueued its work. Without an
    /// observer it has no effect.
    ///
    /// With `true`, two events are recorded around the work of each node and operation, and observers are
    /// told of its end when the device has come there. There are no [CUDA graphs](Self::cuda_graphs), because
    /// the driver tells no times of their nodes. Times are on the host's clock, to a few microseconds.
    ///
    /// # Examples
    /// The times of kernels, in a picture and for the schedule:
    /// ```no_run
    /// use std::sync::Arc;
    /// use anabranch::{Executor, Graph, Inputs, Timeline};
    ///
    /// # let plan = Graph::new().compile()?;
    /// let timeline = Arc::new(Timeline::new(100_000));
    /// let exec = Executor::builder().cuda(&[0]).device_times(true).observer(timeline.clone()).build()?;
    /// futures::executor::block_on(exec.run(&plan, Inputs::new()))?;
    /// std::fs::write("run.svg", timeline.to_svg())?;
    /// let better = plan.recompile(&timeline)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "cuda")]
    pub fn device_times(mut self, is_on: bool) -> Self {
        self.takes_times = is_on;
        self
    }

    /// Sets whether the order of all declared uses of buffers on CUDA devices is checked. The default is
    /// false, which costs a launch a look at an option. [Simulated executors](Executor::sim) always check it.
    ///
    /// The edges of a graph and the variables of an engine order all work on buffers. A program can go around
    /// them: it hands a [`Buffer`](crate::Buffer) on through a lock or a channel, or a library works on
    /// memory through a [raw stream](crate::DeviceStream::raw). With `true`, every upload, download, copy,
    /// fill, fetch and launch, and what a raw stream declares, must come after all earlier uses of the same
    /// bytes, if one of the two writes. What counts is the order of streams, the events that they wait for,
    /// and what the host had seen the end of when it submitted the work. Time does not count.
    ///
    /// Otherwise the later node or operation fails with an error for which
    /// [`Error::is_race`](crate::Error::is_race) is true. It names both, the buffer and the streams, and says
    /// what to do. The work is done all the same. Freed memory is filled with `0xDD`, and no memory is used
    /// again within a run.
    ///
    /// An error is never false. A race can be missed if the program's run happens to order it: two streams
    /// share a lane, or the host has awaited the earlier work for another reason. It can also be missed where
    /// more than 4,096 streams, programs and variables work at the same time. Work of a library that is not
    /// declared is not seen.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Mutex;
    ///
    /// use anabranch::policy::PerOperator;
    /// use anabranch::{Buffer, DeviceStream, Executor, Graph, Inputs};
    ///
    /// static SHARED: Mutex<Option<Buffer<f32>>> = Mutex::new(None);
    ///
    /// let mut g = Graph::new();
    /// let make = g.try_kernel("make", (), |s: &mut DeviceStream| {
    ///     *SHARED.lock().unwrap() = Some(s.upload(&[1.0])?);
    ///     Ok(())
    /// });
    /// // It uses the buffer behind the graph's back.
    /// let clear = g.try_kernel("clear", (), |s: &mut DeviceStream| {
    ///     Ok(SHARED.lock().unwrap().as_mut().map_or(Ok(()), |shared| s.fill(shared, 0.0))?)
    /// });
    /// g.output("made", &make);
    /// g.output("cleared", &clear);
    ///
    /// // With a GPU: Executor::builder().cuda(&[0]).sanitize(true).build()?
    /// let plan = g.compile_with(&PerOperator)?;
    /// let races = (0..10).filter(|&seed| {
    ///     *SHARED.lock().unwrap() = None;
    ///     let exec = Executor::sim(seed);
    ///     futures::executor::block_on(exec.run(&plan, Inputs::new())).is_err_and(|error| error.is_race())
    /// });
    /// assert!(races.count() > 0);
    ///
    /// g.node(&clear).after(&make);
    /// let plan = g.compile_with(&PerOperator)?;
    /// for seed in 0..10 {
    ///     let exec = Executor::sim(seed);
    ///     futures::executor::block_on(exec.run(&plan, Inputs::new()))?;
    /// }
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    #[cfg(feature = "cuda")]
    pub fn sanitize(mut self, is_on: bool) -> Self {
        self.is_sanitized = is_on;
        self
    }

    /// Sets the way in which the executor waits for its CUDA devices: with the shortest latency, or with
    /// little use of a core. The default is between the two.
    #[cfg(feature = "cuda")]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Builds the executor.
    ///
    /// # Errors
    /// If a setting is out of range, if the operating system refuses to start the threads, or if a CUDA
    /// device cannot be opened: there is no driver, the driver is too old, there is no such device, or the
    /// device does not tell the host in the way that is asked for that work is done.
    pub fn build(self) -> Result<Executor> {
        let check = |is_ok: bool, what: &'static str, must: &'static str, got: usize| {
            if is_ok { Ok(()) } else { Err(Kind::Setting { what, must, got }.into()) }
        };
        let (is_simulated, gpus) = (self.simulated.is_some(), self.ordinals.len());
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(WORKERS_MAX);
        let workers = self.workers.unwrap_or_else(|| if is_simulated { 0 } else { cores() });
        check(!is_simulated || workers == 0, "the number of workers of a simulated executor", "0", workers)?;
        check(workers <= WORKERS_MAX, "the number of workers", "from 0 to 256", workers)?;
        let runs = 1..=SLOTS_MAX - ENGINES_MAX - NESTED_MAX;
        check(runs.contains(&self.max_in_flight), "max_in_flight", "from 1 to 65024", self.max_in_flight)?;
        let budget_us = usize::try_from(self.poll_budget.as_nanos().div_ceil(1_000)).unwrap_or(usize::MAX);
        check(self.poll_budget <= POLL_BUDGET_MAX, "poll_budget, in microseconds,", "from 0 to 100", budget_us)?;
        if let Some(fault) = self.simulated.as_ref().and_then(|(_, faults)| faults.fault()) {
            return Err(Kind::Simulation { fault }.into());
        }
        check(!is_simulated || gpus == 0, "the number of CUDA devices of a simulated executor", "0", gpus)?;
        check(workers > 0 || gpus == 0, "the number of workers of an executor with CUDA devices", "1 or more", 0)?;
        #[cfg_attr(not(feature = "cuda"), allow(unused_mut))]
        let mut devices = self.devices;
        #[cfg(not(feature = "cuda"))]
        let sanitizer = None;
        #[cfg(feature = "cuda")]
        let sanitizer = self.is_sanitized.then(Sanitizer::new);
        #[cfg(feature = "cuda")]
        for &ordinal in &self.ordinals {
            let settings = GpuSettings {
                completion: self.completion,
                has_graphs: self.has_graphs,
                // Only observers read them.
                takes_times: self.takes_times && !self.observers.is_empty(),
                sanitizer: sanitizer.as_ref().map(|sanitizer| Checked::new(sanitizer, devices.len() as u32)),
            };
            devices.push(Arc::new(Gpu::open(ordinal, settings)?));
        }
        let has_devices = !devices.is_empty();
        let exits = Arc::new(Lane::new());
        // Must precede the start of the workers: if they do not start, dropping `devices` ends the reactor's
        // thread. A drop would not stop workers.
        let devices =
            if has_devices { Some(Arc::new(Devices::start(devices, self.pace, sanitizer, address_of(&exits))?)) } else { None };
        let barrier = Barrier::new();
        #[cfg(test)]
        let barrier = self.barrier.unwrap_or(barrier);
        let (slots, around) = (self.max_in_flight + ENGINES_MAX + NESTED_MAX, around_workers(exits.clone()));
        let start = || Pool::start(workers, slots, barrier, around, has_devices);
        let pool = (workers > 0).then(start).transpose()?;
        let choices = self.simulated.map(|(order, faults)| Choices::new(order, faults));
        let limits = Limits { max_in_flight: self.max_in_flight, poll_budget: self.poll_budget };
        let observers = Observers::of(self.observers);
        Ok(Executor::new(Core::new(pool, barrier, observers, choices, devices, limits, exits)))
    }
}

const WORKERS_MAX: usize = 256;

/// The time slice of a poll: the maximum of the poll budget.
const POLL_BUDGET_MAX: Duration = Duration::from_micros(100);

/// Returns the wrapper of each worker's loop. It marks the thread as one of the executor, and counts its end,
/// even after a panic.
fn around_workers(exits: Arc<Lane>) -> Around {
    let ended = Arc::new(AtomicU64::new(0));
    Box::new(move |worker, life| {
        note_worker(worker);
        let _counted = Counted { exits: exits.clone(), ended: ended.clone() };
        inside_executor(address_of(&exits), life);
    })
}

/// Counts the end of a worker when it is dropped.
struct Counted {
    exits: Arc<Lane>,
    ended: Arc<AtomicU64>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        // ORDERING: AcqRel: each end releases the thread's writes, and the last one acquires those of all
        // others. So its signal comes after everything that the other threads did.
        self.exits.signal(self.ended.fetch_add(1, Ordering::AcqRel) + 1);
    }
}
