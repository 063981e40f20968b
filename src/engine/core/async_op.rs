//! Asynchronous operations whose closure has returned a future: the poll of a ready one, and its wakers.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::engine_core::EngineCore;
use crate::engine::order::{Grant, Granted, OpFuture, Outcome, PendingFuture, Rest, Runnable, Scope, Work};
use crate::error::shielded;
use crate::runtime::{AsyncContext, Parking, inside_poll};
use crate::sync::{Mutex, lock};

pub(super) struct AsyncOp {
    engine: EngineRef,
    number: u32,
    /// The flow that it belongs to.
    scope: Option<Arc<Scope>>,
    parking: Parking,
    /// None during a poll, and once the future is done or dropped.
    future: Mutex<Option<OpFuture>>,
    /// The operation, while its future is parked.
    parked: Mutex<Option<Runnable>>,
    context: AsyncContext,
}

impl AsyncOp {
    /// Gives an operation its future. The caller makes it ready again.
    pub(super) fn begin(
        core: &Arc<EngineCore>,
        number: u32,
        mut operation: Granted<'_>,
        future: OpFuture,
        context: AsyncContext,
    ) {
        let async_op = Arc::new(Self {
            engine: EngineRef::new(core),
            number,
            scope: operation.scope().cloned(),
            parking: Parking::new(),
            future: Mutex::new(Some(future)),
            parked: Mutex::new(None),
            context,
        });
        lock(&core.async_ops.0).insert(number, async_op.clone());
        if let Some(scope) = operation.scope() {
            scope.add_future(number, async_op.clone());
        }
        operation.set_begun();
        operation.set_body(async_op.resume());
    }

    /// Returns the operation's new body, which polls the future.
    fn resume(self: Arc<Self>) -> impl Work {
        let mut resume = Resume(Some(self));
        move |grant: Grant<'_>, rest: &mut Rest| {
            let async_op = resume.0.take().expect("it is there until it is run");
            match async_op.poll(grant) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => {
                    *rest = Rest::Pending(async_op);
                    Ok(())
                }
            }
        }
    }

    fn poll(self: &Arc<Self>, grant: Grant<'_>) -> Poll<Outcome> {
        self.parking.begin();
        let of_engine = |core: &Arc<EngineCore>| (core.is_closed_relaxed(), core.executor, core.may_have_others());
        let (is_closed, executor, has_others) = self.engine.with(of_engine).unwrap_or((true, 0, true));
        if is_closed {
            // `perform` has not seen that the engine is closed. The operation is made ready again, and ends.
            self.parking.keep_awake();
        }
        let Some(mut future) = lock(&self.future).take() else {
            // `perform` has not seen that the flow is cancelled. The operation is made ready again, and ends.
            self.parking.keep_awake();
            return Poll::Pending;
        };
        let waker = Waker::from(self.clone());
        let polled = inside_poll(executor, || {
            self.context.poll(has_others, || future.as_mut().poll(&mut Context::from_waker(&waker), grant))
        });
        match polled {
            Ok(Poll::Pending) => {
                *lock(&self.future) = Some(future);
                Poll::Pending
            }
            Ok(ready) => {
                let dropped = shielded(|| drop(future));
                dropped.map_or_else(|message| panic!("dropping its future: {message}"), |()| ready)
            }
            Err(panic) => {
                // Two panics at once would abort the process.
                let _ = shielded(|| drop(future));
                resume_unwind(panic)
            }
        }
    }

    /// Calls `add` with the parked operation, which adds it to the ready ones. Ends it if its flow is
    /// cancelled: there may be no further poll of the engine.
    fn unpark(&self, add: impl FnOnce(&Arc<EngineCore>, Runnable)) {
        let operation = lock(&self.parked).take();
        self.engine.with(|core| {
            if let Some(operation) = operation {
                add(core, operation);
            }
            // The lock of the ready lists orders this and a cancel: either this thread sees the cancel, or
            // the cancel finds the operation in the lists.
            if let Some(scope) = self.scope.as_ref().filter(|scope| scope.is_cancelled()) {
                core.sweep(scope, false);
            }
        });
    }
}

impl PendingFuture for AsyncOp {
    fn park(self: Arc<Self>, mut operation: Runnable) {
        let is_there = self.engine.with(|core| core.slots.granted(&mut operation).set_body(self.clone().resume()));
        debug_assert!(is_there.is_some(), "the thread that runs the operation keeps the engine");
        // Must precede `try_park`: a waker may take it at once.
        *lock(&self.parked) = Some(operation);
        if !self.parking.try_park() {
            self.unpark(|core, operation| core.ready.push(&core.slots, operation));
        }
    }

    fn abandon(self: Arc<Self>) {
        let future = lock(&self.future).take();
        let _ = shielded(|| drop(future));
        self.wake();
    }
}

impl Wake for AsyncOp {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
        // This may hold the last reference to the engine: dropping that drops foreign values.
        let _ = shielded(|| drop(self));
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.parking.wake() {
            self.unpark(EngineCore::make_ready);
        }
    }
}

/// The body of an operation from its future's first poll on. Its drop drops the future, even if wakers are
/// left.
struct Resume(Option<Arc<AsyncOp>>);

impl Drop for Resume {
    fn drop(&mut self) {
        let Some(async_op) = self.0.take() else { return };
        // The flow's list refers to the operation, and the operation to its flow: this breaks the cycle.
        async_op.scope.iter().for_each(|scope| scope.remove_future(async_op.number));
        let future = lock(&async_op.future).take();
        drop(future);
    }
}

/// A pending operation's reference to its engine. It is counted only if workers or other flows continue with
/// the operation when no handle is left. Otherwise engine and operation would keep each other alive.
enum EngineRef {
    Counted(Arc<EngineCore>),
    /// The engine and its pending operations are dropped with its last handle, because nothing can poll them
    /// any more.
    Uncounted(Weak<EngineCore>),
}

impl EngineRef {
    fn new(core: &Arc<EngineCore>) -> Self {
        if core.is_kept { Self::Counted(core.clone()) } else { Self::Uncounted(Arc::downgrade(core)) }
    }

    /// Calls `act` with the engine, if it is there.
    fn with<R>(&self, act: impl FnOnce(&Arc<EngineCore>) -> R) -> Option<R> {
        match self {
            Self::Counted(core) => Some(act(core)),
            Self::Uncounted(core) => {
                let core = core.upgrade()?;
                let done = act(&core);
                // This may be the last reference: dropping the engine drops foreign values.
                let _ = shielded(|| drop(core));
                Some(done)
            }
        }
    }
}

/// The asynchronous operations of an engine that have begun.
#[derive(Default)]
pub(super) struct AsyncOps(Mutex<BTreeMap<u32, Arc<AsyncOp>>>);

impl AsyncOps {
    pub(super) fn remove(&self, number: u32) {
        let removed = lock(&self.0).remove(&number);
        let _ = shielded(|| drop(removed));
    }

    /// Returns the data of the waker and the number of each operation whose future is pending.
    pub(super) fn parked(&self) -> Vec<(*const (), u32)> {
        let all = lock(&self.0);
        let parked = all.values().filter(|async_op| lock(&async_op.parked).is_some());
        parked.map(|async_op| (Arc::as_ptr(async_op).cast(), async_op.number)).collect()
    }

    /// Wakes all operations: they are polled, or end if the engine is closed.
    pub(super) fn wake_all(&self) {
        let all: Vec<Arc<AsyncOp>> = lock(&self.0).values().cloned().collect();
        all.into_iter().for_each(Wake::wake);
    }
}
