//! The end of a run: the verdict, the return of its place, its outputs, and the drop of its values.

use std::sync::Arc;
use std::task::Waker;

use super::inner::{COMPLETE, Item, RunInner};
use super::outcomes::cancelled;
use super::state;
use super::values::FrameValues;
use crate::error::{Error, Result, shielded};
use crate::sync::OnceLock;

/// A point beyond every step of a program, but below the one that idle waiters wait for.
const BEYOND: u64 = u64::MAX - 1;

impl RunInner {
    /// Ends the run, after its last step; or one that has no slot and never started. The caller must not
    /// touch the run again, unless another owner keeps it alive: the task that awaits the run may drop it as
    /// soon as it is complete.
    pub(super) fn finish(alive: Arc<Self>, slot: Option<u16>) {
        Self::finish_by(alive, slot, &mut Waker::wake);
    }

    /// As [`RunInner::finish`], for a worker that wakes in its own way.
    pub(super) fn finish_by(alive: Arc<Self>, slot: Option<u16>, wake: &mut dyn FnMut(Waker)) {
        if let Some(bits) = alive.state.complete() {
            alive.end(bits, slot, wake);
        }
        // The last owner drops values of bodies and errors: user code.
        let _ = shielded(|| drop(alive));
    }

    /// Ends a run that never started, or that is in flight and has no memory. Then the caller holds its only
    /// ticket, and gives it up.
    #[cold]
    pub(super) fn refuse(self: Arc<Self>, error: Error, slot: Option<u16>) {
        let _ = self.refusal.set(error);
        Self::finish(self, slot);
    }

    /// Decides the verdict, gives the run's place back, and wakes all waiters. No ticket for the run exists,
    /// and none will.
    fn end(&self, bits: u32, slot: Option<u16>, wake: &mut dyn FnMut(Waker)) {
        if self.observed.is_some() {
            self.items().for_each(|item| item.tell_all_submitted());
        }
        let mut verdict = self.judge(bits);
        if self.observed.is_some() {
            verdict = self.tell_end(verdict);
        }
        if verdict.is_ok() {
            self.add_cost();
        }
        self.decide(verdict);
        if let Some(slot) = slot {
            self.note_end(slot);
            if self.core.devices.is_some() {
                self.items().for_each(|item| item.free_events(&self.code().segments));
            }
            if let Some(pool) = &self.core.pool {
                // SAFETY: `launch` entered the run in this slot; its end gate is full, or its only ticket is
                // void, so no ticket for it exists, and none will.
                unsafe { pool.leave(slot) };
            }
            self.core.end_flight(slot);
        }
        match &self.core.devices {
            // Calls of a driver follow: no waker may wait for these.
            Some(_) => self.signal_all(&mut Waker::wake),
            None => self.signal_all(wake),
        }
        if let Some(devices) = self.core.devices.as_ref().filter(|_| slot.is_some()) {
            devices.collect();
        }
    }

    pub(super) fn judge(&self, bits: u32) -> Result<()> {
        if bits & state::CANCELLED != 0 {
            return Err(cancelled(bits));
        }
        if let Some(refusal) = self.refusal.get() {
            return Err(refusal.clone());
        }
        // The failures of items are theirs.
        let own = self.first().filter(|_| self.pipelining.is_none());
        own.map_or(Ok(()), Item::result)
    }

    /// Wakes all waiters: the run is complete.
    fn signal_all(&self, wake: &mut dyn FnMut(Waker)) {
        for lane in self.watched.get().into_iter().flatten().filter_map(OnceLock::get) {
            lane.signal_by(BEYOND, wake);
        }
        self.lane.signal_by(COMPLETE, wake);
        // A concurrent drop may have kept the run already.
        self.core.limbo.free(&self.held);
    }

    /// Returns what `take` makes of the outputs of a complete run; called once, by its `Run`. The run keeps
    /// no share of them, nor of its inputs. So the receiver is their only owner, and a shared input is the
    /// caller's alone again, even if a worker is still leaving the run.
    #[inline]
    pub(super) fn results<R>(&self, take: impl FnOnce(&FrameValues<'_>) -> R) -> Result<R> {
        let verdict = self.verdict();
        let Some(item) = self.first() else {
            return verdict.map(|()| unreachable!("only a run that started completes without an error"));
        };
        // SAFETY: the run is complete: no step touches its cells any more, and `Run` calls this once.
        let values = unsafe { item.values() };
        let results = verdict.map(|()| take(&values));
        if results.is_ok() {
            values.drop_rest()
        } else {
            values.drop_inputs()
        }
        results
    }
}

impl RunInner {
    /// Drops the values that are left, after the end or before the start of a run.
    pub(super) fn drop_values(&mut self) {
        // A run without failures has released all others.
        let is_clean = self.pipelining.is_none() && self.has_succeeded();
        for item in self.items() {
            // SAFETY: `&mut self`: no other thread touches the cells.
            let values = unsafe { item.values() };
            values.drop_inputs();
            values.drop_outputs();
            if !is_clean {
                values.drop_others();
            }
        }
    }
}

impl Drop for RunInner {
    fn drop(&mut self) {
        if !self.plan.is_spare() {
            self.drop_values();
        }
    }
}
