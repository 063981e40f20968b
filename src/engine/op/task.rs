//! What an operation on the CPU does: gets its arguments, calls the closure, and stores what that returns.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

use super::reads::Vars;
use super::writes::Put;
use crate::engine::order::{Grant, GrantedFuture, Rest, Work};
use crate::error::BoxError;
use crate::runtime::AsyncContext;
use crate::value::args::{Finish, OpFn, OpFutureFn, Params};

/// A future, and where what it gives goes. By hand, because an async block whose future panics would drop
/// that at once, and two panics end the process.
#[pin_project]
struct Writing<Fut, O, V> {
    #[pin]
    future: Fut,
    put: O,
    value: PhantomData<fn() -> V>,
}

impl<Fut, O, V> GrantedFuture for Writing<Fut, O, V>
where
    Fut: Future<Output = Result<V, BoxError>> + Send,
    O: Put<V>,
{
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, grant: Grant<'_>) -> Poll<Result<(), BoxError>> {
        let this = self.project();
        let value = ready!(this.future.poll(cx))?;
        this.put.put(value, grant)?;
        Poll::Ready(Ok(()))
    }
}

/// Calls a closure.
pub(super) struct Task<P, O, F, R, K, V> {
    params: P,
    put: O,
    work: F,
    kind: PhantomData<fn(R) -> (K, V)>,
}

impl<P, O, F, R, K, V> Task<P, O, F, R, K, V> {
    #[inline]
    pub(super) fn new(params: P, put: O, work: F) -> Self {
        Self { params, put, work, kind: PhantomData }
    }
}

impl<P, O, F, R, K, V> Work for Task<P, O, F, R, K, V>
where
    P: Params<Vars>,
    O: Put<V>,
    F: OpFn<Vars, P, R>,
    R: 'static,
    K: Finish<R, Value = V>,
    V: 'static,
{
    #[inline(always)]
    fn run(self, grant: Grant<'_>, _: &mut Rest) -> Result<(), BoxError> {
        let Self { params, put, work, .. } = self;
        if P::IS_MANY {
            params.check(grant)?;
        }
        let value = K::finish(work.call(&params, grant)?)?;
        put.put(value, grant)?;
        Ok(())
    }
}

/// Calls a closure that returns a future, which is left of it.
pub(super) struct AsyncTask<P, O, F, Fut, V> {
    params: P,
    put: O,
    work: F,
    context: AsyncContext,
    kind: PhantomData<fn() -> (Fut, V)>,
}

impl<P, O, F, Fut, V> AsyncTask<P, O, F, Fut, V> {
    pub(super) fn new(params: P, put: O, work: F) -> Self {
        Self { params, put, work, context: AsyncContext::current(), kind: PhantomData }
    }
}

impl<P, O, F, Fut, V> Work for AsyncTask<P, O, F, Fut, V>
where
    P: Params<Vars>,
    O: Put<V>,
    F: OpFutureFn<Vars, P, Fut>,
    Fut: Future<Output = Result<V, BoxError>> + Send + 'static,
    V: 'static,
{
    fn run(self, grant: Grant<'_>, rest: &mut Rest) -> Result<(), BoxError> {
        let Self { params, put, work, context, .. } = self;
        if P::IS_MANY {
            params.check(grant)?;
        }
        let future = context.enter(|| work.call(&params, grant))?;
        *rest = Rest::Future(Box::pin(Writing { future, put, value: PhantomData }), context, None);
        Ok(())
    }
}
