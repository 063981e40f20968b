//! Engines: operations are pushed to them.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::blocked::Blocked;
use super::core::{EngineCore, EngineDrain, Failures, Lanes, Push, Pushed};
use super::op::{Bound, Bulk, Op, Stream, Var};
use super::order::{Grant, OPERATIONS_MAX, Scope, Target, TypedVariable, Unpushed, Vars};
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Kind, Refused, Result};
use crate::name::Name;
use crate::plan::Placement;
use crate::runtime::{Core, Idle, Keeper, RunId};
use crate::value::args::{Data, Params};

/// The default of [`EngineBuilder::max_pending`].
const PENDING_MAX: usize = 65_536;
/// The default of [`EngineBuilder::max_streams`].
const STREAMS: usize = 8;

/// Runs operations on variables, in parallel as far as their reads and writes allow. The result is that of
/// all operations one after the other, in the order in which they were pushed.
///
/// Each variable has a queue of requests, first come, first served. Neighbouring reads are granted together,
/// a write is granted alone. An operation runs when all its requests are granted. MXNet's dependency engine
/// has the same rules.
///
/// A clone is a further handle to the same engine.
///
/// # Where operations run
/// On the workers of the executor, cheap ones in the push
/// ([`poll_budget`](crate::exec::ExecutorBuilder::poll_budget)). Without workers they run in the thread that
/// pushes, and in polls of the engine's futures. On a simulated executor
/// ([`Executor::sim`](crate::Executor::sim)) they run one at a time in such polls, and each is drawn from
/// those that are ready.
///
/// # Lifetime
/// Handles to an engine keep its executor alive. When the handles to the engine and to its variables are
/// dropped, pending operations still run, if something else keeps the executor alive. When the executor shuts
/// down, they fail with an error for which [`Error::is_shut_down`] is true.
///
/// An executor without workers, inline or simulated, runs pending operations only in polls of the engine's
/// futures. When all handles and futures of the engine are dropped, it drops the pending operations, too,
/// with their futures and values. An operation whose own future holds the engine, or a variable of it, stays
/// until the executor shuts down.
///
/// # Examples
/// The first two operations may run at the same time. The third one waits for both:
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::new(&Executor::host()?)?;
/// let (x, y, sum) = (engine.var("x", 1), engine.var("y", 2), engine.var("sum", 0));
/// engine.push(Op::task("double", &x, &x, |x: &i32| x * 2)).await?;
/// engine.push(Op::task("negate", &y, &y, |y: &i32| -y)).await?;
/// engine.push(Op::task("add", (&x, &y), &sum, |x: &i32, y: &i32| x + y)).await?;
/// assert_eq!(*sum.read().await?, 0);
/// # Ok::<(), anabranch::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(super) core: Arc<EngineCore>,
    /// None for an engine of flows.
    own: Option<Own>,
}

/// The parts of a user's engine that an engine of flows lacks.
#[derive(Clone)]
struct Own {
    keeper: Keeper,
    /// Kept while there is a handle that can ask for failures.
    drain: Arc<EngineDrain>,
}

/// Settings of an [`Engine`]; made by [`Engine::builder`].
///
/// # Examples
/// An engine that accepts one operation at a time:
/// ```
/// use anabranch::{Engine, Executor, Op};
///
/// # futures::executor::block_on(async {
/// let engine = Engine::builder(&Executor::host()?).max_pending(1).build()?;
/// let (send, receive) = futures::channel::oneshot::channel::<()>();
/// let wait = Op::future("wait", (), (), || async move { Ok(receive.await?) });
/// let waits = engine.try_push(wait)?;
/// let refused = engine.try_push(Op::task("next", (), (), || ())).unwrap_err();
/// assert!(refused.error().is_busy());
/// # send.send(()).unwrap();
/// # waits.await
/// # }).unwrap();
/// ```
pub struct EngineBuilder {
    keeper: Keeper,
    max_pending: usize,
    placement: Placement,
    max_streams: usize,
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("max_pending", &self.max_pending)
            .field("placement", &self.placement)
            .field("max_streams", &self.max_streams)
            .finish_non_exhaustive()
    }
}

impl EngineBuilder {
    pub(crate) fn new(keeper: &Keeper) -> Self {
        Self { keeper: keeper.clone(), max_pending: PENDING_MAX, placement: Placement::default(), max_streams: STREAMS }
    }

    /// Builds the engine that flows share.
    pub(crate) fn build_for_flows(self) -> Result<Arc<EngineCore>> {
        self.max_pending(OPERATIONS_MAX).core_of(None)
    }

    /// Sets the number of operations that may be pending, from 1 to 16,777,214. The default is 65,536.
    pub fn max_pending(mut self, operations: usize) -> Self {
        self.max_pending = operations;
        self
    }

    /// Sets the way in which streams are chosen for kernels, on an executor with devices that queue work. The
    /// default is [`Placement::Online`].
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets the number of streams of a device for kernels that do not name one, at least 1. The default is 8,
    /// the most that a CUDA device has.
    pub fn max_streams(mut self, streams: usize) -> Self {
        self.max_streams = streams;
        self
    }

    /// Builds the engine.
    ///
    /// # Errors
    /// If a setting is out of range, if the executor is shut down, or if it has 256 engines already.
    pub fn build(self) -> Result<Engine> {
        let got = self.max_pending;
        if !(1..=OPERATIONS_MAX).contains(&got) {
            return Err(Kind::Setting { what: "max_pending", must: "from 1 to 16777214", got }.into());
        }
        let got = self.max_streams;
        if got == 0 {
            return Err(Kind::Setting { what: "max_streams", must: "1 or more", got }.into());
        }
        let failures = Arc::<Failures>::default();
        let engine = self.core_of(Some(&failures))?;
        let drain = Arc::new(EngineDrain { core: engine.clone(), failures });
        Ok(Engine { core: engine, own: Some(Own { keeper: self.keeper, drain }) })
    }

    fn core_of(&self, owner: Option<&Arc<Failures>>) -> Result<Arc<EngineCore>> {
        let max_streams = u32::try_from(self.max_streams).unwrap_or(u32::MAX);
        let core = self.keeper.core();
        let lanes = core.devices.as_ref().map(|devices| Lanes::new(devices, self.placement, max_streams));
        EngineCore::new(core, self.max_pending, lanes, owner)
    }
}

impl Engine {
    /// Returns a new variable. The name appears in errors, and need not be unique.
    pub fn var<T: Data>(&self, name: impl Into<Name>, value: T) -> Var<T> {
        self.var_of(name.into(), Some(value))
    }

    /// Returns a variable that was written once.
    pub(crate) fn written_var<T: Data>(&self, name: Name, value: Arc<T>) -> Var<T> {
        Var::new(self.core.clone(), TypedVariable::written(name, self.core.address(), value))
    }

    fn var_of<T: Data>(&self, name: Name, value: Option<T>) -> Var<T> {
        Var::new(self.core.clone(), TypedVariable::new(name, self.core.address(), value))
    }

    /// Returns a handle that does not keep the executor alive.
    pub(crate) fn of_core(core: Arc<EngineCore>) -> Self {
        Self { core, own: None }
    }

    /// Returns a handle to the same engine that does not keep the executor alive.
    pub(crate) fn without_executor(&self) -> Self {
        Self { core: self.core.clone(), own: None }
    }

    /// Returns the core of the executor, if this handle keeps it alive.
    pub(crate) fn executor(&self) -> Option<&Arc<Core>> {
        self.own.as_ref().map(|own| own.keeper.core())
    }

    /// Returns true if there are devices that queue work.
    pub(crate) fn has_devices(&self) -> bool {
        self.core.lanes.is_some()
    }

    /// Returns what `look` makes of the reads, if nothing pending uses them: see [`Bound::look`]. With an
    /// observer, operations read.
    pub(crate) fn look<P: Params<Vars>, R>(
        &self,
        reads: &Bound<'_, P>,
        look: impl FnOnce(&P, Grant<'_>) -> Result<R>,
    ) -> Option<R> {
        if self.core.needs_attention() { None } else { reads.look(&self.core, look) }
    }

    /// Ends the ready operations of a flow that is over, if it is cancelled. See [`EngineCore::sweep`].
    pub(crate) fn sweep(&self, scope: &Scope) {
        self.core.sweep(scope, true);
    }

    /// Returns the number by which observers know the operations of the engine that are of no flow.
    pub fn id(&self) -> RunId {
        self.core.id.get()
    }

    /// Pushes an operation of a flow if there is room for it now.
    ///
    /// # Errors
    /// Those of [`Engine::try_push`], and one if the flow has too many pending operations.
    #[inline(always)]
    pub(crate) fn push_of(&self, scope: &Arc<Scope>, stream: Option<&Stream>, op: &mut Op<'_>) -> Result<Pushed> {
        let operation = op.unpushed();
        if let Some(stream) = stream {
            stream.put(operation);
        }
        // Most operations are run in place, and are never moved. With an observer they need their flow, which
        // gets the observer's errors.
        match if scope.is_cancelled() || self.core.needs_attention() { None } else { self.core.run_now(operation) } {
            Some(Ok(Ok(()))) => Ok(Pushed::ended(Ok(()))),
            Some(outcome) => {
                outcome.map(|failed| Pushed::ended(failed.inspect_err(|error| self.core.report_to_flow(scope, error))))
            }
            None => self.push_of_later(scope, operation),
        }
    }

    #[inline(never)]
    fn push_of_later(&self, scope: &Arc<Scope>, operation: &mut Unpushed<'_>) -> Result<Pushed> {
        scope.has_room()?;
        operation.get_mut().into_iter().for_each(|operation| operation.set_scope(scope.clone()));
        self.core.try_push(operation).map(|accepted| Pushed::new(&self.core, accepted))
    }

    /// Returns a new variable without a value. A read before the first write is an error. It is meant for
    /// values that only operations can make, such as memory of a device.
    pub fn empty_var<T: Data>(&self, name: impl Into<Name>) -> Var<T> {
        self.var_of(name.into(), None)
    }

    /// Pushes an operation. It comes after all operations that were pushed before.
    ///
    /// If there is room, this call pushes it, even if the future is never awaited. Otherwise the future waits
    /// for room and then pushes it. Other operations that are pushed meanwhile may come before it.
    ///
    /// In a task that pushes in a loop the future is sometimes pending once, so that other tasks run. The
    /// operation is pushed by then. In a task of tokio, the task's budget decides when that happens.
    ///
    /// # Errors
    /// - The operation uses a variable of another engine, or asks for a device that the executor lacks.
    /// - It takes the value of a variable that it reads as well.
    /// - The executor is shut down.
    /// - There is no room, and this is awaited inside of an operation of this engine, which may be the one
    ///   that has to end first; or inside of a task of the executor.
    ///
    /// If the future is dropped unpolled, [`Engine::idle`] returns the error of a refused operation.
    ///
    /// # Cancellation
    /// If the future is dropped while it waits for room, the operation is not pushed. An operation that is
    /// pushed already stays pushed.
    #[inline(always)]
    pub fn push<'v>(&'v self, op: Op<'v>) -> Push<'v> {
        // It is taken out in any case.
        Push::new(&self.core, ManuallyDrop::new(op).unpushed())
    }

    /// Pushes an operation if there is room for it. It acts at once and returns the operation's handle.
    ///
    /// # Errors
    /// Gives the operation back. If there is no room, [`Error::is_busy`] is true for the error. The others
    /// are those of [`Engine::push`].
    pub fn try_push<'v>(&self, mut op: Op<'v>) -> Result<Pushed, Refused<Op<'v>>> {
        match self.core.try_push(op.unpushed()) {
            Ok(accepted) => Ok(Pushed::new(&self.core, accepted)),
            Err(error) => Err(Refused::new(error, op)),
        }
    }

    /// Returns a [`Bulk`], which collects small operations and pushes each `operations_max` of them as one.
    pub fn bulk(&self, operations_max: usize) -> Bulk<'_> {
        Bulk::new(self, operations_max)
    }

    /// Returns a stream, whose operations run in the order of their pushes. If the executor has several
    /// devices, it is a stream of the first one.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Engine, Executor, Op};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::new(&Executor::host()?)?;
    /// let log = engine.stream();
    /// for line in ["one", "two", "three"] {
    ///     // They use no common variable, and are printed in this order.
    ///     engine.push(Op::task("print", (), (), move || println!("{line}")).on(&log)).await?;
    /// }
    /// engine.idle().await?;
    /// # Ok::<(), anabranch::Error>(()) }).unwrap();
    /// ```
    pub fn stream(&self) -> Stream {
        self.stream_of(0).expect("there is a first device, or none")
    }

    /// Returns a stream of a device, counted from 0.
    ///
    /// # Errors
    /// If the executor has devices that queue work, but none of this number. Otherwise any number is valid.
    pub fn stream_of(&self, device: u32) -> Result<Stream> {
        let turn = self.var("a stream", ());
        let Some(lanes) = &self.core.lanes else { return Ok(Stream::new(turn, Target { device, lane: None })) };
        if device as usize >= lanes.device_count() {
            return Err(Kind::NoSuchDevice { device, count: lanes.device_count() }.into());
        }
        let lane = Some(lanes.pin(device));
        Ok(Stream::new(turn, Target { device, lane }))
    }

    /// Waits until no operation is pending.
    ///
    /// # Errors
    /// The oldest failure that was not reported yet. Each wait returns one; await `idle` again for the next.
    /// Waits that overlap may return the same one. It is a failure of:
    ///
    /// - an operation that writes nothing, also if its handle returned it;
    /// - the destructor of a value that was freed;
    /// - an operation that writes, if its handle was dropped without an await, and all variables that it
    ///   poisoned were overwritten or freed unread;
    /// - an operation that could not begin, because a reader kept the value that it takes, if its handle was
    ///   dropped without an await.
    ///
    /// Failures whose variables are still poisoned are not returned here, nor are cancellations and
    /// shutdowns. An engine keeps 1,024 failures; the last of them says how many more there were. An error
    /// that holds a handle to the engine keeps the engine alive until it is returned.
    ///
    /// Inside of an operation of this engine the wait is an error: that operation is itself pending.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn idle(&self) -> Idle {
        self.own.as_ref().expect("only engines of users are waited for").drain.idle()
    }

    /// Returns the pending operations, and what each waits for. It helps to find out why operations do not
    /// end. A push that waits for room is no operation yet.
    ///
    /// Pushes wait meanwhile, and the time grows with the largest number of operations that were ever pending
    /// at once. So do not call it in a hot loop.
    ///
    /// # Errors
    /// In a child process that was forked from that of the workers, and if the system has forbidden
    /// `membarrier` since the executor was built.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Engine, Executor, Op};
    ///
    /// # futures::executor::block_on(async {
    /// let engine = Engine::new(&Executor::host()?)?;
    /// let x = engine.var("x", 1);
    /// let (send, receive) = futures::channel::oneshot::channel::<()>();
    /// engine.push(Op::future("wait", (), &x, async move || Ok(receive.await.map(|()| 2)?))).await?;
    /// engine.push(Op::task("double", &x, &x, |x: &i32| x * 2)).await?;
    /// println!("{}", engine.blocked()?);
    /// # send.send(()).unwrap();
    /// # engine.idle().await
    /// # }).unwrap();
    /// ```
    ///
    /// ```text
    /// 2 pending operations
    /// 0 'wait' waits for something outside of the engine
    /// 1 'double' waits for variable 'x' behind 0 'wait'
    /// ```
    pub fn blocked(&self) -> Result<Blocked> {
        let (seen, futures) = self.core.inspect()?;
        Ok(Blocked::new(&seen, &futures))
    }

    /// Returns the number of pending operations. [Joined](Op::join) operations count as one. Some that have
    /// just ended may still count: together at most a 64th of the engine's `max_pending`.
    pub fn pending(&self) -> usize {
        self.core.pending()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("pending", &self.pending()).finish()
    }
}
