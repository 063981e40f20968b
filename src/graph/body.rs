//! What a node does, with its types erased: reads its cells, calls the closure, writes its cell. Who calls
//! it, and when, is the executor's business; a body never waits.

use std::future::Future;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use super::source::{FutureFn, KernelFn, TaskFn};
use super::values::Transfer;
use crate::device::{KernelStream, StreamMut};
use crate::error::BoxError;
use crate::value::{Call, Cells, Outcome, Slot, TypedBody};

/// The body of one node. All methods touch the node's own cells only: those that its arguments name, and its
/// output.
pub(crate) trait Body: Send + Sync {
    /// Returns how to run a task or a kernel. `is_in_place`: whether its values always are, see [`Call::of`].
    fn call(&self, is_in_place: bool) -> Call;

    /// Polls an async node; the first poll makes its future.
    fn poll(&self, _cells: Cells<'_>, _cx: &mut Context<'_>) -> Poll<Outcome> {
        unreachable!("only async nodes are polled")
    }

    /// Drops the future of an async node, if there is one.
    fn abort(&self, _cells: Cells<'_>) {}

    /// Drops the node's value, if it is there.
    fn release(&self, cells: Cells<'_>);

    /// Whether dropping the value does anything when it is stored in place.
    fn needs_release(&self) -> bool;

    /// Whether the body may only enqueue work, on a device that has queues: then the node's end comes later.
    fn is_queued(&self) -> bool {
        false
    }
}

/// Turns what a closure returned into the value to store, or an error: infallible bodies, and fallible ones.
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

/// The body of a loop or a branch, which is carried out by the executor itself.
pub(super) struct ControlBody {
    /// Where its values lie.
    pub(super) outs: Box<[(u32, &'static Transfer)]>,
}

impl TypedBody for ControlBody {
    fn run(&self, _: Cells<'_>, _: StreamMut<'_>) -> Outcome {
        unreachable!("a control is no call")
    }
}

impl Body for ControlBody {
    fn call(&self, is_in_place: bool) -> Call {
        Call::of(self, is_in_place)
    }

    fn release(&self, cells: Cells<'_>) {
        self.outs.iter().for_each(|(offset, transfer)| (transfer.clear)(cells, *offset));
    }

    /// Whatever their type, they may be shared.
    fn needs_release(&self) -> bool {
        true
    }
}
