//! Observers: called for each node and each operation that ran. Off by default; with an observer, the clock
//! is read twice for each.

use std::time::Instant;

use crate::graph::NodeId;
use crate::name::Name;
use crate::plan::Plan;

/// Is called for every node and every operation that ran to its end, by the thread that ran it. It is not
/// called for skipped ones, nor for a future, a loop or a branch that was cancelled or shut down before its
/// end. An operation whose `take` is refused counts as one that ran and failed.
///
/// If it panics, the run fails, or the flow; for an operation without a flow,
/// [`Engine::idle`](crate::Engine::idle) reports the panic. If it waits for its own executor it gets the
/// error that a task gets, see [`Run`](crate::Run).
pub trait Observer: Send + Sync + 'static {
    /// Called after a node's body, or an async node's last poll.
    fn node(&self, span: &NodeSpan);

    /// Called after an operation's body, or the last poll of its future. Parts of a [joined](crate::Op::join)
    /// operation are operations. The default does nothing.
    fn operation(&self, span: &OpSpan) {
        let _ = span;
    }
}

/// When and where one operation ran.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpSpan {
    /// The number of the engine: different for all engines and runs of one executor. All flows of an executor
    /// have the same number, but for those that an engine made.
    pub engine: u64,
    /// The operation's name.
    pub operation: Name,
    /// When its body was called. For an asynchronous operation: when its closure was called.
    pub start: Instant,
    /// When it was done. For a kernel on a CUDA device: when its body returned, which only enqueues work.
    pub end: Instant,
    /// Whether it succeeded.
    pub is_ok: bool,
    /// How its work was submitted to its device.
    pub launched: Launched,
}

/// When and where one node ran.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeSpan {
    /// The number of the run: different for all runs of one executor.
    pub run: u64,
    /// The item of a run over many items, from 0 on; else 0.
    pub item: u64,
    /// The plan of the run.
    pub plan: Plan,
    /// The node, in the plan's shape. Nodes of inner graphs count on behind those, graph by graph as in
    /// [`Schedule::inner`](crate::plan::Schedule::inner).
    pub id: NodeId,
    /// The node's name; of a node of an inner graph its path: `loop/body/mul`.
    pub node: Name,
    /// The stream of the plan that it ran on; those of inner graphs count on.
    pub stream: u32,
    /// When its body was called, or an async node first polled.
    pub start: Instant,
    /// When it was done. For a kernel on a CUDA device: when its body returned, which only enqueues work.
    pub end: Instant,
    /// Whether it succeeded.
    pub is_ok: bool,
    /// How its work was submitted to its device.
    pub launched: Launched,
}

impl NodeSpan {
    /// Returns the span of a node of run 0 that succeeded on a host: for tests of code that shows spans.
    ///
    /// # Panics
    /// If the plan has no such node.
    pub fn new(plan: &Plan, id: NodeId, stream: u32, start: Instant, end: Instant) -> Self {
        let (node, launched) = (plan.inner().name_of(id), Launched::Host);
        Self { run: 0, item: 0, plan: plan.clone(), id, node, stream, start, end, is_ok: true, launched }
    }
}

/// How the work of a node or an operation was submitted to its device. On a CUDA device, operations are
/// enqueued call by call. Nodes are enqueued call by call the first time. From the second time on they are
/// part of a CUDA graph, if `ExecutorBuilder::cuda_graphs` are on and the calls
/// are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Launched {
    /// The body did it itself, on a host.
    #[default]
    Host,
    /// It was enqueued call by call; or that failed, and `is_ok` is false.
    Calls,
    /// It was part of a CUDA graph that was launched as one.
    CudaGraph,
}
