//! The wait until an executor or an engine is idle.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::WaiterKey;
use crate::error::Result;

/// Waits until no run of an executor is in flight, or no operation of an engine is pending; made by
/// [`Executor::idle`](crate::Executor::idle) and [`Engine::idle`](crate::Engine::idle).
///
/// # Errors
/// If it is polled inside of a node of the executor, or an operation of the engine. An engine's also returns
/// failures that no handle has reported: see [`Engine::idle`](crate::Engine::idle).
///
/// # Cancellation
/// Dropping it changes nothing.
///
/// # Examples
/// The wait for an engine also reports a failure that nothing else has reported:
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// engine.push(Op::try_task("save", (), (), || Err("the disk is full".into()))).await?;
/// let error = engine.idle().await.unwrap_err();
/// assert_eq!(error.node(), Some("save"));
/// engine.idle().await?;
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Idle {
    of: Arc<dyn Idles>,
    wait: IdleWait,
}

/// What a wait keeps between polls.
#[derive(Default)]
pub(crate) struct IdleWait {
    pub(crate) lane: WaiterKey,
    /// Without workers, a poll of the wait runs operations.
    pub(crate) driver: WaiterKey,
    /// The number of failures that were returned before the wait began.
    pub(crate) failures: u64,
}

/// An executor or an engine, which can be waited for until it is idle.
pub(crate) trait Idles: Send + Sync + 'static {
    fn poll_idle(&self, wait: &mut IdleWait, cx: &mut Context<'_>) -> Poll<Result<()>>;
    /// Ends a wait that is over or was dropped.
    fn end_wait(&self, wait: &mut IdleWait);
}

impl Idle {
    pub(crate) fn new(of: Arc<dyn Idles>, wait: IdleWait) -> Self {
        Self { of, wait }
    }
}

impl Future for Idle {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { of, wait } = &mut *self;
        of.poll_idle(wait, cx)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.of.end_wait(&mut self.wait);
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").finish_non_exhaustive()
    }
}
