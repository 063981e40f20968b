//! Closures as bodies: tasks, kernels and async nodes.

use std::future::Future;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use super::body::Body;
use crate::device::{KernelStream, StreamMut};
use crate::error::BoxError;
use crate::value::{Call, Cells, Outcome, Slot, TypedBody};

/// A closure that is the body of a task with arguments `P` and value `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take what the node reads",
    label = "one argument per value read: `&T` for `&value`, `T` for `take(&value)`, `Each<T>` for `&values[..]`; write their types out: `|x: &T| ...`"
)]
pub trait TaskFn<P, R>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call(&self, params: &P, cells: Cells<'_>) -> R;
}

/// A closure that is the body of a kernel on streams of type `S`, with arguments `P` and value `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take a stream and what the node reads",
    label = "first `&mut` the stream, then one argument per value read; write their types out: `|s: &mut HostStream, x: &T| ...`"
)]
pub trait KernelFn<S, P, R>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call(&self, stream: &mut S, params: &P, cells: Cells<'_>) -> R;
}

/// An async closure (or a closure that returns a future) that is the body of an async node with arguments
/// `P`.
#[diagnostic::on_unimplemented(
    message = "this async closure does not take what the node reads, or its future is not Send",
    label = "one argument per value read: `Arc<T>` for `&value`, `T` for `take(&value)`, `Vec<Arc<T>>` for `&values[..]`; clone what it captures into the future"
)]
pub trait FutureFn<P, Fut: Future>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call(&self, params: &P, cells: Cells<'_>) -> Fut;
}

/// Turns the result of a closure into the value to store, or an error: for bodies that can fail, and for
/// those that cannot.
pub(super) trait Finish<R>: Send + Sync + 'static {
    type Value: Send + Sync + 'static;
    fn finish(returned: R) -> Result<Self::Value, BoxError>;
}

pub(super) struct Infallible;
pub(super) struct Fallible;

impl<R: Send + Sync + 'static> Finish<R> for Infallible {
    type Value = R;

    #[inline]
    fn finish(returned: R) -> Result<R, BoxError> {
        Ok(returned)
    }
}

impl<R: Send + Sync + 'static> Finish<Result<R, BoxError>> for Fallible {
    type Value = R;

    #[inline]
    fn finish(returned: Result<R, BoxError>) -> Result<R, BoxError> {
        returned
    }
}

pub(super) struct Task<P, F, R, K: Finish<R>> {
    pub(super) params: P,
    pub(super) work: F,
    pub(super) out: Slot<K::Value>,
    pub(super) kind: PhantomData<fn(R) -> K>,
}

impl<P: Send + Sync, F: TaskFn<P, R>, R, K: Finish<R>> TypedBody for Task<P, F, R, K> {
    #[inline(always)]
    fn run(&self, cells: Cells<'_>, _: StreamMut<'_>) -> Outcome {
        let value = K::finish(self.work.call(&self.params, cells))?;
        cells.put(self.out, value);
        Ok(())
    }
}

impl<P: Send + Sync, F: TaskFn<P, R>, R, K: Finish<R>> Body for Task<P, F, R, K> {
    fn call(&self, is_in_place: bool) -> Call {
        Call::of(self, is_in_place)
    }

    fn release(&self, cells: Cells<'_>) {
        cells.clear(self.out);
    }

    fn needs_release(&self) -> bool {
        std::mem::needs_drop::<K::Value>()
    }
}

pub(super) struct Kernel<S, P, F, R, K: Finish<R>> {
    pub(super) params: P,
    pub(super) work: F,
    pub(super) out: Slot<K::Value>,
    pub(super) kind: PhantomData<fn(S, R) -> K>,
}

impl<S: KernelStream, P: Send + Sync, F: KernelFn<S, P, R>, R, K: Finish<R>> TypedBody for Kernel<S, P, F, R, K> {
    #[inline(always)]
    fn run(&self, cells: Cells<'_>, stream: StreamMut<'_>) -> Outcome {
        let returned = S::with(stream, |stream| self.work.call(stream, &self.params, cells));
        let value = K::finish(returned.expect("every device gives streams that its kernels can use"))?;
        cells.put(self.out, value);
        Ok(())
    }
}

impl<S: KernelStream, P: Send + Sync, F: KernelFn<S, P, R>, R, K: Finish<R>> Body for Kernel<S, P, F, R, K> {
    fn call(&self, is_in_place: bool) -> Call {
        Call::of(self, is_in_place)
    }

    fn release(&self, cells: Cells<'_>) {
        cells.clear(self.out);
    }

    fn needs_release(&self) -> bool {
        std::mem::needs_drop::<K::Value>()
    }

    fn is_queued(&self) -> bool {
        S::IS_QUEUE
    }
}

pub(super) struct Async<P, F, Fut, R> {
    pub(super) params: P,
    pub(super) work: F,
    /// The future lives in the run's memory, next to the values, so that a warm run allocates nothing for it.
    pub(super) future: Slot<Fut>,
    pub(super) out: Slot<R>,
}

impl<P: Send + Sync, F: Send + Sync, Fut, R> TypedBody for Async<P, F, Fut, R> {
    fn run(&self, _: Cells<'_>, _: StreamMut<'_>) -> Outcome {
        unreachable!("async nodes are polled")
    }
}

impl<P, F, Fut, R> Body for Async<P, F, Fut, R>
where
    P: Send + Sync,
    F: FutureFn<P, Fut>,
    Fut: Future<Output = Result<R, BoxError>> + Send + 'static,
    R: Send + Sync + 'static,
{
    fn call(&self, is_in_place: bool) -> Call {
        Call::of(self, is_in_place)
    }

    fn poll(&self, cells: Cells<'_>, cx: &mut Context<'_>) -> Poll<Outcome> {
        cells.poll(self.future, || self.work.call(&self.params, cells), cx).map_ok(|value| cells.put(self.out, value))
    }

    fn abort(&self, cells: Cells<'_>) {
        cells.clear(self.future);
    }

    fn release(&self, cells: Cells<'_>) {
        cells.clear(self.out);
    }

    fn needs_release(&self) -> bool {
        std::mem::needs_drop::<R>()
    }
}
