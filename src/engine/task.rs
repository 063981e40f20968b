//! What an operation on the CPU does: gets its arguments, calls the closure, and stores what that returns.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::body::{Ran, Work};
use super::uses::{OpFn, OpFutureFn, Params, Put};
use crate::error::BoxError;
use crate::runtime::AsyncContext;

/// A future, and where what it gives goes. By hand, because an async block whose future panics would drop
/// that at once, and two panics end the process.
struct Writing<Fut, O, V> {
    future: Fut,
    put: O,
    value: PhantomData<fn() -> V>,
}

impl<Fut: Future<Output = Result<V, BoxError>>, O: Put<V>, V> Future for Writing<Fut, O, V> {
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the future is not moved out of the reference.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: it lies in what is pinned, and is not moved before it is dropped there.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let value = ready!(future.poll(cx))?;
        // SAFETY: the operation has what it asked for until this is over; what the future has of it are Arcs.
        unsafe { this.put.put(value) }?;
        Poll::Ready(Ok(()))
    }
}

/// Turns what a closure returned into the values to write, or an error.
pub(super) trait Finish<R, V>: 'static {
    fn finish(returned: R) -> Result<V, BoxError>;
}

pub(super) struct Infallible;
pub(super) struct Fallible;

impl<V> Finish<V, V> for Infallible {
    fn finish(returned: V) -> Result<V, BoxError> {
        Ok(returned)
    }
}

impl<V> Finish<Result<V, BoxError>, V> for Fallible {
    fn finish(returned: Result<V, BoxError>) -> Result<V, BoxError> {
        returned
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
    P: Params,
    O: Put<V>,
    F: OpFn<P, R>,
    R: 'static,
    K: Finish<R, V>,
    V: 'static,
{
    unsafe fn run(self) -> Result<Ran, BoxError> {
        let Self { params, put, work, .. } = self;
        if P::IS_MANY {
            // SAFETY: the caller promises that the operation has what it asked for.
            unsafe { params.check() }?;
        }
        // SAFETY: the caller promises that the operation has what it asked for, so the closure may read it.
        let value = K::finish(unsafe { work.call(&params) }?)?;
        // SAFETY: the operation has been granted to write, and the returned value is 'static: it refers to no
        // argument.
        unsafe { put.put(value) }?;
        Ok(Ran::Over)
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
    P: Params,
    O: Put<V>,
    F: OpFutureFn<P, Fut>,
    Fut: Future<Output = Result<V, BoxError>> + Send + 'static,
    V: 'static,
{
    unsafe fn run(self) -> Result<Ran, BoxError> {
        let Self { params, put, work, context, .. } = self;
        if P::IS_MANY {
            // SAFETY: the caller promises that the operation has what it asked for.
            unsafe { params.check() }?;
        }
        // SAFETY: the caller promises that the operation has what it asked for, so the closure may read it.
        let future = unsafe { work.call(&params) }?;
        Ok(Ran::Later(Box::pin(Writing { future, put, value: PhantomData }), context))
    }
}
