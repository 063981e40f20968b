//! What pushes and polls do themselves: all work of engines without workers, and glances at variables that
//! no pending operation uses.

use std::sync::Arc;
use std::task::Context;

use super::engine_core::{EngineCore, NO_SLOT};
use crate::engine::order::{
    Batch, Grant, Granted, Key, More, NothingPending, Reading, Runnable, Scope, Turn, Unpushed, Variable,
};
use crate::error::Result;
use crate::runtime::{STEPS_MAX, WaiterKey};
use crate::sync::{Ordering, lock};

impl EngineCore {
    /// Pushes an operation that cannot be run in place. It has been run when this returns, with two
    /// exceptions: it is asynchronous, or a turn goes on, of another thread or of a caller of this function.
    #[inline(never)]
    pub(super) fn push_to_inbox(self: &Arc<Self>, max: usize, operation: &mut Unpushed<'_>) -> Option<Key> {
        let (key, turn) = {
            let mut free = self.slots.free();
            let (entering, key) = self.put(&mut free, max, operation)?;
            // Under the lock, so that operations enter their queues in the order in which they got slots.
            (key, self.exclusive.post(entering))
        };
        if let Some(turn) = turn {
            self.empty(turn);
        }
        Some(key)
    }

    /// Runs an operation in place, if none is pending and no turn goes on.
    #[inline(always)]
    pub(super) fn run_in_place(self: &Arc<Self>, operation: &mut Unpushed<'_>) -> Option<Result<()>> {
        self.with_nothing_pending(|nothing_pending| {
            // After a run in place nothing is left to do or to drop.
            let run = |granted: Granted<'_>| self.perform(granted, NO_SLOT).map(std::mem::forget);
            let outcome = operation.granted_at_once(nothing_pending).map_or(Ok(()), run);
            operation.clear();
            outcome
        })
    }

    /// Enters the posted operations into their queues, runs them or has workers run them, and ends the turn.
    #[cold]
    pub(super) fn empty(self: &Arc<Self>, mut turn: Turn) {
        let (mut batch, mut more) = (Batch::new(&self.slots), More::default());
        loop {
            more.posted.into_iter().for_each(|entering| batch.enter(entering));
            if self.workers > 0 {
                self.start(&mut batch);
            }
            while let Some(operation) = batch.next_own() {
                self.run(operation, &mut batch);
            }
            if more.is_nudged {
                self.end_what_is_over(&mut batch);
            }
            // Operations that were woken meanwhile wait for a poll. Otherwise a future that always wakes
            // itself would keep the pushing thread. After a shutdown they end here.
            while self.workers == 0
                && self.is_closed()
                && let Some(operation) = self.ready.pop(&self.slots)
            {
                self.run(operation, &mut batch);
            }
            self.give_back(&mut batch);
            match self.exclusive.end(turn) {
                Ok(idle) => {
                    if idle {
                        self.idle.ring();
                    }
                    break;
                }
                Err(asked) => (turn, more) = asked,
            }
        }
        if self.workers == 0 && !self.ready.is_still_empty() {
            self.call_polls();
        }
    }

    /// Calls `look` if no pending operation uses the variable, and returns its result.
    pub(in crate::engine) fn glance<R>(self: &Arc<Self>, variable: &Variable, look: impl FnOnce(Grant<'_>) -> R) -> Option<R> {
        if self.is_closed_relaxed() {
            return None;
        }
        if self.is_inline() {
            return self.with_nothing_pending(|nothing_pending| look(nothing_pending.grant()));
        }
        let mut batch = Batch::new(&self.slots);
        let seen = batch.glance(variable, look);
        // A write may have waited for `look`.
        self.start(&mut batch);
        seen
    }

    /// As `glance`, at variables that have values.
    pub(in crate::engine) fn glance_at<R>(
        self: &Arc<Self>,
        reading: &Reading<'_>,
        look: impl FnOnce(Grant<'_>) -> R,
    ) -> Option<R> {
        let (first, second) = (reading.first(), reading.second());
        let is_there = |variable: &Variable| variable.device_uses.is_written() && variable.poison().is_none();
        let look = |grant: Grant<'_>| (is_there(first) && second.is_none_or(is_there)).then(|| look(grant));
        let is_own = |variable: &Variable| variable.engine == self.address();
        if !is_own(first) || !second.is_none_or(is_own) {
            return None;
        }
        match second {
            // Within the first one: no write of both comes between.
            Some(second) if !self.is_inline() => self.glance(first, |_: Grant<'_>| self.glance(second, look)).flatten(),
            // Without workers a glance sees all variables.
            _ => self.glance(first, look),
        }
        .flatten()
    }

    /// Returns whether the thread that runs an operation may have others to run.
    pub(super) fn may_have_others(&self) -> bool {
        // In a poll, what its batch had was passed on before (`next`). In a push, the code that pushes comes
        // next.
        !self.is_inline() || !self.ready.is_empty()
    }

    /// Takes out the ready operation that the simulated executor chooses.
    fn draw(&self) -> Option<Runnable> {
        let among = self.ready.len();
        let core = lock(&self.registration).as_ref().filter(|_| among > 0)?.core.clone();
        let choices = core.choices.as_ref()?;
        let (place, misfit) = choices.choose(among);
        misfit.iter().for_each(|misfit| self.keep_failure(misfit));
        let mut drawn = self.ready.remove(&self.slots, place)?;
        choices.note(among, || Some(self.slots.granted(&mut drawn).name.clone()));
        Some(drawn)
    }

    /// Ends the ready operations of a flow if it is cancelled, and of the flows within it if `is_over`. Runs
    /// the engine's own (frees and waits). Without workers only polls would do that, and there may be none.
    pub(in crate::engine) fn sweep(self: &Arc<Self>, scope: &Scope, is_over: bool) {
        // The lock of the ready lists orders this: a thread that adds a ready operation checks afterwards
        // whether its flow is cancelled. So either that check or this sweep finds the operation.
        if self.workers > 0 || self.ready.is_still_empty() {
            return;
        }
        if scope.is_cancelled() {
            let within = if is_over { scope.all_within() } else { Vec::new() };
            within.iter().map(|inner| &**inner).chain([scope]).for_each(|scope| self.ready.give_up(scope));
        }
        if !self.is_inline() {
            let mut batch = Batch::new(&self.slots);
            self.end_what_is_over(&mut batch);
            self.give_back(&mut batch);
        } else {
            self.nudge();
        }
    }

    fn end_what_is_over(self: &Arc<Self>, batch: &mut Batch<'_>) {
        loop {
            let over = self.ready.extract_over(&self.slots);
            if over.is_empty() {
                return;
            }
            over.into_iter().for_each(|operation| self.run(operation, batch));
            self.pass_on(batch);
        }
    }

    /// Calls `act` in a turn of its own, if no operation is pending. Then all queues are empty, and stay so:
    /// an operation that is pushed meanwhile enters them after `act`.
    #[inline(always)]
    fn with_nothing_pending<R>(self: &Arc<Self>, act: impl FnOnce(&NothingPending<'_>) -> R) -> Option<R> {
        if !self.is_inline() || self.slots.in_use() > 0 {
            return None;
        }
        let turn = self.exclusive.begin()?;
        // Another thread may have pushed since the first check.
        let done = self.slots.nothing_pending(&turn).map(|proof| act(&proof));
        if done.is_none() {
            self.empty(turn);
        } else if let Err(turn) = self.exclusive.end_at_once(turn) {
            self.empty(turn);
        }
        done
    }

    /// Wakes the tasks whose polls run ready operations. If the executor is shut down, runs them itself.
    pub(super) fn call_polls(self: &Arc<Self>) {
        self.drivers.ring();
        if self.is_closed() {
            self.end_what_is_ready();
        }
    }

    /// Ends the ready operations of an executor that is shut down. Without workers only polls would do that,
    /// and there may be none.
    pub(super) fn end_what_is_ready(self: &Arc<Self>) {
        if self.is_inline() {
            self.nudge();
        } else if self.is_simulated && !self.is_inside_any() {
            // Not inside of an operation: the thread that runs it takes the ready ones next.
            self.run_all(&mut Batch::new(&self.slots));
        }
    }

    /// Without workers: sweeps. If a turn goes on, the thread that has it does so.
    fn nudge(self: &Arc<Self>) {
        if let Some(turn) = self.exclusive.nudge() {
            self.empty(turn);
        }
    }

    /// Without workers: runs some ready operations, in a poll of a future. The future's task is woken if more
    /// are ready.
    pub(in crate::engine) fn drive(self: &Arc<Self>, key: &mut WaiterKey, cx: &mut Context<'_>) {
        if self.workers > 0 {
            return;
        }
        // Must precede the check: an operation that becomes ready after the check rings.
        self.drivers.register(key, cx);
        if self.go_on() {
            cx.waker().wake_by_ref();
        }
    }

    #[inline(always)]
    pub(in crate::engine) fn forget_driver(&self, key: &mut WaiterKey) {
        self.drivers.forget(key);
    }

    /// Runs some ready operations. Returns true if this thread should come back for more.
    fn go_on(self: &Arc<Self>) -> bool {
        if self.is_simulated {
            return self.run_chosen();
        }
        if self.ready.is_empty() {
            return false;
        }
        // If a turn goes on, its end rings `drivers`.
        let Some(turn) = self.exclusive.begin() else { return false };
        let mut batch = Batch::new(&self.slots);
        for _ in 0..STEPS_MAX {
            let Some(operation) = self.next(&mut batch) else { break };
            self.run(operation, &mut batch);
        }
        self.pass_on(&mut batch);
        self.give_back(&mut batch);
        self.empty(turn);
        !self.ready.is_empty()
    }

    /// On a simulated executor: runs operations, each chosen from those that are ready. Returns true if some
    /// are left for a later poll.
    fn run_chosen(self: &Arc<Self>) -> bool {
        // ORDERING: Acquire pairs with the Release below: one poll at a time.
        if self.is_simulating.swap(true, Ordering::Acquire) {
            // Another thread runs operations, and may stop before it finds those of this thread.
            return true;
        }
        let mut batch = Batch::new(&self.slots);
        for _ in 0..STEPS_MAX {
            let Some(operation) = self.ready.pop_free(&self.slots).or_else(|| self.draw()) else { break };
            self.run(operation, &mut batch);
            self.pass_on(&mut batch);
        }
        self.give_back(&mut batch);
        if self.is_closed() {
            self.run_all(&mut batch);
        }
        self.note_seen();
        // ORDERING: Release pairs with the Acquire above.
        self.is_simulating.store(false, Ordering::Release);
        !self.ready.is_empty()
    }
}
