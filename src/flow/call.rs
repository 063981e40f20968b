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
#[diagnostic::on_unimplemented(
    message = "these are not the arguments of the function",
    label = "a `T` or an `Arc<T>`, or a tuple of these, of the types that the function's closure takes"
)]
pub trait Values<I> {
    #[doc(hidden)]
    fn inputs(self) -> Inputs;
}
