//! Closures as bodies: tasks, kernels and async nodes.

use std::future::Future;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use super::Backend;
use super::body::Body;
use super::builder::Graph;
use crate::device::{KernelStream, StreamMut};
use crate::error::BoxError;
use crate::value::args::{Finish, FutureFn, KernelFn, TaskFn};
use crate::value::{Call, Cells, Outcome, Slot, TypedBody};

/// A closure, and the cell of its node's value.
pub(super) struct Closure<W: Work> {
    pub(super) work: W,
    pub(super) out: Slot<W::Value>,
}

/// How a closure is called with its arguments.
pub(super) trait Work: Send + Sync {
    type Value: 'static;
    const BACKEND: Backend = Backend::Cpu;
    const IS_ASYNC: bool = false;
    const IS_QUEUED: bool = false;

    /// Calls a task or a kernel.
    fn call(&self, _: Cells<'_>, _: StreamMut<'_>) -> Result<Self::Value, BoxError> {
        unreachable!("async nodes are polled")
    }

    /// Polls an async node.
    fn poll(&self, _: Cells<'_>, _: &mut Context<'_>) -> Poll<Result<Self::Value, BoxError>> {
        unreachable!("only async nodes are polled")
    }

    /// Drops the future of an async node, if there is one.
    fn abort(&self, _: Cells<'_>) {}
}

impl<W: Work> TypedBody for Closure<W> {
    #[inline(always)]
    fn run(&self, cells: Cells<'_>, stream: StreamMut<'_>) -> Outcome {
        cells.put(self.out, self.work.call(cells, stream)?);
        Ok(())
    }
}

impl<W: Work> Body for Closure<W> {
    fn call(&self, is_in_place: bool) -> Call {
        Call::of(self, is_in_place)
    }

    fn poll(&self, cells: Cells<'_>, cx: &mut Context<'_>) -> Poll<Outcome> {
        self.work.poll(cells, cx).map_ok(|value| cells.put(self.out, value))
    }

    fn abort(&self, cells: Cells<'_>) {
        self.work.abort(cells);
    }

    fn release(&self, cells: Cells<'_>) {
        cells.clear(self.out);
    }

    fn needs_release(&self) -> bool {
        std::mem::needs_drop::<W::Value>()
    }

    fn is_queued(&self) -> bool {
        W::IS_QUEUED
    }
}

pub(super) struct Task<P, F, R, K> {
    pub(super) params: P,
    pub(super) work: F,
    pub(super) kind: PhantomData<fn(R) -> K>,
}

impl<P: Send + Sync, F: TaskFn<Graph, P, R>, R, K: Finish<R>> Work for Task<P, F, R, K> {
    type Value = K::Value;

    #[inline(always)]
    fn call(&self, cells: Cells<'_>, _: StreamMut<'_>) -> Result<K::Value, BoxError> {
        let Ok(returned) = self.work.call(&self.params, cells);
        K::finish(returned)
    }
}

pub(super) struct Kernel<S, P, F, R, K> {
    pub(super) params: P,
    pub(super) work: F,
    pub(super) kind: PhantomData<fn(S, R) -> K>,
}

impl<S: KernelStream, P: Send + Sync, F: KernelFn<Graph, S, P, R>, R, K: Finish<R>> Work for Kernel<S, P, F, R, K> {
    type Value = K::Value;
    const BACKEND: Backend = Backend::Gpu;
    const IS_QUEUED: bool = S::IS_QUEUE;

    #[inline(always)]
    fn call(&self, cells: Cells<'_>, stream: StreamMut<'_>) -> Result<K::Value, BoxError> {
        let returned = S::with(stream, |stream| self.work.call(stream, &self.params, cells));
        let Ok(returned) = returned.expect("every device gives streams that its kernels can use");
        K::finish(returned)
    }
}

pub(super) struct Async<P, F, Fut> {
    pub(super) params: P,
    pub(super) work: F,
    /// The future lies in the run's memory, beside the values, so that a warm run allocates nothing for it.
    pub(super) future: Slot<Fut>,
}

impl<P, F, Fut, R> Work for Async<P, F, Fut>
where
    P: Send + Sync,
    F: FutureFn<Graph, P, Fut>,
    Fut: Future<Output = Result<R, BoxError>> + Send + 'static,
    R: Send + Sync + 'static,
{
    type Value = R;
    const IS_ASYNC: bool = true;

    fn poll(&self, cells: Cells<'_>, cx: &mut Context<'_>) -> Poll<Result<R, BoxError>> {
        let make = || {
            let Ok(future) = self.work.call(&self.params, cells);
            future
        };
        cells.poll(self.future, make, cx)
    }

    fn abort(&self, cells: Cells<'_>) {
        cells.clear(self.future);
    }
}
