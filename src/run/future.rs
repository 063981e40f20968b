//! The run: a future of a plan's outputs.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use super::async_nodes::Drive;
use super::at_once::AtOnce;
use super::inner::{COMPLETE, RunInner};
use super::state;
use super::values::FrameValues;
use super::{Inputs, NodeFuture, Outputs};
use crate::device::host::is_aside;
use crate::error::{Kind, Refused, Result};
use crate::plan::Plan;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::runtime::{Cancel, Canceller, Core, Deadline, RunId, WaiterKey, is_inside, is_inside_body, poll_share};

/// One execution of a plan: a future of its outputs. Made by [`Executor::run`](crate::Executor::run).
///
/// The run starts when it, or one of its node futures, is first polled. On an executor with workers it then
/// goes on by itself, async nodes too. Without workers its nodes make progress while the run or one of its
/// node futures is polled. [Where futures run](crate::guide::futures) says which runtime async nodes are in.
///
/// # Errors
/// The first cause: a node that failed or panicked ([`Error::others`](crate::Error::others) lists the rest),
/// a cancel, a deadline, a shutdown, a drain before it is admitted, or inputs that do not fit the plan. Nodes
/// that do not depend on a failed one finish first.
///
/// On an executor with workers, a pending poll by a worker inside of a task, a kernel, an observer or an
/// operation that is no future is an error: such a wait blocks a worker that the run may need. Without
/// workers, so is a pending poll inside of such a body or an observer of the same run. The run continues, and
/// can be awaited elsewhere. In a child that was forked from the process of the workers, every poll of a run
/// that is not complete is an error.
///
/// # Cancellation
/// Dropping a run cancels what has not started. Async nodes are dropped where they stand; a task that is
/// running runs to its end, and what it may touch is freed after that. Dropping never waits. `mem::forget`
/// leaks the run's memory.
///
/// # Examples
/// Runs of one plan go on side by side:
/// ```
/// use anabranch::{Executor, Graph, inputs};
///
/// let mut g = Graph::new();
/// let x = g.input::<u64>("x");
/// let square = g.task("square", &x, |x: &u64| x * x);
/// g.output("square", &square);
/// let (exec, plan) = (Executor::host()?, g.compile()?);
///
/// # futures::executor::block_on(async {
/// let runs = [3_u64, 4].map(|x| exec.run(&plan, inputs! { "x" => x }));
/// let mut outputs = futures::future::try_join_all(runs).await?;
/// assert_eq!(*outputs[1].take::<u64>("square")?, 16);
/// # Ok::<(), anabranch::Error>(()) })?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Run {
    inner: ManuallyDrop<Arc<RunInner>>,
    key: WaiterKey,
    /// Whether nothing else has ever reached the run: it gave out no future of a node and no canceller, and
    /// was not started, but for a [run at once](super::at_once).
    is_alone: AtomicBool,
    /// Whether its outputs were given out.
    is_spent: bool,
    deadline: Option<Box<Deadline>>,
}

impl Run {
    /// Makes a run, which does not keep the executor.
    pub(crate) fn new(core: &Arc<Core>, plan: &Plan, inputs: Inputs) -> Self {
        let inner = RunInner::again(core, plan, inputs).unwrap_or_else(|inputs| RunInner::new(core, plan, None, inputs));
        let is_alone = AtomicBool::new(true);
        Self { inner: ManuallyDrop::new(inner), key: WaiterKey::default(), is_alone, is_spent: false, deadline: None }
    }

    /// Takes a place among the runs in flight at once, or gives the inputs back.
    pub(crate) fn reserved(core: &Arc<Core>, plan: &Plan, inputs: Inputs) -> Result<Self, Refused<Inputs>> {
        let run = Self::new(core, plan, inputs);
        run.shared().reserve()?;
        Ok(run)
    }

    /// As [`Run::reserved`], but returns a run that is over with the error.
    #[cfg(feature = "tower")]
    pub(crate) fn reserved_or_over(core: &Arc<Core>, plan: &Plan, inputs: Inputs) -> Self {
        let run = Self::new(core, plan, inputs);
        let refused = run.shared().reserve();
        drop(refused);
        run
    }

    /// Returns the run, for a use after which others may reach it.
    fn shared(&self) -> &Arc<RunInner> {
        // ORDERING: Relaxed: only its owner reads it.
        self.is_alone.store(false, Ordering::Relaxed);
        &self.inner
    }

    /// Runs a plan at once, if it is known to be cheap and can be. Otherwise returns a run, which may have
    /// begun.
    pub(crate) fn now<R>(
        core: &Arc<Core>,
        plan: &Plan,
        inputs: Inputs,
        take: impl FnOnce(&FrameValues<'_>) -> R,
    ) -> Result<Result<R>, Self> {
        // SAFETY: the run is given back or keeps them before this returns. It is leaked if this unwinds.
        let mut inner = match unsafe { RunInner::again_lent(core, plan, inputs) } {
            Ok(inner) => ManuallyDrop::new(inner),
            Err(inputs) => return Err(Self::new(core, plan, inputs)),
        };
        // SAFETY: nothing else has ever reached the run.
        let tried = if inner.is_known_cheap() { unsafe { RunInner::run_at_once(&mut inner) } } else { AtOnce::Refused };
        match tried {
            AtOnce::Complete => {
                let results = inner.results(take);
                // SAFETY: it is not used after this.
                let inner = unsafe { ManuallyDrop::take(&mut inner) };
                // SAFETY: nothing else has ever reached the run. Its outputs were given out, and its other
                // values dropped.
                unsafe { RunInner::give_back(inner, false) };
                return Ok(results);
            }
            // SAFETY: nothing else has ever reached the run.
            AtOnce::Refused => unsafe { RunInner::alone(&mut inner) }.keep_what_was_lent(),
            AtOnce::Late => {}
        }
        let is_alone = AtomicBool::new(tried == AtOnce::Refused);
        Err(Self { inner, key: WaiterKey::default(), is_alone, is_spent: false, deadline: None })
    }

    /// As the poll of the future, but returns what `take` makes of the outputs.
    #[inline]
    pub(crate) fn poll_with<R>(&mut self, cx: &mut Context<'_>, take: impl FnOnce(&FrameValues<'_>) -> R) -> Poll<Result<R>> {
        if self.is_spent {
            return Poll::Ready(Err(Kind::Spent.into()));
        }
        // A task that awaits one inline run after the other would otherwise never come to a pending poll.
        let share = std::task::ready!(poll_share(cx));
        if !self.inner.is_complete() {
            self.inner.core.check_process()?;
            std::task::ready!(self.poll_in_time(cx))?;
        }
        share.used();
        self.inner.lane.forget(&mut self.key);
        self.is_spent = true;
        // If `take` panics, values are left.
        let is_alone = std::mem::take(self.is_alone.get_mut());
        let results = self.inner.results(take);
        *self.is_alone.get_mut() = is_alone;
        Poll::Ready(results)
    }

    /// As `poll_end`. At the deadline it ends the wait, too: what still runs then may take long.
    fn poll_in_time(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let polled = self.deadline.as_mut().map(|deadline| deadline.poll(cx));
        let is_late = polled.transpose()?.unwrap_or(false);
        if !is_late {
            return self.poll_end(cx);
        }
        self.shared().cancel(state::LATE);
        if !self.inner.is_complete() {
            self.inner.lane.forget(&mut self.key);
            self.is_spent = true;
            return Poll::Ready(Err(Kind::PastDeadline.into()));
        }
        Poll::Ready(Ok(()))
    }

    /// Starts, drives, and waits for the end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let tried = if self.inner.polls_run_it() { self.run_at_once() } else { AtOnce::Refused };
        *self.is_alone.get_mut() &= tried == AtOnce::Complete;
        let Self { inner, key, .. } = self;
        let polled = match tried {
            AtOnce::Complete => Poll::Ready(()),
            AtOnce::Late if inner.core.pool.is_none() => inner.poll_again(key, cx),
            AtOnce::Late | AtOnce::Refused => inner.poll_complete(key, cx),
        };
        if polled.is_pending() { inner.pending() } else { Poll::Ready(Ok(())) }
    }

    /// Tries to run a cheap run at once, in its first poll.
    fn run_at_once(&mut self) -> AtOnce {
        if !std::mem::take(self.is_alone.get_mut()) {
            return AtOnce::Refused;
        }
        // SAFETY: nothing but this `Run` has ever reached the run.
        let outcome = unsafe { RunInner::run_at_once(&mut self.inner) };
        *self.is_alone.get_mut() = outcome == AtOnce::Complete;
        outcome
    }

    /// Sets a deadline. A run that is not over by then is cancelled, and its future is ready with an error
    /// for which [`Error::is_past_deadline`](crate::Error::is_past_deadline) is true. It does not wait for
    /// tasks that are running: these run to their ends, and
    /// [`Executor::in_flight`](crate::Executor::in_flight) counts the run until then.
    ///
    /// The task that awaits the run keeps the deadline, so nothing happens while the run is not polled. A
    /// thread of the process wakes it; the first deadline starts the thread. If the operating system refuses
    /// it, that is the error of the poll, and the run goes on. In a child that was forked later there is no
    /// such thread, and no wake at the deadline. A
    /// [`NodeFuture`] alone does not keep it, but ends with the run. A simulated executor has no clock:
    /// there, too, the deadline is one of the real clock.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use anabranch::{Executor, Graph, Inputs};
    ///
    /// let mut g = Graph::new();
    /// let never = g.future("never", (), async || std::future::pending().await);
    /// g.output::<u32>("never", &never);
    /// let exec = Executor::inline();
    /// let run = exec.run(&g.compile()?, Inputs::new()).deadline(Instant::now() + Duration::from_millis(5));
    /// let error = futures::executor::block_on(run).unwrap_err();
    /// assert!(error.is_past_deadline() && error.is_cancelled());
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn deadline(mut self, at: Instant) -> Self {
        self.deadline = Some(Box::new(Deadline::new(at)));
        self
    }

    /// Sets the priority: when runs wait because `max_in_flight` others are in flight, one of a higher
    /// priority is admitted first. Those of the same priority are admitted in the order of their first polls.
    /// It is 0 unless set. A run of a low priority may wait as long as others of a higher one come.
    ///
    /// It has no effect on a run in flight, nor on one that waits already. Pipelines have the priority 0.
    pub fn priority(self, priority: i8) -> Self {
        self.inner.set_priority(priority);
        self
    }

    /// Returns the number by which observers know the run.
    pub fn id(&self) -> RunId {
        self.inner.id.get()
    }

    /// Returns a future of one node: ready when the node is done.
    pub fn node(&self, name: &str) -> NodeFuture {
        NodeFuture::new(self.shared(), name)
    }

    /// Cancels the run: no further node starts, async nodes are dropped, and the run ends with an error for
    /// which [`Error::is_cancelled`](crate::Error::is_cancelled) is true. Does nothing to a run that is
    /// complete or cancelled.
    pub fn cancel(&self) {
        self.shared().cancel(0);
    }

    /// Returns a handle that cancels the run from elsewhere: while it is awaited, or after [`Run::spawn`]
    /// took it.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(Arc::downgrade(self.shared()) as Weak<RunInner>)
    }

    /// Spawns the run on the tokio runtime that this is called in, so that it makes progress without being
    /// polled by the caller. It acts at once: the task is started before this returns.
    ///
    /// # Panics
    /// If it is called outside of a tokio runtime, as [`tokio::spawn`] does.
    ///
    /// # Cancellation
    /// As for every tokio task: dropping the handle detaches the run, aborting it drops the run. A
    /// [`Run::canceller`] taken before cancels it.
    #[cfg(feature = "tokio")]
    pub fn spawn(self) -> tokio::task::JoinHandle<Result<Outputs>> {
        self.inner.note_inner();
        tokio::spawn(self)
    }
}

impl Cancel for RunInner {
    fn cancel(&self) {
        self.cancel(0);
    }
}

impl Future for Run {
    type Output = Result<Outputs>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_with(cx, |results| results.outputs())
    }
}

impl RunInner {
    /// Starts, drives, and waits for the end.
    pub(super) fn poll_complete(self: &Arc<Self>, key: &mut WaiterKey, cx: &mut Context<'_>) -> Poll<()> {
        if self.start().is_pending() {
            // Admission rings the lane when there is room. After the registration, try again.
            let polled = self.lane.poll(COMPLETE, key, cx);
            if polled.is_ready() || self.start().is_pending() {
                return polled;
            }
        }
        let mut drive = self.drive();
        let polled = self.lane.poll(COMPLETE, key, cx);
        if polled.is_pending() && drive == Drive::Busy {
            // The thread that had the driver may have unlocked it, and rung, before this registration.
            drive = self.drive();
        }
        if polled.is_pending() && (drive == Drive::More || drive == Drive::Done && self.has_woken()) {
            // Rings all tasks that await this run: this one may be dropped, and another one drives then.
            self.lane.ring();
        }
        polled
    }

    /// Lets the task's others run. It goes on in its next poll.
    fn poll_again(&self, key: &mut WaiterKey, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.lane.poll(COMPLETE, key, cx);
        if polled.is_pending() {
            self.lane.ring();
        }
        polled
    }

    /// Returns the result of a pending poll, as [`Core::pending`]. Without workers, it is also an error
    /// inside of a body of this run, or of an observer: the run does not continue before that returns.
    pub(super) fn pending<T>(&self) -> Poll<Result<T>> {
        let is_at_body = || is_inside(self.address()) && !is_aside() && self.progress.is_at_a_step();
        match self.core.pool {
            None if is_at_body() || is_inside_body(self.address()) => Poll::Ready(Err(Kind::WaitsInTask.into())),
            _ => self.core.pending(),
        }
    }

    pub(super) fn has_woken(&self) -> bool {
        self.live.get().and_then(|live| live.wakes.as_ref()).is_some_and(|wakes| wakes.has_woken())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let inner = &self.inner;
        if inner.core.is_forked() {
            // The child drops nothing of the executor.
            return;
        }
        inner.lane.forget(&mut self.key);
        inner.abandon();
        let is_alone = *self.is_alone.get_mut() && self.is_spent;
        // SAFETY: it is not used after this.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        if is_alone {
            // SAFETY: nothing else has ever reached the run. Its outputs were given out, and its other values
            // dropped.
            unsafe { RunInner::give_back(inner, false) };
        } else {
            RunInner::let_go(inner);
        }
    }
}

impl RunInner {
    /// Cancels a run that is no longer awaited, and keeps its memory until it is complete.
    pub(super) fn abandon(self: &Arc<Self>) {
        if self.is_complete() {
            return;
        }
        self.cancel(0);
        self.keep_until_complete();
    }

    /// Keeps the memory of a run without a future until no other thread touches it any more.
    pub(super) fn keep_until_complete(self: &Arc<Self>) {
        if self.is_complete() {
            // It never started, is inline, or is over.
            return;
        }
        self.core.limbo.hold(&self.held, self.clone());
        if self.is_complete() {
            // The run ended between the two checks, so its end may not have freed it.
            self.core.limbo.free(&self.held);
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.inner.state.glance();
        f.debug_struct("Run")
            .field("plan", &*self.inner.plan)
            .field("is_complete", &self.inner.is_complete())
            .field("is_cancelled", &(bits & state::CANCELLED != 0))
            .finish()
    }
}
