//! A future of one node of a run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::inner::RunInner;
use crate::error::{Error, Result, shielded};
use crate::graph::NodeId;
use crate::runtime::{Lane, WaiterKey};

/// Ready when one node of a run is done. Made by [`Run::node`](crate::Run::node).
///
/// It can be awaited in another task than the run. Polling it makes the run progress just as polling the run
/// does. On a CUDA device, kernels without a host node between them are submitted together, and each of them
/// is ready when the device has done all of them.
///
/// A node of an inner graph is named by its path: `loop/body/mul`, `case/arm 0/x`. It is done when it is done
/// for the first time, in any iteration. A poll after that returns the node's outcome in the latest iteration
/// that has reached it. If a node never runs, its future ends with the run. If the branch around it took
/// another arm or none, or the loop around it ended before its first iteration,
/// [`Error::is_not_taken`](crate::Error::is_not_taken) is true. That also holds in a failed or cancelled run,
/// if that branch or loop ended well. The loop or the branch itself is done when it has ended, also without
/// an iteration or an arm.
///
/// # Errors
/// If the node failed; if it did not run, because a predecessor failed, the run was cancelled or shut down,
/// or a loop or branch did not take it; or if the plan has no such node. Also wherever the
/// [`Run`](crate::Run) itself cannot be awaited.
///
/// # Cancellation
/// Dropping it changes nothing for the run. When the run itself is dropped, the future ends with
/// [`Error::is_cancelled`](crate::Error::is_cancelled).
///
/// # Examples
/// ```
/// use anabranch::{Executor, Graph, Inputs};
///
/// let mut g = Graph::new();
/// let draft = g.task("draft", (), || "a draft".to_string());
/// let text = g.task("polish", &draft, |draft: &String| draft.to_uppercase());
/// g.output("text", &text);
///
/// # futures::executor::block_on(async {
/// let exec = Executor::host()?;
/// let run = exec.run(&g.compile()?, Inputs::new());
/// run.node("draft").await?;
/// println!("the draft is done");
/// assert_eq!(*run.await?.take::<String>("text")?, "A DRAFT");
/// # Ok::<(), anabranch::Error>(()) })?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct NodeFuture {
    run: Arc<RunInner>,
    node: Result<Watched, Error>,
    run_key: WaiterKey,
}

struct Watched {
    node: NodeId,
    lane: Arc<Lane>,
    point: u64,
    key: WaiterKey,
    /// If the barrier was refused: until when an earlier step of the node's program may be invisible.
    unordered_until: Option<Instant>,
}

/// The time in which a store becomes visible to all threads without a fence. Processors take less than a
/// microsecond. A model has no time: there a store may take for ever, unless its reader loads it repeatedly.
const SETTLING: Duration = if cfg!(anabranch_loom) { Duration::from_secs(3600) } else { Duration::from_millis(1) };

impl NodeFuture {
    pub(super) fn new(run: &Arc<RunInner>, name: &str) -> Self {
        let node = run.plan().node(name).map(|node| {
            let (lane, point, is_ordered) = run.watch(node);
            let unordered_until = (!is_ordered).then(|| Instant::now() + SETTLING);
            Watched { node, lane, point, key: WaiterKey::default(), unordered_until }
        });
        Self { run: run.clone(), node, run_key: WaiterKey::default() }
    }
}

impl Future for NodeFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { run, node, run_key } = &mut *self;
        let watched = match node {
            Ok(watched) => watched,
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        if !run.is_complete() {
            run.core.check_process()?;
        }
        let is_over = run.is_complete() || run.poll_complete(run_key, cx).is_ready();
        if !is_over {
            run.catch_up(watched.node, &watched.lane);
            if watched.lane.poll(watched.point, &mut watched.key, cx).is_pending() {
                if watched.unordered_until.is_some_and(|until| Instant::now() < until) {
                    // Poll again: there may be no signal for a step that this check did not see.
                    let _ = shielded(|| cx.waker().wake_by_ref());
                }
                return run.pending();
            }
        }
        run.lane.forget(run_key);
        watched.lane.forget(&mut watched.key);
        Poll::Ready(run.node_result(watched.node))
    }
}

impl Drop for NodeFuture {
    fn drop(&mut self) {
        if self.run.core.is_forked() {
            return std::mem::forget(self.run.clone());
        }
        self.run.lane.forget(&mut self.run_key);
        if let Ok(watched) = &mut self.node {
            watched.lane.forget(&mut watched.key);
        }
    }
}

impl std::fmt::Debug for NodeFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.node {
            Ok(watched) => f.debug_tuple("NodeFuture").field(&self.run.plan().name_of(watched.node)).finish(),
            Err(error) => f.debug_tuple("NodeFuture").field(error).finish(),
        }
    }
}
