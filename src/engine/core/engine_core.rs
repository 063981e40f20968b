//! The core of an engine: operations enter the queues of their variables, are run, and end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::async_op::{AsyncOp, AsyncOps};
use super::failures::Failures;
use super::handles::Handles;
use super::lanes::Lanes;
use super::observed::ObservedEngine;
use super::pace::Pace;
use super::sites::Sites;
use crate::device::host::Origin;
use crate::device::sanitize::Sanitizer;
use crate::engine::order::{
    Batch, Entering, Exclusive, FREED_MAX, FreeSlots, Granted, Key, Left, Operation, Ready, Rest, Role, Runnable, Slots,
    Unpushed, Wakes,
};
use crate::error::{Error, Kind, Result};
use crate::runtime::{Core, Lane, LazyId, Registration, Visits, is_inside};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Line, Mutex, MutexGuard, Ordering, fence, lock};

/// The executor is shut down.
pub(super) const CLOSED: u32 = 1;
/// There is an observer.
const OBSERVED: u32 = 2;
/// What orders operations is checked.
const CHECKED: u32 = 4;

/// The number of an operation that is in no slot.
pub(super) const NO_SLOT: u32 = u32::MAX;

pub(crate) struct EngineCore {
    pub(super) slots: Slots,
    pub(super) handles: Handles,
    /// Rung when there is room for operations.
    pub(in crate::engine) space: Lane,
    /// Rung when no operation is pending.
    pub(super) idle: Lane,
    /// Without workers: the futures whose polls run operations. Rung when an operation is ready.
    pub(super) drivers: Lane,
    pub(super) async_ops: AsyncOps,
    pub(super) ready: Ready,
    /// Exclusive access to the engine, which threads take in turn if it has no workers.
    pub(super) exclusive: Exclusive,
    pub(in crate::engine) pace: Pace,
    /// What operations cost.
    pub(super) sites: Sites,
    /// The address of the executor.
    pub(super) executor: usize,
    /// The visits of workers that go on.
    pub(super) visits: Arc<Visits>,
    /// The number of idle workers that check for new operations, and need not be called.
    pub(super) looking: Line<AtomicU64>,
    pub(in crate::engine) workers: u64,
    pub(super) is_simulated: bool,
    /// The lanes of kernels, if the executor has devices that queue work. Then there are workers.
    pub(in crate::engine) lanes: Option<Lanes>,
    /// On a simulated executor: whether a poll runs operations now.
    pub(super) is_simulating: AtomicBool,
    /// None once the executor is shut down and nothing is pending (see `leave_if_over`).
    pub(super) registration: Mutex<Option<Registration<Self>>>,
    /// The bits [`CLOSED`], [`OBSERVED`] and [`CHECKED`], so that one load is enough for nearly all
    /// operations.
    pub(super) attention: AtomicU32,
    pub(in crate::engine) id: LazyId,
    /// If there are observers.
    pub(super) observed: Option<ObservedEngine>,
    /// What checks the order of a simulated engine, and the number of kernels so far.
    pub(super) sanitizer: Option<Arc<Sanitizer>>,
    pub(super) kernels: AtomicU64,
    /// Whether pending asynchronous operations keep the engine alive without a handle, because workers or
    /// other flows continue with them.
    pub(super) is_kept: bool,
    /// The process of the executor's threads.
    pub(super) origin: Origin,
    pub(in crate::engine) max_pending: usize,
    freed_max: usize,
    /// Dropped with the last handle that can ask for failures.
    pub(super) failures: Weak<Failures>,
}

pub(in crate::engine) enum Accepted {
    /// It was run in place.
    Ended(Result<()>),
    Pending(Key),
}

impl EngineCore {
    /// Returns a new engine. An engine of a user has an owner; the one that flows share has none.
    ///
    /// # Errors
    /// If the executor is shut down, or has no room for an engine.
    pub(in crate::engine) fn new(
        core: &Arc<Core>,
        max_pending: usize,
        lanes: Option<Lanes>,
        owner: Option<&Arc<Failures>>,
    ) -> Result<Arc<Self>> {
        let workers = core.workers();
        let observed = core.observers.clone().map(ObservedEngine::new);
        let sanitizer = core.choices.as_ref().map(|choices| choices.sanitizer.clone());
        let (is_observed, is_checked) = (observed.as_ref().map_or(0, |_| OBSERVED), sanitizer.as_ref().map_or(0, |_| CHECKED));
        let engine = Arc::new(Self {
            slots: Slots::new(core.barrier),
            handles: Handles::new(),
            space: Lane::new(),
            idle: Lane::new(),
            drivers: Lane::new(),
            async_ops: AsyncOps::default(),
            ready: Ready::new(workers == 0),
            exclusive: Exclusive::default(),
            pace: Pace::new(),
            sites: Sites::new(if workers > 0 { core.poll_budget } else { Duration::ZERO }),
            executor: core.address(),
            visits: Arc::new(Visits::new()),
            looking: Line(AtomicU64::new(0)),
            workers: workers as u64,
            is_simulated: core.choices.is_some(),
            lanes,
            is_simulating: AtomicBool::new(false),
            registration: Mutex::new(None),
            attention: AtomicU32::new(is_observed | is_checked),
            id: LazyId::new(),
            observed,
            sanitizer,
            kernels: AtomicU64::new(0),
            is_kept: workers > 0 || owner.is_none(),
            origin: core.origin.clone(),
            max_pending,
            freed_max: (max_pending / 64 / workers.max(1)).clamp(1, FREED_MAX),
            failures: owner.map_or_else(Weak::new, Arc::downgrade),
        });
        *lock(&engine.registration) = Some(Registration::new(core, &engine, &engine.visits)?);
        // The executor may have been shut down meanwhile, before there was a registration to give up.
        engine.leave_if_over();
        Ok(engine)
    }

    /// Returns the address of this engine, to compare engines.
    pub(in crate::engine) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(in crate::engine) fn is_inline(&self) -> bool {
        self.workers == 0 && !self.is_simulated
    }

    /// Returns true once the executor is shut down.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // ORDERING: SeqCst: see `shut_down`.
        self.attention.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// Returns true once the executor is shut down, or if there are observers.
    #[inline]
    pub(super) fn is_closed_or_observed(&self) -> bool {
        // ORDERING: SeqCst: see `shut_down`.
        self.attention.load(Ordering::SeqCst) != 0
    }

    /// As [`EngineCore::is_closed`], where it does no harm to see a shutdown late.
    #[inline]
    pub(super) fn is_closed_relaxed(&self) -> bool {
        // ORDERING: Relaxed: an operation that does not see the shutdown runs.
        self.attention.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Returns true if there is an observer, or the executor is shut down.
    #[inline]
    pub(in crate::engine) fn needs_attention(&self) -> bool {
        // ORDERING: Relaxed: an operation that does not see the shutdown runs.
        self.attention.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of pending operations.
    pub(in crate::engine) fn pending(&self) -> usize {
        self.slots.in_use()
    }

    /// Pushes an operation. On an error the operation stays in its place.
    #[inline(never)]
    pub(in crate::engine) fn try_push(self: &Arc<Self>, operation: &mut Unpushed<'_>) -> Result<Accepted> {
        if operation.get().is_none() {
            return Err(Kind::Spent.into());
        }
        if let Some(fault) = self.fault(operation) {
            return Err(fault);
        }
        self.push_within(self.max_pending, operation).ok_or_else(|| self.busy())
    }

    /// Pushes an operation for workers or polls, if it has no mistake and there is room. Otherwise it stays
    /// in its place.
    #[inline(never)]
    pub(in crate::engine) fn push_plainly(self: &Arc<Self>, operation: &mut Unpushed<'_>) -> Option<Key> {
        let is_plain = !self.is_inline() && operation.get().is_some() && self.fault(operation).is_none();
        if is_plain { self.push_behind(self.max_pending, operation) } else { None }
    }

    /// Runs an operation in place, if nothing is pending; on an engine with workers only a cheap one.
    /// Otherwise returns None. The outer result is an error if the operation has a mistake; then it stays in
    /// its place.
    #[inline(never)]
    pub(in crate::engine) fn run_now(self: &Arc<Self>, operation: &mut Unpushed<'_>) -> Option<Result<Result<()>>> {
        if !self.is_inline() {
            return self.run_now_if_cheap(operation).map(Ok);
        }
        operation.get().filter(|operation| !operation.is_async)?;
        match self.fault(operation) {
            Some(fault) => Some(Err(fault)),
            None => self.run_in_place(operation).map(Ok),
        }
    }

    #[cold]
    pub(in crate::engine) fn busy(&self) -> Error {
        Kind::EngineBusy { max: self.max_pending }.into()
    }

    /// Pushes an operation without a mistake, beyond the bound.
    pub(super) fn push_beyond(self: &Arc<Self>, mut operation: Unpushed<'_>) -> Result<Accepted> {
        let pushed = self.check_process().map(|()| self.push_within(usize::MAX, &mut operation));
        // It is refused in a forked child, and if sixteen million operations are pending. Some of these may
        // use the variable that it frees, so it is leaked.
        std::mem::forget(operation);
        pushed?.ok_or_else(|| self.busy())
    }

    #[inline(always)]
    fn push_within(self: &Arc<Self>, max: usize, operation: &mut Unpushed<'_>) -> Option<Accepted> {
        if self.is_inline()
            && operation.get().is_some_and(|operation| !operation.is_async)
            && let Some(outcome) = self.run_in_place(operation)
        {
            return Some(Accepted::Ended(outcome));
        }
        if let Some(outcome) = self.run_now_if_cheap(operation) {
            return Some(Accepted::Ended(outcome));
        }
        let key = if self.is_inline() { self.push_to_inbox(max, operation) } else { self.push_behind(max, operation) };
        Some(Accepted::Pending(key?))
    }

    /// Pushes an operation for workers or polls.
    #[inline(always)]
    fn push_behind(self: &Arc<Self>, max: usize, operation: &mut Unpushed<'_>) -> Option<Key> {
        let mut batch = Batch::new(&self.slots);
        let key = {
            // Held until the operation is in all queues, so that all queues have one order.
            let mut free = self.slots.free();
            let (entering, key) = self.put(&mut free, max, operation)?;
            if self.exclusive.goes_on() {
                let turn = self.exclusive.post(entering);
                drop(free);
                turn.into_iter().for_each(|turn| self.empty(turn));
                return Some(key);
            }
            batch.enter(entering);
            key
        };
        self.give_back(&mut batch);
        if !batch.ready.is_empty() {
            self.run_if_cheap(&mut batch);
        }
        self.start(&mut batch);
        Some(key)
    }

    #[inline(always)]
    pub(super) fn put(
        &self,
        free: &mut MutexGuard<'_, FreeSlots>,
        max: usize,
        operation: &mut Unpushed<'_>,
    ) -> Option<(Entering, Key)> {
        let scope = operation.get().and_then(Operation::scope).cloned();
        let put = self.slots.put(free, max, operation)?;
        scope.iter().for_each(|scope| scope.begin_one());
        Some(put)
    }

    /// Starts the operations that a batch has made ready.
    #[inline(always)]
    pub(super) fn start(self: &Arc<Self>, batch: &mut Batch<'_>) {
        if !batch.ready.is_empty() {
            self.start_all(batch);
        }
    }

    fn start_all(self: &Arc<Self>, batch: &mut Batch<'_>) {
        self.pass_on(batch);
        self.call();
    }

    /// Has the operations of the ready list run.
    fn call(self: &Arc<Self>) {
        if self.workers == 0 {
            self.call_polls();
        } else if !self.call_workers() && !is_inside(self.address()) {
            // Not inside of an operation: the thread that runs it takes the ready ones next.
            self.run_all(&mut Batch::new(&self.slots));
        }
    }

    /// Adds the operations of a batch to the ready list.
    pub(super) fn pass_on(&self, batch: &mut Batch<'_>) {
        batch.ready.drain(..).for_each(|operation| self.ready.push(&self.slots, operation));
    }

    /// Returns the operation to run next. First come, first served: an operation that this thread has made
    /// ready is next only if the ready list is empty.
    #[inline]
    pub(super) fn next(&self, batch: &mut Batch<'_>) -> Option<Runnable> {
        if !self.ready.is_empty() || batch.ready.len() > 1 {
            self.pass_on(batch);
        }
        batch.next_own().or_else(|| self.ready.pop(&self.slots))
    }

    /// Runs the ready operations in this thread, because no other thread will.
    pub(super) fn run_all(self: &Arc<Self>, batch: &mut Batch<'_>) {
        while let Some(operation) = self.next(batch) {
            self.run(operation, batch);
        }
        self.give_back(batch);
    }

    /// Makes an operation ready that was granted its variables earlier: it waited for something else.
    pub(super) fn make_ready(self: &Arc<Self>, operation: Runnable) {
        self.ready.push(&self.slots, operation);
        self.call();
    }

    /// Leaves the executor once that is shut down and nothing is left to do.
    ///
    /// ```text
    ///  executor     operations   visits    registration
    ///  open         any          any       kept
    ///  shut down    pending      any       kept
    ///  shut down    none         some      kept: the last visit comes here at its end
    ///  shut down    none         none      dropped
    /// ```
    pub(super) fn leave_if_over(&self) {
        // ORDERING: SeqCst pairs with the change in `shut_down`. Either this thread sees that the engine is
        // closed, or the thread that shuts down sees that this operation has ended.
        fence(Ordering::SeqCst);
        if !self.is_closed_relaxed() {
            return;
        }
        let registration = {
            let mut registration = lock(&self.registration);
            // A push that takes the lock later finds no registration, and runs its operation itself.
            let is_over = self.visits.count() == 0 && self.slots.is_unused();
            if is_over { registration.take() } else { None }
        };
        drop(registration);
    }

    /// Returns true if there is room for an operation, or the executor is shut down. Otherwise `space` is
    /// rung when that changes.
    pub(in crate::engine) fn has_space(&self) -> bool {
        self.is_closed() || self.slots.has_space(self.max_pending)
    }

    /// Returns true if nothing is pending. Otherwise `idle` is rung when that changes.
    pub(super) fn is_idle(&self) -> bool {
        let is_empty = self.slots.is_idle();
        self.exclusive.is_over() && is_empty
    }

    /// Runs a ready operation, and ends it unless it has to wait for something else.
    #[inline]
    pub(super) fn run(self: &Arc<Self>, operation: Runnable, batch: &mut Batch<'_>) {
        self.run_by(operation, batch, Self::perform);
    }

    /// Does so, and performs it by this function.
    pub(super) fn run_by(
        self: &Arc<Self>,
        operation: Runnable,
        batch: &mut Batch<'_>,
        perform: impl FnOnce(&Self, Granted<'_>, u32) -> Result<Rest>,
    ) {
        let mut operation = operation;
        if let Some(lanes) = &self.lanes {
            match lanes.defer(&self.slots, operation) {
                Some(ready) => operation = ready,
                None => return,
            }
        }
        let number = operation.number();
        let outcome = match perform(self, self.slots.granted(&mut operation), number) {
            Ok(Rest::Nothing) => Ok(()),
            Err(error) => Err(error),
            Ok(Rest::Parts(_)) => unreachable!("`perform` performs the parts"),
            Ok(Rest::Kernel(kernel)) => return self.enqueue(operation, kernel, batch),
            Ok(Rest::Pending(future)) => return future.park(operation),
            Ok(Rest::Future(future, context)) => {
                AsyncOp::begin(self, number, self.slots.granted(&mut operation), future, context);
                return batch.ready.push(operation);
            }
        };
        self.end(operation, outcome, batch);
    }

    /// Takes an operation out of its queues, and ends it.
    pub(super) fn end(&self, mut operation: Runnable, outcome: Result<()>, batch: &mut Batch<'_>) {
        let frees = self.slots.granted(&mut operation).role == Role::Frees;
        let left = if frees { batch.leave_freed(operation) } else { batch.leave(operation) };
        self.end_left(left, outcome, batch);
    }

    /// Ends an operation that has left its queues.
    pub(super) fn end_left(&self, operation: Left, outcome: Result<()>, batch: &mut Batch<'_>) {
        let number = operation.number();
        let ended = self.slots.left(&operation);
        if ended.is_async {
            self.async_ops.remove(number);
        }
        if let Some(scope) = ended.scope() {
            if ended.is_async {
                scope.remove_future(number);
            }
            scope.end_one();
        }
        if let Some(waker) = self.handles.end(&self.slots, &operation, outcome) {
            batch.wake(waker);
        }
        batch.end(operation);
        if batch.freed() >= self.freed_max {
            // First, because this may call other wakers.
            batch.wake_left();
            self.give_back(batch);
        }
    }

    /// Gives the freed slots of a batch back, and wakes the futures that wait for room or for the end.
    #[inline]
    pub(super) fn give_back(&self, batch: &mut Batch<'_>) {
        if let Some(wakes) = batch.give_back() {
            self.have_given_back(wakes);
        }
    }

    pub(super) fn have_given_back(&self, wakes: Wakes) {
        if wakes.space {
            self.space.ring();
        }
        if wakes.idle {
            self.idle.ring();
        }
        if let Some(lanes) = &self.lanes
            && self.slots.in_use() == 0
        {
            lanes.devices.collect();
        }
        self.leave_if_over();
    }
}
