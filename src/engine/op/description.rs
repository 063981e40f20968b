//! Operations: a name, variables to read and to write, and a closure.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::reads::Bound;
use super::writes::{Put, Writes};
use crate::engine::order::{Body, Grant, GrantedFuture, Operation, Outcome, PRIORITY_MAX, Rest, Unpushed, Vars};
use crate::error::BoxError;
use crate::name::Name;
use crate::runtime::AsyncContext;
use crate::value::args::{Fallible, Finish, Infallible, OpFn, OpFutureFn, Params, Reads};

/// One operation on variables, to be [pushed](crate::Engine::push): the variables that it reads, those that
/// it writes, and a closure that makes the new values.
///
/// The closure gets `&T` for a variable that is read, `T` for one that is taken ([`take`](crate::take)), and
/// [`Each<T>`](crate::engine::Each) for a slice of variables, or of references to some. It returns the new
/// values of the variables that it writes. These are stored when it has returned. So an operation may read a
/// variable that it writes, and gets the old value. An operation borrows its variables until it is pushed.
///
/// # Examples
/// An operation that reads a slice, takes a value, and writes two:
/// ```
/// use anabranch::engine::Each;
/// use anabranch::{Engine, Executor, Op, take};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let parts = [engine.var("a", 2), engine.var("b", 3)];
/// let (log, sum) = (engine.var("log", vec![0]), engine.var("sum", 0));
///
/// let op = Op::task("sum", (&parts[..], take(&log)), (&sum, &log), |parts: Each<i32>, mut log: Vec<i32>| {
///     let sum = parts.iter().sum();
///     log.push(sum);
///     (sum, log)
/// });
/// engine.push(op.priority(1)).await?;
/// assert_eq!(*log.read().await?, [0, 5]);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[must_use = "an operation does nothing until it is pushed"]
pub struct Op<'v>(pub(super) Unpushed<'v>);

impl<'v> Op<'v> {
    /// Returns an operation that cannot fail but by a panic.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Engine, Executor, Op};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::new(&Executor::inline())?;
    /// let (x, y) = (engine.var("x", 20), engine.var("y", 1));
    /// engine.push(Op::task("add", (&x, &y), &y, |x: &i32, y: &i32| x + y)).await?;
    /// assert_eq!(*y.read().await?, 21);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    #[inline]
    pub fn task<R, W, F>(name: impl Into<Name>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads<Vars> + 'v,
        W: Writes + 'v,
        F: OpFn<Vars, R::Params, W::Value>,
    {
        Self::task_of::<R, W, F, W::Value, Infallible>(name.into(), reads, writes, work)
    }

    /// Returns an operation that may fail. What it writes is then poisoned: reads fail with this error, until
    /// it is overwritten. An operation that could not begin, because a reader keeps the value that it
    /// [takes](crate::take), poisons nothing and leaves its variables as they were.
    #[inline]
    pub fn try_task<R, W, F>(name: impl Into<Name>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads<Vars> + 'v,
        W: Writes + 'v,
        F: OpFn<Vars, R::Params, Result<W::Value, BoxError>>,
    {
        Self::task_of::<R, W, F, Result<W::Value, BoxError>, Fallible>(name.into(), reads, writes, work)
    }

    /// Returns an operation whose closure returns a future. The operation holds its variables until the
    /// future is ready. The future may await other operations, and push some.
    ///
    /// The closure gets an `Arc<T>` for a variable that is read, `T` for one that is taken, and a
    /// `Vec<Arc<T>>` for a slice. The executor's workers poll the future, inside the tokio runtime in which
    /// this was called. Without workers, a task that awaits something of the engine polls it
    /// ([where futures run](crate::guide::futures)).
    ///
    /// # Errors
    /// As [`Op::try_task`]. The future must not wait for an operation that waits for this one. Awaiting its
    /// own handle is an error. So is awaiting an operation behind it in the queue of a variable; the error
    /// names both and the variable. It is returned even if another branch of a `select` could be ready first.
    ///
    /// Longer cycles are not detected: through a third operation, a spawned task or another engine. They
    /// wait for ever, and [`Engine::blocked`](crate::Engine::blocked) shows them. `block_on` inside blocks a
    /// worker; with at most one worker, no thread is left.
    ///
    /// # Cancellation
    /// When the executor is shut down, the future is dropped where it stands, and the operation fails.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use anabranch::{Engine, Executor, Op};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::new(&Executor::host()?)?;
    /// let (key, page) = (engine.var("key", 7), engine.var("page", String::new()));
    /// let fetch = Op::future("fetch", &key, &page, |key: Arc<i32>| async move { Ok(format!("page {key}")) });
    /// engine.push(fetch).await?;
    /// assert_eq!(*page.read().await?, "page 7");
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn future<R, W, F, Fut>(name: impl Into<Name>, reads: R, writes: W, work: F) -> Self
    where
        R: Reads<Vars> + 'v,
        W: Writes + 'v,
        F: OpFutureFn<Vars, R::Params, Fut>,
        Fut: Future<Output = Result<W::Value, BoxError>> + Send + 'static,
    {
        Self::future_of(name.into(), Bound::new(reads), writes, work, Begun::Goes)
    }

    /// Returns an asynchronous operation. `begun` says how far it is when its closure has returned.
    pub(crate) fn future_of<P, W, F, B, Fut>(
        name: Name,
        reads: Bound<'v, P>,
        writes: W,
        work: F,
        begun: fn(B) -> Begun<W::Value, Fut>,
    ) -> Self
    where
        P: Params<Vars>,
        W: Writes + 'v,
        F: OpFutureFn<Vars, P, B>,
        B: 'static,
        Fut: Future<Output = Result<W::Value, BoxError>> + Send + 'static,
    {
        let context = AsyncContext::current();
        let mut op = Self::using(name, reads, writes, |params, put| {
            Body::new(move |grant: Grant<'_>, rest: &mut Rest| {
                if P::IS_MANY {
                    params.check(grant)?;
                }
                match begun(context.enter(|| work.call(&params, grant))?) {
                    Begun::Over(value) => put.put(value?, grant)?,
                    Begun::Goes(future) => {
                        *rest = Rest::Future(Box::pin(Writing { future, put, value: PhantomData }), context);
                    }
                }
                Ok(())
            })
        });
        op.set(|operation| operation.is_async = true);
        op
    }

    /// Sets its priority: of operations that are ready, those of a higher one go first, and those of the same
    /// first come, first served. The default is 0. Operations that free a variable run first. A cheap one
    /// whose variables are free is run by its push, whatever is ready.
    pub fn priority(mut self, priority: i32) -> Self {
        self.set(|operation| operation.priority = priority.min(PRIORITY_MAX));
        self
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        self.0.get().map_or("", |operation| &operation.name)
    }

    #[inline]
    pub(super) fn set(&mut self, set: impl FnOnce(&mut Operation)) {
        if let Some(operation) = self.0.get_mut() {
            set(operation);
        }
    }

    /// Returns the operation, to be pushed.
    #[inline(always)]
    pub(crate) fn unpushed(&mut self) -> &mut Unpushed<'v> {
        &mut self.0
    }

    #[inline]
    fn task_of<R, W, F, V, K>(name: Name, reads: R, writes: W, work: F) -> Self
    where
        R: Reads<Vars> + 'v,
        W: Writes,
        F: OpFn<Vars, R::Params, V>,
        V: 'static,
        K: Finish<V, Value = W::Value>,
    {
        Self::using(name, Bound::new(reads), writes, |params, put| {
            Body::new(
                #[inline(always)]
                move |grant: Grant<'_>, _: &mut Rest| {
                    if R::Params::IS_MANY {
                        params.check(grant)?;
                    }
                    let value = K::finish(work.call(&params, grant)?)?;
                    put.put(value, grant)?;
                    Ok(())
                },
            )
        })
    }

    #[inline]
    pub(super) fn using<P, W: Writes>(name: Name, reads: Bound<'v, P>, writes: W, body: impl FnOnce(P, W::Put) -> Body) -> Self {
        let Bound { params, mut asking, .. } = reads;
        let put = writes.ask(&mut asking);
        let (is_aliased, accesses) = (asking.is_aliased, asking.accesses());
        Self(Unpushed::checked(name, accesses, is_aliased, body(params, put)))
    }
}

/// How far an asynchronous operation is when its closure has returned.
pub(crate) enum Begun<V, Fut> {
    /// It has its value, or has failed.
    Over(Result<V, BoxError>),
    /// It goes on with this future.
    Goes(Fut),
}

pin_project! {
    /// A future, and the place of its value. By hand, because an async block whose future panics would drop
    /// that at once, and two panics end the process.
    struct Writing<Fut, O, V> {
        #[pin]
        future: Fut,
        put: O,
        value: PhantomData<fn() -> V>,
    }
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

impl fmt::Debug for Op<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables = self.0.get().map_or(0, |operation| operation.accesses().len());
        f.debug_struct("Op").field("name", &self.name()).field("variables", &variables).finish()
    }
}
