//! The end of an executor: at once, or after the work that has begun.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Executor;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::runtime::{Core, Idle, IdleWait, Quiet, WaiterKey, is_inside};

impl Executor {
    /// Shuts the executor down, and waits until its worker threads have ended. Inside of one of this
    /// executor's nodes the call has no effect: there the first poll outside of them shuts it down.
    ///
    /// No further run begins. Runs in flight are cancelled: they end with an error for which
    /// [`Error::is_shut_down`] is true. [`Executor::drain`] lets them finish
    /// first.
    ///
    /// # Errors
    /// If it is awaited inside of one of this executor's nodes.
    ///
    /// # Cancellation
    /// Dropping the future only ends the wait, unless it was made inside of a node and not polled outside:
    /// then it shuts nothing down.
    pub fn shutdown(&self) -> Shutdown {
        let core = self.core();
        if !is_inside(core.address()) && !core.is_forked() {
            core.close();
        }
        Shutdown { core: core.clone(), key: WaiterKey::default(), idle: self.idle() }
    }

    /// Lets the work that has begun go on to its end, and then shuts the executor down. Inside of this
    /// executor's nodes, operations and flows the call has no effect: there the first poll outside of them
    /// begins the drain.
    ///
    /// From the call on, other work does not begin: a run or a flow ends with an error for which
    /// [`Error::is_shut_down`] is true. What has begun goes on: runs in flight and those that wait for room,
    /// flows, and operations of all engines. So do the runs, pipelines and flows that these make and poll on
    /// the way; one that a flow or a node gives to a task of its own begins only by
    /// [`Run::spawn`](crate::Run::spawn). Other pipelines take no further items: the last result of each is
    /// an error that says so. Operations that other threads push are done, too: stop those threads first, or
    /// the drain waits for them all.
    ///
    /// Work without a thread of its own goes on only while it is awaited: on an inline executor everything
    /// but operations, and elsewhere the code of flows and the results of pipelines.
    ///
    /// # Errors
    /// If it is awaited inside of one of this executor's nodes, operations or flows, which it would wait for.
    /// Otherwise the first failure of operations that nothing has reported, of an engine that still has a
    /// handle, once the executor is shut down.
    ///
    /// # Cancellation
    /// Dropping the future ends the wait: the executor begins no other work, and is not shut down. So a drain
    /// within bounds is a timeout around it, and a [`shutdown`](Executor::shutdown) after that.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use anabranch::{Executor, Graph, Inputs};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let mut g = Graph::new();
    /// let answer = g.future("answer", (), async || Ok(tokio::time::sleep(Duration::from_millis(5)).await));
    /// g.output("answer", &answer);
    /// let (exec, plan) = (Executor::host()?, g.compile()?);
    /// let begun = exec.run(&plan, Inputs::new()).spawn();
    /// tokio::task::yield_now().await;
    ///
    /// if tokio::time::timeout(Duration::from_secs(30), exec.drain()).await.is_err() {
    ///     exec.shutdown().await?;
    /// }
    /// assert!(begun.await.unwrap().is_ok());
    /// assert!(exec.run(&plan, Inputs::new()).await.unwrap_err().is_shut_down());
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn drain(&self) -> Drain {
        let core = self.core();
        if !core.is_inside() && !core.is_forked() {
            core.drain();
        }
        Drain(Box::pin(drain(core.clone())))
    }
}

/// Waits for the end of the work of an executor, and shuts it down; made by [`Executor::drain`].
///
/// # Errors
/// As [`Executor::drain`].
///
/// # Cancellation
/// As [`Executor::drain`].
///
/// # Examples
/// Runs that have begun end well. Others do not begin:
/// ```
/// use anabranch::{Executor, Graph, Inputs};
///
/// # let mut g = Graph::new();
/// # let answer = g.task("answer", (), || 42);
/// # g.output("answer", &answer);
/// # let plan = g.compile()?;
/// # futures::executor::block_on(async {
/// let exec = Executor::host()?;
/// let begun = exec.try_run(&plan, Inputs::new())?;
/// let (drained, outputs) = futures::join!(exec.drain(), begun);
/// drained?;
/// assert_eq!(*outputs?.take::<i32>("answer")?, 42);
/// assert!(exec.run(&plan, Inputs::new()).await.unwrap_err().is_shut_down());
/// # Ok::<(), anabranch::Error>(()) })?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Drain(Pin<Box<dyn Future<Output = Result<()>> + Send>>);

impl Future for Drain {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}

async fn drain(core: Arc<Core>) -> Result<()> {
    let (mut first, mut is_drained) = (Ok(()), false);
    while !is_drained && !core.is_closed() {
        Idle::new(Arc::new(Quiet(core.clone())), IdleWait::default()).await?;
        core.drain();
        for idle in core.engines().into_iter().filter_map(|engine| engine.idle()) {
            match idle.await {
                Err(error) if error.is_of_place() => return Err(error),
                ended => first = first.and(ended),
            }
        }
        is_drained = core.close_if_drained();
    }
    let idle = Idle::new(core.clone(), IdleWait::default());
    Shutdown { core, key: WaiterKey::default(), idle }.await?;
    first
}

/// Waits for the end of an executor; made by [`Executor::shutdown`].
///
/// # Errors
/// If it is polled inside of one of the executor's nodes.
///
/// # Cancellation
/// Dropping it only ends the wait. The executor is shut down already, unless this was made inside of one of
/// its nodes and not polled outside.
///
/// # Examples
/// A run in flight ends with an error:
/// ```
/// use anabranch::{Executor, Graph, Inputs};
///
/// # let mut g = Graph::new();
/// # let never = g.future("never", (), async || std::future::pending().await);
/// # g.output::<()>("never", &never);
/// # let plan = g.compile()?;
/// # futures::executor::block_on(async {
/// let exec = Executor::host()?;
/// let run = exec.try_run(&plan, Inputs::new())?;
/// let (ended, shut_down) = futures::join!(run, exec.shutdown());
/// shut_down?;
/// assert!(ended.unwrap_err().is_shut_down());
/// # Ok::<(), anabranch::Error>(()) })?;
/// # Ok::<(), anabranch::Error>(())
/// ```
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
