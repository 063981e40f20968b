//! What observers are told: which work an executor does, when, on which thread, and how it ended.

use std::any::Any;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::RunId;
use crate::device::queue::PartTime;
use crate::error::Result;
use crate::graph::NodeId;
use crate::name::Name;
use crate::plan::Plan;

/// Is called for all work of an executor: runs, items, flows, nodes and operations. Off by default. Each
/// piece of work that begins also ends, once:
///
/// ```text
/// begins ─▶ enters ─▶ leaves ─▶ ended              a task, a kernel
/// begins ─▶ enters ─▶ leaves ─▶ enters ─▶ … ─▶ ended    a future: once for each poll
/// begins ─▶ ended                                  a run, an item, a loop, a branch
/// ```
///
/// `enters` and `leaves` are called by the thread that runs the body, directly around it, and are nested like
/// calls. So an observer can change the state of the thread meanwhile. `begins` and `ended` may be called by
/// different threads. A node or an operation that is skipped does not begin.
///
/// A closure that takes a [`WorkSpan`] is an observer, too.
///
/// If an observer panics, the run fails, or the flow; for an operation without a flow,
/// [`Engine::idle`](crate::Engine::idle) reports the panic. If it waits for its own executor it gets the
/// error that a task gets, see [`Run`](crate::Run).
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use anabranch::Executor;
/// use anabranch::exec::WorkSpan;
///
/// let slow = |span: &WorkSpan| {
///     if span.run_time() > Duration::from_millis(100) {
///         eprintln!("{} took {:?} on {:?}", span.work.name, span.run_time(), span.thread);
///     }
/// };
/// let exec = Executor::builder().observer(Arc::new(slow)).build()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Returns whether the other methods than [`Observer::ended`] are called. Asked once, when the executor
    /// is built. If all observers need only ends, work costs less. The default is true.
    fn needs_begins(&self) -> bool {
        true
    }

    /// Called where work is handed over: a run or a flow is made, an operation is pushed. Returns what the
    /// work keeps of this thread, such as its current span, for [`Observer::begins`]. The default keeps
    /// nothing.
    fn origin(&self) -> Option<Origin> {
        None
    }

    /// Called when work begins, with its origin. For a run or a flow: in the poll that begins it. The default
    /// does nothing.
    fn begins(&self, work: &Work, origin: Option<&Origin>) {
        let _ = (work, origin);
    }

    /// Called before a body is called, or a future polled. The default does nothing.
    fn enters(&self, work: &Work) {
        let _ = work;
    }

    /// Called after a body has returned, or a poll. The default does nothing.
    fn leaves(&self, work: &Work) {
        let _ = work;
    }

    /// Called when work has ended.
    fn ended(&self, span: &WorkSpan);
}

impl<F: Fn(&WorkSpan) + Send + Sync + 'static> Observer for F {
    fn needs_begins(&self) -> bool {
        false
    }

    fn ended(&self, span: &WorkSpan) {
        self(span);
    }
}

/// What work keeps of the thread that has handed it over: anything.
pub type Origin = Arc<dyn Any + Send + Sync>;

/// One piece of work of an executor.
///
/// # Examples
/// An observer that counts the nodes that have begun, by name:
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
///
/// use anabranch::exec::{Observer, Origin, Work, WorkSpan};
/// use anabranch::{Executor, Graph, Inputs, Name};
///
/// #[derive(Default)]
/// struct Begun(Mutex<HashMap<Name, u32>>);
///
/// impl Observer for Begun {
///     fn begins(&self, work: &Work, _: Option<&Origin>) {
///         if work.node_id().is_some() {
///             *self.0.lock().unwrap().entry(work.name.clone()).or_default() += 1;
///         }
///     }
///
///     fn ended(&self, _: &WorkSpan) {}
/// }
///
/// # let mut g = Graph::new();
/// # let x = g.task("x", (), || 1);
/// # g.output("x", &x);
/// # let plan = g.compile()?;
/// let begun = Arc::new(Begun::default());
/// let exec = Executor::builder().workers(0).observer(begun.clone()).build()?;
/// futures::executor::block_on(exec.run(&plan, Inputs::new()))?;
/// assert_eq!(begun.0.lock().unwrap()["x"], 1);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Work {
    /// The run or the flow that it is, or belongs to; for an operation without a flow, its engine.
    pub run: RunId,
    /// The run or the flow whose node, operation or code began this run or flow, if one did.
    pub around: Option<RunId>,
    /// The item of a run over many items, from 0 on; else 0.
    pub item: u64,
    /// The name of a node or an operation. Of a node of an inner graph it is the path: `loop/body/mul`. Of
    /// other work it says what it is, such as `run`.
    pub name: Name,
    /// What it is.
    pub kind: WorkKind,
}

/// What a piece of work is.
///
/// # Examples
/// ```
/// use anabranch::exec::{Work, WorkKind};
///
/// fn row(work: &Work) -> String {
///     match &work.kind {
///         WorkKind::Node { stream, .. } => format!("{} on stream {stream}", work.name),
///         WorkKind::Operation { number } => format!("{} as operation {number}", work.name),
///         _ => work.kind_name().to_string(),
///     }
/// }
///
/// # let mut g = anabranch::Graph::new();
/// # let decode = g.task("decode", (), || 1);
/// # g.output("decoded", &decode);
/// # let plan = g.compile()?;
/// # let id = plan.schedule().shape().ids().next().unwrap();
/// assert_eq!(row(&Work::node(&plan, id, 2)), "decode on stream 2");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum WorkKind {
    /// A run of a plan, or over many items; of a group of a [scope](crate::scope), over its steps.
    Run {
        /// Its plan.
        plan: Plan,
    },
    /// One item of a run over many items.
    Item {
        /// The plan of the run.
        plan: Plan,
    },
    /// A flow: all of its code.
    Flow,
    /// A node of a run.
    Node {
        /// The plan of the run.
        plan: Plan,
        /// The node, in the plan's shape. Nodes of inner graphs count on behind those, graph by graph as in
        /// [`Schedule::inner`](crate::plan::Schedule::inner).
        id: NodeId,
        /// The stream of the plan that it ran on; those of inner graphs count on.
        stream: u32,
    },
    /// An operation of an engine or a flow. A part of a [joined](crate::Op::join) operation is one.
    Operation {
        /// Different for all asynchronous operations of an engine that have begun and not ended.
        number: u32,
    },
}

impl Work {
    /// Returns a node of a plan, in run 0: for tests of code that shows spans.
    ///
    /// # Panics
    /// If the plan has no such node.
    pub fn node(plan: &Plan, id: NodeId, stream: u32) -> Self {
        Self::of_node(RunId::ZERO, 0, plan, id, stream)
    }

    pub(crate) fn of_node(run: RunId, item: u64, plan: &Plan, id: NodeId, stream: u32) -> Self {
        let (name, plan) = (plan.inner().name_of(id), plan.clone());
        Self { run, around: None, item, name, kind: WorkKind::Node { plan, id, stream } }
    }

    /// Returns the plan of a run, an item or a node.
    pub fn plan(&self) -> Option<&Plan> {
        match &self.kind {
            WorkKind::Run { plan } | WorkKind::Item { plan } | WorkKind::Node { plan, .. } => Some(plan),
            WorkKind::Flow | WorkKind::Operation { .. } => None,
        }
    }

    /// Returns the node, if it is one.
    pub fn node_id(&self) -> Option<NodeId> {
        if let WorkKind::Node { id, .. } = self.kind { Some(id) } else { None }
    }

    /// Returns the stream of its plan that a node ran on.
    pub fn stream(&self) -> Option<u32> {
        if let WorkKind::Node { stream, .. } = self.kind { Some(stream) } else { None }
    }

    /// Returns whether it is an operation.
    pub fn is_operation(&self) -> bool {
        matches!(self.kind, WorkKind::Operation { .. })
    }

    /// Returns `run`, `item`, `flow`, `node` or `operation`.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            WorkKind::Run { .. } => "run",
            WorkKind::Item { .. } => "item",
            WorkKind::Flow => "flow",
            WorkKind::Node { .. } => "node",
            WorkKind::Operation { .. } => "operation",
        }
    }
}

/// When and where a piece of work was done, and how it ended.
///
/// # Examples
/// The total time of all nodes:
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// use anabranch::Executor;
/// use anabranch::exec::WorkSpan;
///
/// let total = Arc::new(Mutex::new(Duration::ZERO));
/// let add = {
///     let total = total.clone();
///     move |span: &WorkSpan| {
///         if span.work.node_id().is_some() && span.is_ok() {
///             *total.lock().unwrap() += span.run_time();
///         }
///     }
/// };
/// let exec = Executor::builder().observer(Arc::new(add)).build()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkSpan {
    /// The work.
    pub work: Work,
    /// The thread that ended it. It ran the body, or the last poll of the future.
    pub thread: WorkThread,
    /// When it could have begun. A node: when the nodes that it reads had ended. An operation: when it was
    /// pushed, and the operations that it waits for had ended. A run: when it was first polled. Other work:
    /// when it began.
    pub ready: Instant,
    /// When it began: its body was called, or its future first polled; a run: when it was admitted.
    pub start: Instant,
    /// When it had ended. For a kernel on a CUDA device: when its body returned, which only enqueues work.
    /// See [`WorkSpan::on_device`].
    pub end: Instant,
    /// How often its body was called, or its future polled; 0 for runs, items, loops and branches.
    pub polls: u32,
    /// How it ended.
    pub ended: Ended,
    /// How its work was submitted to its device.
    pub launched: Launched,
    /// In a box, because most spans have none.
    pub(crate) on_device: Option<Box<DeviceSpan>>,
}

impl WorkSpan {
    /// Returns the span of work that succeeded on this thread: for tests of code that shows spans.
    pub fn new(work: Work, ready: Instant, start: Instant, end: Instant) -> Self {
        let (thread, launched) = (WorkThread::current(), Launched::Host);
        Self { work, thread, ready, start, end, polls: 1, ended: Ended::Ok, launched, on_device: None }
    }

    /// Returns when its CUDA device worked on it, if the executor takes
    /// [device times](crate::exec::ExecutorBuilder). None for a body that enqueued nothing, for work that the
    /// device never came to, if the driver does not tell, and on a lost device.
    pub fn on_device(&self) -> Option<DeviceSpan> {
        self.on_device.as_deref().copied()
    }

    /// Returns how long it waited: from `ready` to `start`.
    pub fn wait_time(&self) -> Duration {
        self.start - self.ready
    }

    /// Returns how long it took: on its device, if that is known; otherwise from `start` to `end`.
    pub fn run_time(&self) -> Duration {
        let (start, end) = self.ran();
        end - start
    }

    /// Returns when it ran: on its device, if that is known; otherwise on its thread.
    pub(crate) fn ran(&self) -> (Instant, Instant) {
        self.on_device.as_ref().map_or((self.start, self.end), |ran| (ran.start, ran.end))
    }

    /// Returns whether it succeeded.
    pub fn is_ok(&self) -> bool {
        self.ended == Ended::Ok
    }
}

/// How a piece of work ended.
///
/// # Examples
/// An observer that prints what did not succeed:
/// ```
/// use std::sync::Arc;
///
/// use anabranch::Executor;
/// use anabranch::exec::{Ended, WorkSpan};
///
/// let report = |span: &WorkSpan| match span.ended {
///     Ended::Ok => {}
///     ended => eprintln!("{} {}: {}", span.work.kind_name(), span.work.name, ended.name()),
/// };
/// let exec = Executor::builder().observer(Arc::new(report)).build()?;
/// assert_eq!(Ended::Cancelled.name(), "cancelled");
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// It succeeded.
    Ok,
    /// It returned an error, or panicked. A run: one of its nodes did.
    Failed,
    /// It was cancelled, or its executor was shut down.
    Cancelled,
}

impl Ended {
    pub(crate) fn of(is_ok: bool) -> Self {
        if is_ok { Self::Ok } else { Self::Failed }
    }

    pub(crate) fn of_result<T>(result: &Result<T>) -> Self {
        match result {
            Ok(_) => Self::Ok,
            Err(error) if error.is_cancelled() || error.is_shut_down() => Self::Cancelled,
            Err(_) => Self::Failed,
        }
    }

    /// Returns `ok`, `failed` or `cancelled`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// When a device worked on a node or an operation, and on which of its streams.
///
/// # Examples
/// ```
/// use anabranch::exec::WorkSpan;
///
/// let observer = |span: &WorkSpan| {
///     if let Some(ran) = span.on_device() {
///         println!("GPU {}, stream {}: {} took {:?}", ran.device, ran.stream, span.work.name, span.run_time());
///     }
/// };
/// # let exec = anabranch::Executor::builder().observer(std::sync::Arc::new(observer)).build()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceSpan {
    /// The device, counted from 0 as in [`ExecutorBuilder::cuda`](crate::exec::ExecutorBuilder).
    pub device: u32,
    /// The executor's stream of the device. Plans have streams of their own, which runs place on these.
    pub stream: u32,
    /// When the device came to its first work: a kernel, a copy or a fill, or what a library enqueued after
    /// [`DeviceStream::raw`](crate::DeviceStream::raw). If the host is late with the rest, the wait counts.
    pub start: Instant,
    /// When the device had done the last of it.
    pub end: Instant,
}

impl DeviceSpan {
    pub(crate) fn new(device: u32, PartTime { lane, start, end }: PartTime) -> Self {
        Self { device, stream: lane, start, end }
    }
}

/// A thread that does work of an executor.
///
/// # Examples
/// The names of the rows of a picture:
/// ```
/// use anabranch::exec::{WorkSpan, WorkThread};
///
/// fn row(thread: &WorkThread) -> String {
///     match thread.worker {
///         Some(number) => format!("worker {number}"),
///         None => format!("{:?}", thread.id),
///     }
/// }
///
/// let observer = |span: &WorkSpan| println!("{}: {}", row(&span.thread), span.work.name);
/// # let exec = anabranch::Executor::builder().observer(std::sync::Arc::new(observer)).build()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WorkThread {
    /// The number of the worker, if it is one of an executor. Otherwise it polls a run or a flow, or pushes.
    pub worker: Option<u32>,
    /// The thread.
    pub id: ThreadId,
}

/// How the work of a node or an operation was submitted to its device. On a CUDA device, operations are
/// enqueued call by call. Nodes are enqueued call by call the first time. From the second time on they are
/// part of a CUDA graph, if `ExecutorBuilder::cuda_graphs` are on and the calls
/// are the same. With device times there are no CUDA graphs.
///
/// # Examples
/// An observer that counts the nodes that a CUDA graph has launched:
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use anabranch::Executor;
/// use anabranch::exec::{Launched, WorkSpan};
///
/// static IN_GRAPHS: AtomicU64 = AtomicU64::new(0);
///
/// let count = |span: &WorkSpan| {
///     if span.launched == Launched::CudaGraph {
///         IN_GRAPHS.fetch_add(1, Ordering::Relaxed);
///     }
/// };
/// let exec = Executor::builder().observer(Arc::new(count)).build()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Launched {
    /// The body did it itself, on a host.
    #[default]
    Host,
    /// It was enqueued call by call; or that failed, and the span has [`Ended::Failed`].
    Calls,
    /// It was part of a CUDA graph that was launched as one.
    CudaGraph,
}
