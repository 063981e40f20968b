//! The wait of a flow for one value.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::slice::WaitSlice;
use crate::engine::VarRead;
use crate::error::Result;

/// Waits for a variable's value; made by [`Flow::get`](super::Flow::get).
///
/// # Examples
/// Waits for two values at the same time:
/// ```
/// use anabranch::{Executor, Flow};
///
/// let exec = Executor::host()?;
/// let sum = exec.flow(async |f: &Flow| {
///     let (x, y) = (f.task("x", (), || 2), f.task("y", (), || 3));
///     let (x, y) = futures::try_join!(f.get(&x), f.get(&y))?;
///     Ok(*x + *y)
/// });
/// assert_eq!(futures::executor::block_on(sum)?, 5);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Get<'f, T> {
    /// None after it has let other tasks run, which a wait does once.
    pub(super) slice: Option<&'f WaitSlice>,
    pub(super) read: VarRead<T>,
}

impl<T> fmt::Debug for Get<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").finish_non_exhaustive()
    }
}

impl<T> Future for Get<'_, T> {
    type Output = Result<Arc<T>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Arc<T>>> {
        if let Some(slice) = self.slice
            && slice.poll(cx).is_pending()
        {
            self.slice = None;
            return Poll::Pending;
        }
        Pin::new(&mut self.read).poll(cx)
    }
}
