//! Calls of functions without a flow: runs whose arguments and results have types instead of names.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::function::{Function, Ports};
use crate::error::Result;
use crate::run::{Canceller, Inputs, NodeFuture, Run};
use crate::runtime::Core;

/// A run of a [`Function`]: a future of its results. Made by [`Executor::call`](crate::Executor::call).
///
/// A result is an `Arc<T>`, or a tuple of them for a function that returns several values. In all other
/// respects it is a [`Run`].
///
/// # Errors
/// As [`Run`].
///
/// # Cancellation
/// As [`Run`].
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
///
/// use anabranch::{Executor, Function, Graph, Value};
///
/// let add = Function::new("add", |g: &mut Graph, (a, b): (Value<u64>, Value<u64>)| {
///     g.task("add", (&a, &b), |a: &u64, b: &u64| a + b)
/// })?;
/// let exec = Executor::host()?;
/// let call = exec.call(&add, (2, 3)).deadline(Instant::now() + Duration::from_secs(60));
/// assert_eq!(*futures::executor::block_on(call)?, 5);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Call<O> {
    run: Run,
    results: PhantomData<fn() -> O>,
}

impl<O: Ports> Call<O> {
    pub(crate) fn new<I: Ports>(core: &Arc<Core>, function: &Function<I, O>, args: impl Values<I>) -> Self {
        Self::of(Run::new(core, function.plan(), args.inputs()))
    }

    /// Returns a run of a function as one whose results have types.
    pub(crate) fn of(run: Run) -> Self {
        Self { run, results: PhantomData }
    }

    /// Sets a deadline, as [`Run::deadline`].
    pub fn deadline(mut self, at: Instant) -> Self {
        self.run = self.run.deadline(at);
        self
    }

    /// Sets the priority, as [`Run::priority`].
    pub fn priority(mut self, priority: i8) -> Self {
        self.run = self.run.priority(priority);
        self
    }

    /// Returns a future of one node, as [`Run::node`].
    pub fn node(&self, name: &str) -> NodeFuture {
        self.run.node(name)
    }

    /// Cancels the run, as [`Run::cancel`].
    pub fn cancel(&self) {
        self.run.cancel();
    }

    /// Returns a handle that cancels the run from elsewhere, as [`Run::canceller`].
    pub fn canceller(&self) -> Canceller {
        self.run.canceller()
    }
}

impl<O: Ports> Future for Call<O> {
    type Output = Result<O::Arcs>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.run.poll_with(cx, O::take)
    }
}

impl<O> fmt::Debug for Call<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("run", &self.run).finish()
    }
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument of type `{T}`",
    label = "give a `{T}` or an `Arc<{T}>`; a call with variables is `Flow::call`"
)]
/// One argument of a call without a flow: a `T`, or an `Arc<T>` if no node of the graph takes it.
///
/// # Examples
/// The first argument stays with the caller. The second one is moved in:
/// ```
/// use std::sync::Arc;
///
/// use anabranch::flow::OneValue;
/// use anabranch::{Executor, Function, Graph, Result, Value};
///
/// type Words = Function<Value<String>, Value<usize>>;
///
/// fn count(exec: &Executor, words: &Words, text: impl OneValue<String>) -> Result<usize> {
///     futures::executor::block_on(exec.call(words, text)).map(|count| *count)
/// }
///
/// let words = Function::new("words", |g: &mut Graph, text: Value<String>| {
///     g.task("count", &text, |text: &String| text.split(' ').count())
/// })?;
/// let (exec, kept) = (Executor::inline(), Arc::new(String::from("it is kept")));
/// assert_eq!(count(&exec, &words, kept.clone())?, 3);
/// assert_eq!(count(&exec, &words, String::from("it is moved"))?, 3);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub trait OneValue<T> {
    #[doc(hidden)]
    fn give(self, name: &'static str, inputs: Inputs) -> Inputs;
}

impl<T: Send + Sync + 'static> OneValue<T> for T {
    fn give(self, name: &'static str, inputs: Inputs) -> Inputs {
        inputs.with(name, self)
    }
}

impl<T: Send + Sync + 'static> OneValue<T> for Arc<T> {
    fn give(self, name: &'static str, inputs: Inputs) -> Inputs {
        inputs.with_arc(name, self)
    }
}

/// The arguments of a call without a flow: a [`OneValue`] for each of the function's.
///
/// # Examples
/// A function of yours that accepts the arguments of any function:
/// ```
/// use anabranch::flow::{Ports, Values};
/// use anabranch::{Executor, Function, Graph, Value};
///
/// fn is_ok<I: Ports, O: Ports>(exec: &Executor, function: &Function<I, O>, args: impl Values<I>) -> bool {
///     futures::executor::block_on(exec.call(function, args)).is_ok()
/// }
///
/// let divide = Function::new("divide", |g: &mut Graph, (a, b): (Value<u64>, Value<u64>)| {
///     g.try_task("divide", (&a, &b), |a: &u64, b: &u64| a.checked_div(*b).ok_or("division by zero".into()))
/// })?;
/// let exec = Executor::inline();
/// assert!(is_ok(&exec, &divide, (6, 3)) && !is_ok(&exec, &divide, (6, 0)));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "these are not the arguments of the function",
    label = "a `T` or an `Arc<T>`, or a tuple of these, of the types that the function's closure takes"
)]
pub trait Values<I> {
    #[doc(hidden)]
    fn inputs(self) -> Inputs;
}
