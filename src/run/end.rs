//! The end of a run: the verdict, the return of its place, its outputs, and the drop of its values.

use std::sync::Arc;

use super::Outputs;
use super::inner::{COMPLETE, RunInner};
use super::outcomes::cancelled;
use super::state;
use super::values::Values;
use crate::error::{Error, Result, shielded};
use crate::sync::{OnceLock, lock};

/// A point beyond every step of a program, but below the one that idle waiters wait for.
const BEYOND: u64 = u64::MAX - 1;

impl RunInner {
    /// Ends the run, after its last step. The caller must not touch the run again, unless another owner keeps
    /// it alive.
    pub(super) fn finish(alive: Arc<Self>) {
        if let Some(bits) = alive.state.complete() {
            alive.end(bits);
        }
        // The last owner drops values of bodies and errors: foreign code.
        let _ = shielded(|| drop(alive));
    }

    fn end(&self, bits: u32) {
        let _ = self.verdict.set(self.judge(bits));
        if let Some(live) = self.live.get() {
            self.free_events(live);
            self.leave(live.flight);
        }
        self.signal_end();
    }

    /// Ends a run that never started.
    pub(super) fn refuse(&self, error: Error) {
        if self.state.complete().is_some() {
            let _ = self.verdict.set(Err(error));
            self.signal_all();
        }
    }

    /// Ends an admitted run that has no memory. The caller holds its only ticket, and gives it up.
    #[cold]
    pub(super) fn refuse_in_flight(&self, error: Error, flight: u32) {
        // The task that awaits the run may drop it as soon as it is complete.
        let alive = self.me();
        if let Some(bits) = self.state.complete() {
            let is_cancelled = bits & state::CANCELLED != 0;
            let _ = self.verdict.set(Err(if is_cancelled { cancelled(bits) } else { error }));
            self.leave(flight);
            self.signal_end();
        }
        let _ = shielded(|| drop(alive));
    }

    /// Gives the run's place back. No ticket for it exists, and none will.
    fn leave(&self, flight: u32) {
        if let Some(pool) = &self.core.pool {
            // SAFETY: `launch` entered the run in this slot; its end gate is full, so no ticket for it
            // exists, and none will.
            unsafe { pool.leave(super::start::slot_of(flight)) };
        }
        self.core.end_flight(flight);
    }

    fn signal_end(&self) {
        self.signal_all();
        if let Some(devices) = &self.core.devices {
            devices.collect();
        }
    }

    fn judge(&self, bits: u32) -> Result<()> {
        if bits & state::CANCELLED != 0 {
            return Err(cancelled(bits));
        }
        let faults = lock(&self.faults);
        let causes = faults.iter().map(|(_, error)| error.clone());
        if faults.is_empty() { Ok(()) } else { Error::first_of(causes.collect()).map_or(Ok(()), Err) }
    }

    /// Wakes all waiters: the run is complete.
    fn signal_all(&self) {
        for lane in self.watched.get().into_iter().flatten().filter_map(OnceLock::get) {
            lane.signal(BEYOND);
        }
        self.lane.signal(COMPLETE);
        // A concurrent drop may have kept the run already.
        self.core.limbo.free(&self.held);
    }

    /// Returns the outputs of a complete run; called once, by its `Run`. The run keeps no share of them, nor
    /// of its inputs. So the receiver is their only owner, and a shared input is the caller's alone again,
    /// even if a worker is still leaving the run.
    pub(super) fn outputs(&self) -> Result<Outputs> {
        let verdict = self.verdict.get().expect("the run is complete").clone();
        let Some(live) = self.live.get() else {
            return verdict.map(|()| unreachable!("only a run that started completes without an error"));
        };
        // SAFETY: the run is complete: no step touches its cells any more, and `Run` calls this once.
        let values = unsafe { Values::new(&self.plan, self.code(), &live.frame) };
        let outputs = verdict.map(|()| values.outputs());
        if outputs.is_ok() {
            values.drop_outputs();
        }
        values.drop_inputs();
        outputs
    }
}

impl Drop for RunInner {
    fn drop(&mut self) {
        let Some(live) = self.live.get() else { return };
        // SAFETY: `&mut self`: no other thread touches the cells of a run that is being dropped.
        let values = unsafe { Values::new(&self.plan, self.code(), &live.frame) };
        values.drop_inputs();
        values.drop_carried();
        values.drop_outputs();
        // A run without failures has released all others.
        if !matches!(self.verdict.get(), Some(Ok(()))) {
            values.drop_others();
        }
    }
}
