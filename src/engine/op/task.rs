//! Operations on the CPU: their bodies call a closure, or poll the future that it returns.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

use super::writes::Put;
use crate::engine::order::{Grant, GrantedFuture, Outcome, Rest, Vars, Work};
use crate::error::BoxError;
use crate::runtime::AsyncContext;
use crate::value::args::{Finish, OpFn, OpFutureFn, Params};

/// Returns a body that calls a closure.
#[inline]
pub(super) fn task<P, O, F, R, K, V>(params: P, put: O, work: F) -> impl Work
where
    P: Params<Vars>,
    O: Put<V>,
    F: OpFn<Vars, P, R>,
    K: Finish<R, Value = V>,
{
    #[inline(always)]
    move |grant: Grant<'_>, _: &mut Rest| {
        if P::IS_MANY {
            params.check(grant)?;
        }
        let value = K::finish(work.call(&params, grant)?)?;
        put.put(value, grant)?;
        Ok(())
    }
}

/// Returns a body that calls a closure and leaves the future that this returns.
pub(super) fn future<P, O, F, Fut, V>(params: P, put: O, work: F) -> impl Work
where
    P: Params<Vars>,
    O: Put<V>,
    F: OpFutureFn<Vars, P, Fut>,
    Fut: Future<Output = Result<V, BoxError>> + Send + 'static,
    V: 'static,
{
    let context = AsyncContext::current();
    move |grant: Grant<'_>, rest: &mut Rest| {
        if P::IS_MANY {
            params.check(grant)?;
        }
        let future = context.enter(|| work.call(&params, grant))?;
        *rest = Rest::Future(Box::pin(Writing { future, put, value: PhantomData }), context, None);
        Ok(())
    }
}

/// A future, and the place of its value. By hand, because an async block whose future panics would drop that
/// at once, and two panics end the process.
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
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, grant: Grant<'_>) -> Poll<Outcome> {
        let this = self.project();
        let value = ready!(this.future.poll(cx))?;
        this.put.put(value, grant)?;
        Poll::Ready(Ok(()))
    }
}
