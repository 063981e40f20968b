//! Closures as bodies: tasks, kernels and async nodes.

use std::future::Future;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use super::body::Body;
use super::builder::Graph;
use crate::device::{KernelStream, StreamMut};
use crate::error::BoxError;
use crate::value::args::{Finish, FutureFn, KernelFn, TaskFn};
use crate::value::{Call, Cells, Outcome, Slot, TypedBody};

pub(super) struct Task<P, F, R, K: Finish<R>> {
    pub(super) params: P,
    pub(super) work: F,
    pub(super) out: Slot<K::Value>,
    pub(super) kind: PhantomData<fn(R) -> K>,
}

impl<P: Send + Sync, F: TaskFn<Graph, P, R>, R, K: Finish<R>> TypedBody for Task<P, F, R, K> {
    #[inline(always)]
    fn run(&self, cells: Cells<'_>, _: StreamMut<'_>) -> Outcome {
        let Ok(returned) = self.work.call(&self.params, cells);
        let value = K::finish(returned)?;
        cells.put(self.out, value);
        Ok(())
    }
}

impl<P: Send + Sync, F: TaskFn<Graph, P, R>, R, K: Finish<R>> Body for Task<P, F, R, K> {
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

impl<S: KernelStream, P: Send + Sync, F: KernelFn<Graph, S, P, R>, R, K: Finish<R>> TypedBody for Kernel<S, P, F, R, K> {
    #[inline(always)]
    fn run(&self, cells: Cells<'_>, stream: StreamMut<'_>) -> Outcome {
        let returned = S::with(stream, |stream| self.work.call(stream, &self.params, cells));
        let Ok(returned) = returned.expect("every device gives streams that its kernels can use");
        let value = K::finish(returned)?;
        cells.put(self.out, value);
        Ok(())
    }
}

impl<S: KernelStream, P: Send + Sync, F: KernelFn<Graph, S, P, R>, R, K: Finish<R>> Body for Kernel<S, P, F, R, K> {
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
    F: FutureFn<Graph, P, Fut>,
    Fut: Future<Output = Result<R, BoxError>> + Send + 'static,
    R: Send + Sync + 'static,
{
    fn call(&self, is_in_place: bool) -> Call {
        Call::of(self, is_in_place)
    }

    fn poll(&self, cells: Cells<'_>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let make = || {
            let Ok(future) = self.work.call(&self.params, cells);
            future
        };
        cells.poll(self.future, make, cx).map_ok(|value| cells.put(self.out, value))
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
