//! The start of a run: admission, its memory, its first tickets. And its cancel.

use std::sync::{Arc, Weak};
use std::task::Poll;

use super::Inputs;
use super::async_state::AsyncNode;
use super::control_state::ControlState;
use super::countdown::Countdown;
use super::inner::{Live, RunInner, Start};
use super::interpret;
use super::outcomes::cancelled;
use super::state;
use crate::device::host::{Entry, Ticket};
use crate::error::{Refused, Result, shielded};
use crate::runtime::{AsyncContext, Client, Resumes, WakeSet};
use crate::sync::{AtomicU32, AtomicU64, lock};
use crate::value::Frame;

impl Client for RunInner {
    fn shut_down(self: Arc<Self>) {
        self.cancel(state::SHUT_DOWN);
    }
}

impl RunInner {
    fn client(&self) -> Weak<dyn Client> {
        self.weak()
    }

    /// Starts the run if it has not started and there is room; otherwise queues it.
    pub(super) fn start(self: &Arc<Self>) -> Poll<()> {
        let mut start = lock(&self.start);
        let Start::Waiting { inputs, turn, place } = &mut *start else { return Poll::Ready(()) };
        let admitted = match (inputs.check(self.plan()), *place) {
            (Ok(()), Some(place)) => Poll::Ready(Ok(place)),
            (Ok(()), None) => self.core.admit(self.client(), turn, Some(&self.lane)),
            (Err(error), _) => Poll::Ready(Err(error)),
        };
        let Poll::Ready(admitted) = admitted else { return Poll::Pending };
        let (turn, place) = (*turn, *place);
        let Start::Waiting { inputs, .. } = std::mem::replace(&mut *start, Start::Started) else { unreachable!() };
        drop(start);
        match admitted {
            Ok(flight) => self.launch(inputs, flight),
            Err(error) => {
                self.core.leave_queue(turn);
                place.into_iter().for_each(|place| self.core.withdraw(place));
                self.refuse(error);
                let _ = shielded(|| drop(inputs));
            }
        }
        Poll::Ready(())
    }

    /// Takes a place among those in flight before the run starts. Otherwise returns the inputs: the run is
    /// over.
    pub(super) fn reserve(self: &Arc<Self>) -> Result<(), Refused<Inputs>> {
        let mut start = lock(&self.start);
        let Start::Waiting { place, .. } = &mut *start else { unreachable!("the run is not shared yet") };
        let error = match self.core.try_admit(self.client()) {
            Ok(admitted) => {
                *place = Some(admitted);
                return Ok(());
            }
            Err(error) => error,
        };
        let Start::Waiting { inputs, .. } = std::mem::replace(&mut *start, Start::Started) else { unreachable!() };
        drop(start);
        self.refuse(error.clone());
        Err(Refused::new(error, inputs))
    }

    /// Enters the run in the pool, and submits its first tickets.
    fn launch(self: &Arc<Self>, inputs: Inputs, flight: u32) {
        let (pool, code) = (self.core.pool.as_ref(), self.code());
        let slot = pool.map_or(0, |pool| {
            let entry =
                Entry { run: Arc::as_ptr(self).cast(), resume: interpret::resume_shared, resume_alone: interpret::resume_alone };
            // SAFETY: admission gave this place to this run alone. `Run` or limbo keeps the run alive until
            // it is complete, and completing it begins with `leave`.
            unsafe { pool.enter(slot_of(flight), entry) };
            slot_of(flight)
        });
        let roots = (code.programs() > 0).then(|| Ticket::new(slot, 0, code.roots));
        // Without workers, async nodes are polled by the task that awaits the run, in its runtime.
        let has_context = pool.is_some() && !code.asyncs.is_empty();
        let context = if has_context { AsyncContext::current() } else { AsyncContext::default() };
        *lock(&self.start) = Start::Admitted { inputs, flight, context };
        match (roots, pool) {
            (Some(roots), Some(pool)) => pool.submit(roots),
            (Some(roots), None) => {
                // Must precede `live`: another task that polls the run finds its first programs then.
                lock(&self.driver).tickets.push(roots);
                if self.live().is_none() {
                    lock(&self.driver).tickets.clear();
                }
            }
            (None, _) => {
                if self.live().is_some() {
                    Self::finish(self.clone());
                }
            }
        }
    }

    /// Returns the state that the run has since its start. The caller holds a ticket of the run; the first
    /// call makes the state. If there is no memory for it, the run is over, and its only ticket is void.
    pub(super) fn live(&self) -> Option<&Live> {
        self.live.get().or_else(|| self.make_live())
    }

    #[cold]
    fn make_live(&self) -> Option<&Live> {
        let Start::Admitted { inputs, flight, context } = std::mem::replace(&mut *lock(&self.start), Start::Started) else {
            unreachable!("only admitted runs have tickets")
        };
        let (plan, code) = (self.plan(), self.code());
        let frame = match Frame::new(&plan.layout) {
            Ok(frame) => frame,
            Err(error) => {
                let _ = shielded(|| drop(inputs));
                self.refuse_in_flight(error, flight);
                return None;
            }
        };
        inputs.fill(plan, &frame);
        let live = Live {
            frame,
            gates: code.gates.iter().map(|gate| Countdown::new(gate.count)).collect(),
            places: code.starts[..code.programs() as usize].iter().map(|&step| AtomicU32::new(step << 1)).collect(),
            events: (0..code.events).map(|_| AtomicU64::new(0)).collect(),
            points: code.segments.iter().map(|_| AtomicU64::new(0)).collect(),
            faults: self.core.devices.as_ref().map_or(0, |devices| devices.faults()),
            asyncs: code.asyncs.iter().map(|_| AsyncNode::new()).collect(),
            wakes: (!code.asyncs.is_empty()).then(|| self.wake_set(flight)),
            context,
            controls: code.controls.iter().map(|_| ControlState::new()).collect(),
            slot: if self.core.pool.is_some() { slot_of(flight) } else { 0 },
            flight,
        };
        Some(self.live.get_or_init(|| live))
    }

    fn wake_set(&self, flight: u32) -> Arc<WakeSet> {
        let code = self.code();
        let resumes = match &self.core.pool {
            Some(pool) => Resumes::Worker { pool: pool.clone(), slot: slot_of(flight) },
            None => Resumes::Poll(self.lane.clone()),
        };
        WakeSet::new(code.asyncs.iter().map(|&step| code.program_of(step)), resumes)
    }

    /// Cancels the run, unless it is complete or cancelled, or its threads are in another process. Never
    /// blocks.
    pub(super) fn cancel(&self, bits: u32) {
        if self.core.is_forked() || !self.state.cancel(bits) {
            return;
        }
        let waiting = {
            let mut start = lock(&self.start);
            matches!(*start, Start::Waiting { .. }).then(|| std::mem::replace(&mut *start, Start::Started))
        };
        let Some(Start::Waiting { inputs, turn, place }) = waiting else { return self.drive_cancelled() };
        self.core.leave_queue(turn);
        place.into_iter().for_each(|place| self.core.withdraw(place));
        self.refuse(cancelled(bits | state::CANCELLED));
        let _ = shielded(|| drop(inputs));
    }
}

/// Returns the slot of a run in the pool. Its place among those in flight is below `max_in_flight`, and so
/// below the number of slots.
pub(super) fn slot_of(flight: u32) -> u16 {
    flight as u16
}
