//! Asynchronous operations whose closure has returned a future: what a ready one polls, and what its wakers
//! do.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use super::engine_core::EngineCore;
use super::engine_ref::EngineRef;
use crate::engine::order::{Abandon, Grant, OpFuture, Park, Rest, Runnable, Scope, Work};
use crate::error::{BoxError, shielded};
use crate::runtime::{AsyncContext, Parking};
use crate::sync::{Mutex, lock};

pub(super) struct AsyncOp {
    engine: EngineRef,
    number: u32,
    /// The flow that it belongs to.
    scope: Option<Arc<Scope>>,
    parking: Parking,
    /// None while it is polled, and once it is over.
    future: Mutex<Option<OpFuture>>,
    /// The operation, while it is parked.
    parked: Mutex<Option<Runnable>>,
    context: AsyncContext,
    /// When the operation began, for an observer.
    started: Option<Instant>,
}

impl AsyncOp {
    /// It is ready already.
    pub(super) fn new(
        core: &Arc<EngineCore>,
        number: u32,
        scope: Option<Arc<Scope>>,
        future: OpFuture,
        context: AsyncContext,
        started: Option<Instant>,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine: EngineRef::new(core),
            number,
            scope,
            parking: Parking::new(),
            future: Mutex::new(Some(future)),
            parked: Mutex::new(None),
            context,
            started,
        })
    }

    /// Returns the body that the operation has from now on.
    pub(super) fn resume(self: Arc<Self>) -> Resume {
        Resume(Some(self))
    }

    fn poll(self: &Arc<Self>, grant: Grant<'_>) -> Poll<Result<(), BoxError>> {
        self.parking.begin();
        if self.engine.with(|core| core.is_closed_relaxed()).unwrap_or(true) {
            // The operation is to be ended, and `perform` has not seen that the engine is closed.
            self.parking.keep_awake();
        }
        let Some(mut future) = lock(&self.future).take() else {
            // Its flow was cancelled, and `perform` has not seen that: it is to be ended, too.
            self.parking.keep_awake();
            return Poll::Pending;
        };
        let waker = Waker::from(self.clone());
        match self.context.poll(|| future.as_mut().poll(&mut Context::from_waker(&waker), grant)) {
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

    /// Makes the parked operation ready.
    fn make_ready(&self) {
        let operation = lock(&self.parked).take();
        self.engine.with(|core| {
            operation.into_iter().for_each(|operation| core.make_ready(operation));
            self.end_if_over(core);
        });
    }

    /// Ends a ready operation whose flow is over: there may be no further poll of the engine.
    fn end_if_over(&self, core: &Arc<EngineCore>) {
        // Of "make it ready, load whether the flow is cancelled" and "cancel the flow, look for what is
        // ready" one side sees the other, by the lock of the ready lists.
        if let Some(scope) = self.scope.as_ref().filter(|scope| scope.is_cancelled()) {
            core.sweep(&[scope]);
        }
    }
}

impl Park for AsyncOp {
    fn park(self: Arc<Self>, mut operation: Runnable) {
        let is_there = self.engine.with(|core| core.slots.granted(&mut operation).set_body(self.clone().resume()));
        debug_assert!(is_there.is_some(), "the thread that runs the operation keeps the engine");
        // Must precede `park`: a waker takes it.
        *lock(&self.parked) = Some(operation);
        if self.parking.park() {
            let operation = lock(&self.parked).take();
            self.engine.with(|core| {
                operation.into_iter().for_each(|operation| core.ready.push(&core.slots, operation));
                self.end_if_over(core);
            });
        }
    }
}

impl Abandon for AsyncOp {
    fn abandon(self: Arc<Self>) {
        let future = lock(&self.future).take();
        let _ = shielded(|| drop(future));
        self.wake();
    }
}

impl Wake for AsyncOp {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
        // This may be the last that holds the engine: what its drop drops is foreign.
        let _ = shielded(|| drop(self));
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.parking.wake() {
            self.make_ready();
        }
    }
}

/// The body of an operation from its future's first poll on. Dropped, it drops the future, whichever wakers
/// are left.
pub(super) struct Resume(Option<Arc<AsyncOp>>);

impl Work for Resume {
    fn run(mut self, grant: Grant<'_>, rest: &mut Rest) -> Result<(), BoxError> {
        let async_op = self.0.take().expect("it is there until it is run");
        // First, because the poll may panic.
        *rest = Rest::Ended(async_op.started);
        match async_op.poll(grant) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                *rest = Rest::Pending(async_op);
                Ok(())
            }
        }
    }
}

impl Drop for Resume {
    fn drop(&mut self) {
        let Some(async_op) = self.0.take() else { return };
        // The flow's list has a share of it, and it has one of the flow: this breaks the cycle.
        async_op.scope.iter().for_each(|scope| scope.remove_future(async_op.number));
        let future = lock(&async_op.future).take();
        drop(future);
    }
}

/// The asynchronous operations of an engine that have begun.
#[derive(Default)]
pub(super) struct AsyncOps(Mutex<BTreeMap<u32, Arc<AsyncOp>>>);

impl AsyncOps {
    pub(super) fn add(&self, async_op: &Arc<AsyncOp>) {
        lock(&self.0).insert(async_op.number, async_op.clone());
    }

    pub(super) fn remove(&self, number: u32) {
        let removed = lock(&self.0).remove(&number);
        let _ = shielded(|| drop(removed));
    }

    /// Returns those whose futures are pending: the data of the wakers that they are polled with, and their
    /// numbers.
    pub(super) fn parked(&self) -> Vec<(*const (), u32)> {
        let all = lock(&self.0);
        let parked = all.values().filter(|async_op| lock(&async_op.parked).is_some());
        parked.map(|async_op| (Arc::as_ptr(async_op).cast(), async_op.number)).collect()
    }

    /// Wakes all, to be polled, or ended if the engine is closed.
    pub(super) fn wake_all(&self) {
        let all: Vec<Arc<AsyncOp>> = lock(&self.0).values().cloned().collect();
        all.into_iter().for_each(Wake::wake);
    }
}
