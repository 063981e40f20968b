//! The streams of results: of a pipeline, and of a plain plan.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::{FusedStream, Stream};
use pin_project_lite::pin_project;

use super::pipeline::{Pipeline, check_in_flight};
use crate::error::{BoxError, Result};
use crate::plan::{Pipelining, Plan};
use crate::run::items::Items;
use crate::run::port::{Named, Typed};
use crate::run::{Canceller, Inputs, Outputs};
use crate::runtime::{Core, RunId};
use crate::value::args::Data;

pin_project! {
    /// The results of a pipeline over a stream of items, in the order of the items. Made by
    /// [`Executor::pipe`](crate::Executor::pipe) and [`Executor::try_pipe`](crate::Executor::try_pipe).
    ///
    /// The source is polled only while this is polled, and while fewer items are in flight than
    /// [`in_flight`](Pipeline::in_flight) allows. An item is in flight until its result is taken from here.
    /// With workers, items that have begun go on by themselves. Without workers, they make progress while
    /// this is polled.
    ///
    /// # Errors
    /// An item that fails is an `Err` in its place: with the first cause, as of a [`Run`](crate::Run), and
    /// the number of the item ([`Error::item`](crate::Error::item)). Later items go on. If the source panics,
    /// that is an `Err` in the place of its next item, and the source has ended. A shutdown or a cancel is
    /// the last `Err`. For waits inside of a task, see [`Run`](crate::Run).
    ///
    /// # Cancellation
    /// Dropping it ends the pipeline: nothing new starts, async nodes are dropped where they stand, and a
    /// task that is running runs to its end. What it may touch is freed after that. Dropping never waits.
    ///
    /// ```
    /// use anabranch::{Executor, Pipeline, Ranked};
    /// use futures::executor::block_on;
    /// use futures::{StreamExt, stream};
    ///
    /// let squares = Pipeline::new("squares", &Ranked::default(), |g, x| g.task("square", &x, |x: &u32| x * x))?;
    /// let exec = Executor::host()?;
    /// let mut piped = exec.pipe(&squares, stream::iter(1..=3));
    /// let mut all = Vec::new();
    /// while let Some(square) = block_on(piped.next()) {
    ///     all.push(square?);
    /// }
    /// assert_eq!(all, [1, 4, 9]);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    #[must_use = "streams do nothing unless polled"]
    pub struct Piped<S: Stream, I, T> {
        #[pin]
        source: S,
        sourced: fn(S::Item) -> Result<I, BoxError>,
        items: Items<Typed<I, T>>,
    }
}

impl<S: Stream, I: Data, T: Send + 'static> Piped<S, I, T> {
    pub(crate) fn new(
        core: &Arc<Core>,
        pipeline: &Pipeline<I, T>,
        source: S,
        sourced: fn(S::Item) -> Result<I, BoxError>,
    ) -> Self {
        let (plan, pipelining) = pipeline.for_core(core);
        Self { source, sourced, items: Items::new(core, plan, pipelining.clone(), pipeline.port(), true) }
    }

    /// Ends the pipeline, as its drop does. Results that are there are still given out; then follows an error
    /// for which [`Error::is_cancelled`](crate::Error::is_cancelled) is true.
    pub fn cancel(&self) {
        self.items.cancel();
    }

    /// Returns the number by which observers know the run over the items.
    pub fn id(&self) -> RunId {
        self.items.id()
    }

    /// Returns a handle that cancels the pipeline from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.items.canceller()
    }
}

impl<S: Stream, I: Data, T: Send + 'static> Stream for Piped<S, I, T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let mut this = self.project();
        let sourced = *this.sourced;
        this.items.poll_next(cx, |cx| this.source.as_mut().poll_next(cx).map(|item| item.map(sourced)))
    }
}

impl<S: Stream, I: Data, T: Send + 'static> FusedStream for Piped<S, I, T> {
    fn is_terminated(&self) -> bool {
        self.items.is_over()
    }
}

impl<S: Stream, I, T> fmt::Debug for Piped<S, I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piped").field("items", &self.items).finish_non_exhaustive()
    }
}

pin_project! {
    /// The outputs of a plan for a stream of inputs. Made by
    /// [`Executor::run_stream`](crate::Executor::run_stream).
    ///
    /// Errors and cancellation are those of [`Piped`].
    ///
    /// ```
    /// use anabranch::{Executor, Graph, inputs};
    /// use futures::executor::block_on;
    /// use futures::{StreamExt, stream};
    ///
    /// let mut g = Graph::new();
    /// let x = g.input::<u32>("x");
    /// let y = g.task("square", &x, |x: &u32| x * x);
    /// g.output("y", &y);
    /// let sources = stream::iter((1..=3_u32).map(|x| inputs! { "x" => x }));
    /// let exec = Executor::host()?;
    /// let mut runs = exec.run_stream(&g.compile()?, sources, 2)?;
    /// let mut sum = 0;
    /// while let Some(outputs) = block_on(runs.next()) {
    ///     sum += *outputs?.take::<u32>("y")?;
    /// }
    /// assert_eq!(sum, 14);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    #[must_use = "streams do nothing unless polled"]
    pub struct RunStream<S> {
        #[pin]
        source: S,
        items: Items<Named>,
    }
}

impl<S: Stream<Item = Inputs>> RunStream<S> {
    pub(crate) fn new(core: &Arc<Core>, plan: &Plan, source: S, in_flight: u32, is_ordered: bool) -> Result<Self> {
        check_in_flight(plan, in_flight)?;
        let pipelining = Arc::new(Pipelining::unordered(in_flight));
        Ok(Self { source, items: Items::new(core, plan, pipelining, Named, is_ordered) })
    }

    /// Ends the stream, as its drop does. Results that are there are still given out; then follows an error
    /// for which [`Error::is_cancelled`](crate::Error::is_cancelled) is true.
    pub fn cancel(&self) {
        self.items.cancel();
    }

    /// Returns the number by which observers know the run over the inputs.
    pub fn id(&self) -> RunId {
        self.items.id()
    }

    /// Returns a handle that cancels the stream from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.items.canceller()
    }
}

impl<S: Stream<Item = Inputs>> Stream for RunStream<S> {
    type Item = Result<Outputs>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Outputs>>> {
        let mut this = self.project();
        this.items.poll_next(cx, |cx| this.source.as_mut().poll_next(cx).map(|item| item.map(Ok)))
    }
}

impl<S: Stream<Item = Inputs>> FusedStream for RunStream<S> {
    fn is_terminated(&self) -> bool {
        self.items.is_over()
    }
}

impl<S> fmt::Debug for RunStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStream").field("items", &self.items).finish_non_exhaustive()
    }
}
