//! A flow's future.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use pin_project_lite::pin_project;

use super::context::{Flow, FlowShared};
use crate::engine::Engine;
use crate::error::{BoxError, Error, Kind, Result, panic_message, shielded};
use crate::runtime::{Begun, Cancel, Canceller, CountedFlow, Deadline, RunId, WaiterKey, inside_poll, poll_share};

pin_project! {
    /// Control flow as async code: a future of what the closure returns. Made by
    /// [`Executor::flow`](crate::Executor::flow).
    ///
    /// It begins when it is first polled. The closure's own code runs inside of its polls, operations on the
    /// executor.
    ///
    /// # Errors
    /// The closure's error or its panic, a cancel, or a push that was refused: the executor was shut down, or
    /// more operations were pushed than may be pending ([`Error::is_busy`](crate::Error::is_busy)).
    ///
    /// # Cancellation
    /// After its drop, or [`FlowRun::cancel`], no operation begins that it has pushed. Asynchronous ones are
    /// dropped where they stand, and the runs of graphs that it called are cancelled. Work on a device is
    /// done there, and an operation that is running runs to its end. Dropping never waits. When the closure
    /// has returned, operations that it has pushed and not awaited go on as long as the executor lives. Their
    /// errors are lost, unless it is an engine's flow: then [`Engine::idle`] returns them.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use anabranch::{Executor, Flow};
    ///
    /// let exec = Executor::host()?;
    /// let flow = exec.flow(async |f: &Flow| {
    ///     let x = f.task("x", (), || 20);
    ///     Ok(*f.get(&x).await? + 1)
    /// });
    /// let flow = flow.deadline(Instant::now() + Duration::from_secs(60));
    /// assert_eq!(futures::executor::block_on(flow)?, 21);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    #[must_use = "futures do nothing unless awaited"]
    pub struct FlowRun<F> {
        // None once it is over.
        #[pin]
        code: Option<F>,
        // Shared with its code; an error, if it could not be made.
        shared: Result<Arc<FlowShared>>,
        key: WaiterKey,
        // What observers were told of it, once it has begun.
        begun: Option<Begun>,
        // Whether it is counted among the flows that have begun, and among those that wait.
        flight: CountedFlow,
        suspension: CountedFlow,
        deadline: Option<Box<Deadline>>,
    }

    impl<F> PinnedDrop for FlowRun<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let Ok(shared) = this.shared else { return };
            this.suspension.end(&shared.core.flows_suspended);
            if this.code.is_some() {
                shared.cancel();
                let _ = shielded(|| this.code.set(None));
                shared.leave(this.key);
                let _ = shared.tell_end(this.begun.take(), Err::<(), _>(Kind::Cancelled.into()));
            }
            shared.end(this.flight);
        }
    }
}

impl Engine {
    /// Makes a flow on this engine, lazily as [`Executor::flow`](crate::Executor::flow) does on one that all
    /// flows of an executor share: so that it is placed as this engine's settings say
    /// ([`EngineBuilder::placement`](crate::engine::EngineBuilder::placement)), and uses its variables.
    ///
    /// # Examples
    /// ```
    /// use anabranch::policy::Placement;
    /// use anabranch::{Engine, Executor, Flow};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::builder(&Executor::host()?).placement(Placement::Single).build()?;
    /// let x = engine.var("x", 20);
    /// let sum = engine.flow(async |f: &Flow| Ok(*f.get(&f.task("add", &x, |x: &i32| x + 1)).await?));
    /// assert_eq!(sum.await?, 21);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn flow<T, F>(&self, work: F) -> FlowRun<impl Future<Output = Result<T>> + use<T, F>>
    where
        F: AsyncFnOnce(&Flow) -> Result<T>,
    {
        let core = self.executor().cloned().ok_or_else(|| Kind::ShutDown.into());
        FlowRun::new(core.map(|core| Flow::new(self.without_executor(), core, None)), work)
    }
}

impl Flow {
    /// Makes a flow within this one: its future can be dropped or cancelled by itself, with the operations
    /// that it has pushed. It is lazy: nothing happens until the future is polled.
    ///
    /// If this flow is cancelled or dropped, so is the inner one, in any task. If this flow's code returns
    /// first, the inner one goes on.
    ///
    /// # Examples
    /// The first to end wins, and the operations that the other has pushed do not run:
    /// ```
    /// use anabranch::{Executor, Flow};
    /// use futures::future::{Either, select};
    ///
    /// # futures::executor::block_on(async {
    /// let exec = Executor::inline();
    /// let first = exec.flow(async |f: &Flow| {
    ///     let quick = std::pin::pin!(f.flow(async |_: &Flow| Ok(1)));
    ///     let never = std::pin::pin!(f.flow(async |f: &Flow| {
    ///         let x = f.future("never", (), || async { std::future::pending().await });
    ///         f.get(&x).await.map(|x| *x)
    ///     }));
    ///     match select(quick, never).await {
    ///         Either::Left((one, _)) => one,
    ///         Either::Right((other, _)) => other,
    ///     }
    /// });
    /// assert_eq!(first.await?, 1);
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn flow<T, F>(&self, work: F) -> FlowRun<impl Future<Output = Result<T>> + use<T, F>>
    where
        F: AsyncFnOnce(&Flow) -> Result<T>,
    {
        FlowRun::new(Ok(Self::new(self.shared.engine.clone(), self.shared.core.clone(), Some(self))), work)
    }
}

impl Error {
    /// Makes an error of another type one of this type, for the code of a flow. The other error is its
    /// [`source`](std::error::Error::source): `{error}` prints "the flow failed", `{error:#}` also the cause.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Error, Executor, Flow};
    ///
    /// # futures::executor::block_on(async {
    /// let flow = Executor::inline().flow(async |f: &Flow| {
    ///     let number: i32 = "seven".parse().map_err(Error::other)?;
    ///     Ok(*f.get(&f.value("x", number)).await?)
    /// });
    /// let error = flow.await.unwrap_err();
    /// let own = std::error::Error::source(&error).unwrap().downcast_ref::<std::num::ParseIntError>();
    /// assert!(own.is_some() && error.to_string() == "the flow failed");
    /// # })
    /// ```
    pub fn other(cause: impl Into<BoxError>) -> Self {
        Self::with_source(Kind::FlowFailed, cause.into())
    }
}

impl<Fut> FlowRun<Fut> {
    /// Returns the number by which observers know the flow; none if it could not be made.
    pub fn id(&self) -> Option<RunId> {
        self.shared.as_ref().ok().map(|shared| shared.scope.id.get())
    }

    /// Sets a deadline. A flow that is not over by then is cancelled, and ends with an error for which
    /// [`Error::is_past_deadline`](crate::Error::is_past_deadline) is true. The task that awaits the flow
    /// keeps the deadline, so nothing happens while the flow is not polled.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use anabranch::{Executor, Flow};
    ///
    /// let exec = Executor::inline();
    /// let flow = exec.flow(async |_: &Flow| Ok(std::future::pending::<()>().await));
    /// let flow = flow.deadline(Instant::now() + Duration::from_millis(5));
    /// assert!(futures::executor::block_on(flow).unwrap_err().is_past_deadline());
    /// ```
    pub fn deadline(mut self, at: Instant) -> Self {
        self.deadline = Some(Box::new(Deadline::new(at)));
        self
    }

    /// Cancels the flow: it ends with an error for which [`Error::is_cancelled`](crate::Error::is_cancelled)
    /// is true. Does nothing to one that is over.
    pub fn cancel(&self) {
        if let (Ok(shared), Some(_)) = (&self.shared, &self.code) {
            shared.cancel();
        }
    }

    /// Returns a handle that cancels the flow from elsewhere, as long as it is not over.
    pub fn canceller(&self) -> Canceller {
        let shared: Weak<FlowShared> = self.shared.as_ref().map_or_else(|_| Weak::new(), Arc::downgrade);
        Canceller::new(shared)
    }
}

impl FlowRun<std::convert::Infallible> {
    pub(crate) fn new<T, F>(flow: Result<Flow>, work: F) -> FlowRun<impl Future<Output = Result<T>> + use<T, F>>
    where
        F: AsyncFnOnce(&Flow) -> Result<T>,
    {
        let shared = flow.as_ref().map(|flow| flow.shared.clone()).map_err(Clone::clone);
        let code = async move {
            let flow = flow?;
            work(&flow).await
        };
        FlowRun {
            code: Some(code),
            shared,
            key: WaiterKey::default(),
            begun: None,
            flight: CountedFlow::default(),
            suspension: CountedFlow::default(),
            deadline: None,
        }
    }
}

impl<T, F: Future<Output = Result<T>>> Future for FlowRun<F> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let share = ready!(poll_share(cx));
        let mut this = self.project();
        let Some(code) = this.code.as_mut().as_pin_mut() else { return Poll::Ready(Err(Kind::Spent.into())) };
        let polled = match this.shared {
            Err(error) => Poll::Ready(Err(error.clone())),
            Ok(shared) => match shared.begin(this.flight) {
                Ok(()) => {
                    this.suspension.end(&shared.core.flows_suspended);
                    let late = this.deadline.as_mut().map(|deadline| deadline.poll(cx));
                    shared.tell_around(this.begun, || match late.transpose().map(|is_late| is_late.unwrap_or(false)) {
                        Err(error) => {
                            shared.scope.cancel();
                            Poll::Ready(Err(error))
                        }
                        Ok(is_late) => poll_code(shared, code, is_late, this.key, cx),
                    })
                }
                Err(refused) => Poll::Ready(Err(refused)),
            },
        };
        let Poll::Ready(result) = polled else {
            this.shared.iter().for_each(|shared| this.suspension.begin(&shared.core.flows_suspended));
            return Poll::Pending;
        };
        share.used();
        let _ = shielded(|| this.code.set(None));
        Poll::Ready(match this.shared {
            Err(_) => result,
            Ok(shared) => {
                shared.leave(this.key);
                let result = shared.tell_end(this.begun.take(), result);
                shared.end(this.flight);
                result
            }
        })
    }
}

/// Polls a flow's code, unless the flow is cancelled or late.
fn poll_code<T>(
    shared: &FlowShared,
    code: Pin<&mut impl Future<Output = Result<T>>>,
    is_late: bool,
    key: &mut WaiterKey,
    cx: &mut Context<'_>,
) -> Poll<Result<T>> {
    // Registered first, so that a cancel after the check below rings.
    shared.scope.stopped.register(key, cx);
    let cancelled = || shared.scope.is_cancelled().then(|| Kind::Cancelled.into());
    let late = || is_late.then(|| Kind::PastDeadline.into());
    if let Some(error) = shared.scope.failure().or_else(cancelled).or_else(late) {
        shared.scope.cancel();
        return Poll::Ready(Err(error));
    }
    shared.slice.begin();
    let polled = inside_poll(shared.core.address(), || catch_unwind(AssertUnwindSafe(|| code.poll(cx))));
    let error = match (polled, shared.scope.failure()) {
        (Err(panic), _) => Kind::FlowPanicked { message: panic_message(panic) }.into(),
        (Ok(polled), Some(refused)) => {
            let _ = shielded(|| drop(polled));
            refused
        }
        (Ok(polled), None) => {
            if polled.is_ready() {
                shared.scope.end();
            }
            return polled;
        }
    };
    shared.scope.cancel();
    Poll::Ready(Err(error))
}

impl<F> fmt::Debug for FlowRun<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cancelled = self.shared.as_ref().is_ok_and(|shared| shared.scope.is_cancelled());
        f.debug_struct("FlowRun").field("is_over", &self.code.is_none()).field("is_cancelled", &is_cancelled).finish()
    }
}
