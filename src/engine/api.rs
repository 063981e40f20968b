//! Engines: where operations are pushed.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::blocked::Blocked;
use super::core::{EngineCore, EngineDrain, Failures, Lanes, Push, Pushed};
use super::op::{Bulk, Op, Stream, Var};
use super::order::{OPERATIONS_MAX, Scope, Target, TypedVariable, Unpushed};
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Kind, Refused, Result};
use crate::name::Name;
use crate::plan::Placement;
use crate::runtime::{Core, Idle, Keeper};
use crate::value::args::Data;

/// How many operations may be pending if nobody says.
const PENDING_MAX: usize = 65_536;
/// How many streams of a device are used at most.
const STREAMS: usize = 8;

/// Runs operations on variables, as parallel as what they read and write allows, with the result of running
/// them one after the other as they were pushed.
///
/// Each variable has a queue, first come, first served: reads that stand side by side go together, a write
/// goes alone. An operation stands in the queues of all its variables, and runs when it is its turn in each.
/// After MXNet's dependency engine. Operations run on the workers of an executor, or, if that has none, in
/// the thread that pushes.
///
/// On a simulated executor ([`Executor::sim`](crate::Executor::sim)) operations run one at a time, each drawn
/// among those that are ready, while somebody awaits something of the engine.
///
/// Cheap to clone; clones are one engine, and keep the executor. When engine and variables are dropped, what
/// is pending runs all the same, as long as somebody else keeps the executor: what is pending when that ends
/// fails with an error for which [`Error::is_shut_down`] is true.
///
/// Without workers, inline or simulated, only polls of something of the engine run what is pending. So when
/// engine, variables and their futures are dropped, pending operations are dropped, too, with their futures
/// and values. An operation whose future itself holds the engine or a variable of it stays until the executor
/// is shut down.
#[derive(Clone)]
pub struct Engine {
    pub(super) core: Arc<EngineCore>,
    /// None: a flow's.
    own: Option<Own>,
}

/// What who made an engine has of it, and its flows have not.
#[derive(Clone)]
struct Own {
    keeper: Keeper,
    /// Kept while there is a handle that can ask for failures.
    drain: Arc<EngineDrain>,
}

/// Settings of an [`Engine`]; made by [`Engine::builder`].
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

    /// Returns the engine that flows share.
    pub(crate) fn build_for_flows(self) -> Result<Arc<EngineCore>> {
        self.max_pending(OPERATIONS_MAX).core_of(None)
    }

    /// Sets how many operations may be pending, from 1 to 16,777,214. The default is 65,536.
    pub fn max_pending(mut self, operations: usize) -> Self {
        self.max_pending = operations;
        self
    }

    /// Sets how streams are chosen for kernels, on an executor with devices that queue work. The default is
    /// [`Placement::Online`].
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets on how many streams of a device kernels may be that do not ask for one, from 1. The default, and
    /// the most that a CUDA device has, is 8.
    pub fn max_streams(mut self, streams: usize) -> Self {
        self.max_streams = streams;
        self
    }

    /// Returns the engine.
    ///
    /// # Errors
    /// If a setting is out of range, or the executor is shut down or has 256 engines already.
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
    /// Returns a new variable. The name is for errors and need not be unique.
    pub fn var<T: Data>(&self, name: impl Into<Name>, value: T) -> Var<T> {
        let typed = TypedVariable::new(name.into(), self.core.address(), value);
        Var::new(self.core.clone(), typed)
    }

    /// Returns an engine that does not keep its executor.
    pub(crate) fn of_core(core: Arc<EngineCore>) -> Self {
        Self { core, own: None }
    }

    /// The same engine, for who does not keep the executor.
    pub(crate) fn without_executor(&self) -> Self {
        Self { core: self.core.clone(), own: None }
    }

    /// Returns the core of the executor, if this engine keeps it.
    pub(crate) fn executor(&self) -> Option<&Arc<Core>> {
        self.own.as_ref().map(|own| own.keeper.core())
    }

    /// Whether there are devices that queue work.
    pub(crate) fn has_devices(&self) -> bool {
        self.core.lanes.is_some()
    }

    /// Without workers: ends the operations of a flow that is over, if they were cancelled, and runs pending
    /// frees.
    pub(crate) fn sweep(&self, scope: &Scope) {
        self.core.sweep_flow(scope);
    }

    /// Pushes an operation of a flow if there is room for it now.
    ///
    /// # Errors
    /// As [`Engine::try_push`], or that the flow has no room.
    #[inline(always)]
    pub(crate) fn push_of(&self, scope: &Arc<Scope>, stream: Option<&Stream>, op: &mut Op<'_>) -> Result<Pushed> {
        let operation = op.unpushed();
        if let Some(stream) = stream {
            stream.put(operation);
        }
        // Most operations are run where they lie, and are never moved. For an observer's errors they need
        // their flow.
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

    /// Returns a new variable without a value: who reads it before it is written gets an error. For what only
    /// operations can make, as the memory of a device.
    pub fn empty_var<T: Data>(&self, name: impl Into<Name>) -> Var<T> {
        let typed = TypedVariable::empty(name.into(), self.core.address());
        Var::new(self.core.clone(), typed)
    }

    /// Pushes an operation: it comes after everything that was pushed before. It acts at once if there is
    /// room: then the future has the operation's handle. Otherwise the future is lazy: it pushes the
    /// operation when it is polled and there is room, and what others push meanwhile may come before it. The
    /// handle may be dropped: the operation runs all the same.
    ///
    /// If a task awaits push after push and never has to wait, the future is sometimes pending once, so that
    /// other tasks run. The operation is pushed by then. In tokio's tasks its budget decides when.
    ///
    /// # Errors
    /// If the operation uses a variable of another engine, takes one that it reads as well, or the executor
    /// is shut down; and if there is no room, and this is awaited inside of an operation of this engine,
    /// which may itself be what stands in the way. If this is dropped and never awaited then [`Engine::idle`]
    /// tells why the operation was refused.
    ///
    /// # Cancellation
    /// Dropped while it waits for room, the operation was not pushed. What was pushed stays so.
    #[inline(always)]
    pub fn push<'v>(&'v self, op: Op<'v>) -> Push<'v> {
        // It is taken out in any case.
        Push::new(&self.core, ManuallyDrop::new(op).unpushed())
    }

    /// Pushes an operation if there is room for it. It acts at once and returns the operation's handle.
    ///
    /// # Errors
    /// A [`Refused`] has the operation, and an error for which [`Error::is_busy`] is true, or as
    /// [`Engine::push`].
    pub fn try_push<'v>(&self, mut op: Op<'v>) -> Result<Pushed, Refused<Op<'v>>> {
        match self.core.try_push(op.unpushed()) {
            Ok(accepted) => Ok(Pushed::new(&self.core, accepted)),
            Err(error) => Err(Refused::new(error, op)),
        }
    }

    /// Collects small operations, and pushes so many at a time as one.
    pub fn bulk(&self, operations_max: usize) -> Bulk<'_> {
        Bulk::new(self, operations_max)
    }

    /// Returns a stream, of the first device if the executor has several.
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
    /// If the executor has devices with queues, and not this one. On hosts all are the same.
    pub fn stream_of(&self, device: u32) -> Result<Stream> {
        let turn = self.var("a stream", ());
        let Some(lanes) = &self.core.lanes else { return Ok(Stream::new(turn, Target { device, lane: None })) };
        if device as usize >= lanes.device_count() {
            return Err(Kind::NoSuchDevice { device, count: lanes.device_count() }.into());
        }
        let lane = Some(lanes.pin(device));
        Ok(Stream::new(turn, Target { device, lane }))
    }

    /// Waits until nothing is pending.
    ///
    /// # Errors
    /// The oldest failure that was not told here yet:
    ///
    /// - of an operation that writes nothing;
    /// - of the drop of a value that was freed;
    /// - of an operation that was to write something, if neither its handle nor a read told it, and none can
    ///   any more: the handle was dropped, and all that it poisoned was overwritten or freed;
    /// - of an operation that could not begin, because a reader kept the value that it takes, if its handle
    ///   was dropped without telling it.
    ///
    /// What is poisoned still is not told here, nor what was cancelled or shut down. Await it again for the
    /// next. Whoever else waits meanwhile is told it, too. The last one says how many more there were if
    /// there was no room to keep them; they are kept as long as there is an engine, so one that holds an
    /// engine keeps it until it is told.
    ///
    /// Also if it is awaited inside of an operation of this engine.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub fn idle(&self) -> Idle {
        self.own.as_ref().expect("only engines of users are waited for").drain.idle()
    }

    /// Returns the pending operations, and what each waits for: for a person, or a log, where something does
    /// not end.
    ///
    /// It takes the lock of pushes, and the time grows with the number of operations that ever were pending
    /// at once: do not call it in a hot loop.
    ///
    /// # Errors
    /// In a child that was forked from the process of the workers; and if the system forbids `membarrier`
    /// since the executor was built.
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

    /// Returns the number of operations that are pending. [Joined](Op::join) operations are one.
    pub fn pending(&self) -> usize {
        self.core.pending()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("pending", &self.pending()).finish()
    }
}
