//! Engines without workers: operations are run by the thread that pushes them, or by whoever polls something
//! of the engine.

use std::sync::Arc;
use std::task::Context;

use super::hand::Hand;
use super::handle::Handled;
use super::hub::{Hub, NOWHERE};
use super::op::Job;
use super::place::Place;
use super::scope::Scope;
use super::slots::Told;
use super::turn::{End, More};
use super::within;
use crate::error::Result;
use crate::runtime::WaiterKey;
use crate::runtime::{STEPS_MAX, is_inside};
use crate::sync::{Ordering, lock};

impl Hub {
    /// Pushes an operation without workers that cannot be run where it lies. It has been run when this
    /// returns, unless it is a future, or another thread, or this one further up the stack, has the engine.
    #[inline(never)]
    pub(super) fn push_to_inbox(self: &Arc<Self>, max: usize, job: &mut Option<Job>) -> Option<Handled> {
        let (handled, is_ours) = {
            let mut free = self.slots.free();
            let number = self.slots.take(&mut free, max)?;
            let handled = self.settle(self.slots.spot(number), job);
            // With the lock, so that they enter their queues in the order in which they were settled.
            (handled, self.turn.post(number))
        };
        if is_ours {
            self.empty(More::default());
        }
        Some(handled)
    }

    /// Runs an operation where it lies: nothing is pending, so nobody stands in any queue, and this thread
    /// has the engine to itself.
    #[inline(always)]
    pub(super) fn push_alone(self: &Arc<Self>, job: &mut Option<Job>) -> Option<Result<()>> {
        if !self.begin_alone() {
            return None;
        }
        let outcome = match job {
            // What is run where it lies is over: there is nothing to drop.
            Some(job) => self.perform(job, NOWHERE).map(std::mem::forget),
            None => Ok(()),
        };
        Job::clear(job);
        self.end_alone();
        Some(outcome)
    }

    /// Does what was put into the inbox, and what is put there meanwhile, and gives the engine back.
    #[cold]
    pub(super) fn empty(self: &Arc<Self>, mut more: More) {
        let mut hand = Hand::new(self);
        loop {
            more.posted.into_iter().for_each(|number| self.enter(self.slots.spot(number), &mut hand));
            while let Some(number) = hand.next_own() {
                self.run(number, &mut hand);
            }
            if more.is_nudged {
                self.end_what_is_over(&mut hand);
            }
            // What was woken meanwhile waits for a poll, so that whoever pushes is not kept by what wakes
            // itself again and again.
            while self.is_closed.load(Ordering::SeqCst)
                && let Some(number) = self.ready.pop(&self.slots)
            {
                self.run(number, &mut hand);
            }
            hand.give_back();
            match self.turn.end() {
                End::Over { is_awaited } => {
                    self.tell(Told { space: false, idle: is_awaited });
                    break;
                }
                End::More(asked) => more = asked,
            }
        }
        if !self.ready.is_still_empty() {
            self.call_polls();
        }
    }

    /// Makes an operation ready that was woken.
    pub(super) fn make_ready(self: &Arc<Self>, number: u32) {
        self.add_ready(number);
        if self.workers > 0 {
            let _ = self.call_workers();
        } else {
            self.call_polls();
        }
    }

    /// Has `look` done at a variable that nothing pending uses.
    pub(super) fn glance<R>(self: &Arc<Self>, place: &Place, look: impl FnOnce() -> R) -> Option<R> {
        if self.is_closed.load(Ordering::Relaxed) {
            return None;
        }
        if self.is_inline() {
            if !self.begin_alone() {
                return None;
            }
            let seen = look();
            self.end_alone();
            return Some(seen);
        }
        let mut hand = Hand::new(self);
        let seen = place.queue.glance(&mut hand, look);
        // A writer that waited for this look.
        self.start(&mut hand);
        seen
    }

    /// Draws an operation among those that are ready.
    fn draw(&self) -> Option<u32> {
        let choice = match (self.ready.len(), &*lock(&self.room)) {
            (0, _) | (_, None) => None,
            (among, Some(room)) => room.choose(among),
        };
        let (place, misfit) = choice?;
        misfit.iter().for_each(|misfit| self.keep_failure(misfit));
        self.ready.remove(place)
    }

    /// Ends the ready operations that will not begin any more, and runs the engine's own (frees and reads).
    /// Without workers only polls would do that, and there may be none. `over` are cancelled flows.
    pub(super) fn sweep(self: &Arc<Self>, over: &[&Scope]) {
        // ORDERING: the lists' lock: a thread that adds a ready operation checks afterwards whether its flow
        // is cancelled. So either that check or this sweep finds the operation.
        if self.workers > 0 || self.ready.is_still_empty() {
            return;
        }
        over.iter().for_each(|scope| self.ready.give_up(scope));
        if !self.is_inline() {
            let mut hand = Hand::new(self);
            self.end_what_is_over(&mut hand);
            hand.give_back();
        } else if self.turn.nudge() {
            self.empty(More::default());
        }
    }

    /// [Sweeps](Hub::sweep) the rest of a flow that is over.
    pub(super) fn sweep_flow(self: &Arc<Self>, scope: &Scope) {
        // As in `sweep`, before the flows within are collected: each of them may leave as well.
        if self.workers > 0 || self.ready.is_still_empty() {
            return;
        }
        let inners = if scope.is_cancelled() { scope.all_within() } else { Vec::new() };
        let own = scope.is_cancelled().then_some(scope);
        let over: Vec<&Scope> = inners.iter().map(|inner| &**inner).chain(own).collect();
        self.sweep(&over);
    }

    fn end_what_is_over(self: &Arc<Self>, hand: &mut Hand<'_>) {
        loop {
            let over = self.ready.extract_over();
            if over.is_empty() {
                return;
            }
            over.into_iter().for_each(|number| self.run(number, hand));
            hand.pass_on();
        }
    }

    /// Asks for the engine, if nothing is pending, which where there are no workers means that nobody stands
    /// in any queue. If this returns true, it is for the caller to [give it back](Hub::end_alone).
    #[inline(always)]
    #[must_use]
    fn begin_alone(self: &Arc<Self>) -> bool {
        if !self.is_inline() || self.slots.in_use() > 0 || !self.turn.begin() {
            return false;
        }
        // Asked again: another thread may have pushed meanwhile; but now none can go on with that.
        let is_alone = self.slots.in_use() == 0;
        if !is_alone {
            self.empty(More::default());
        }
        is_alone
    }

    #[inline(always)]
    fn end_alone(self: &Arc<Self>) {
        if !self.turn.end_at_once() {
            self.empty(More::default());
        }
    }

    /// Sees to it that somebody runs what is ready: a poll of anything of the engine, or this thread if the
    /// executor is shut down.
    pub(super) fn call_polls(self: &Arc<Self>) {
        self.bell.ring();
        // Inside of an operation it is for whoever runs that.
        if !self.is_closed.load(Ordering::SeqCst) || is_inside(self.address()) || within::is_polling(self.address()) {
            return;
        }
        if self.is_inline() {
            while self.go_on() {}
        } else {
            self.run_all(&mut Hand::new(self));
        }
    }

    /// Ends the ready operations of an executor that is shut down. Without workers only polls would do that,
    /// and there may be none.
    pub(super) fn end_what_is_ready(self: &Arc<Self>) {
        if self.is_inline() {
            // If another thread has the engine, that thread does it.
            if self.turn.nudge() {
                self.empty(More::default());
            }
        } else if self.is_simulated && !is_inside(self.address()) && !within::is_polling(self.address()) {
            self.run_all(&mut Hand::new(self));
        }
    }

    /// Runs what is ready, on an engine without workers, for whoever is polled. It is woken when more is.
    pub(super) fn drive(self: &Arc<Self>, key: &mut WaiterKey, cx: &mut Context<'_>) {
        if self.workers > 0 {
            return;
        }
        // Point u64::MAX never passes: the lane is only rung. Registered first: what becomes ready behind the
        // look below rings.
        let _ = self.bell.poll(u64::MAX, key, cx);
        if self.go_on() {
            cx.waker().wake_by_ref();
        }
    }

    #[inline(always)]
    pub(super) fn forget_driver(&self, key: &mut WaiterKey) {
        self.bell.forget(key);
    }

    /// Runs some of what is ready. Returns true if something is left for this thread.
    fn go_on(self: &Arc<Self>) -> bool {
        if self.is_simulated {
            return self.rehearse();
        }
        if self.ready.is_empty() || !self.turn.begin() {
            // Whoever has the engine rings when it gives it back.
            return false;
        }
        let mut hand = Hand::new(self);
        for _ in 0..STEPS_MAX {
            let Some(number) = self.next(&mut hand) else { break };
            self.run(number, &mut hand);
        }
        hand.pass_on();
        hand.give_back();
        self.empty(More::default());
        !self.ready.is_empty()
    }

    /// On a simulated executor: runs operations, each chosen among those that are ready. Returns true if some
    /// are left for a later poll.
    fn rehearse(self: &Arc<Self>) -> bool {
        // ORDERING: Acquire and Release: one poll at a time.
        if self.is_rehearsing.swap(true, Ordering::Acquire) {
            // Another thread does, and may be about to stop, with nobody left there to go on with what this
            // one has pushed.
            return true;
        }
        let mut hand = Hand::new(self);
        for _ in 0..STEPS_MAX {
            let Some(number) = self.ready.pop_free().or_else(|| self.draw()) else { break };
            self.run(number, &mut hand);
            hand.pass_on();
        }
        hand.give_back();
        if self.is_closed.load(Ordering::SeqCst) {
            self.run_all(&mut hand);
        }
        self.is_rehearsing.store(false, Ordering::Release);
        !self.ready.is_empty()
    }
}
