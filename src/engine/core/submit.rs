//! The submission of kernels, and their ends when a device has done them.
//!
//! ```text
//! all granted ──▶ place ──▶ record · submit ──▶ add the use, leave the queues ──▶ the next operations are granted
//!                                          └──▶ the lane reaches the point ──▶ end: the handle, operations of the host
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use smallvec::SmallVec;

use super::engine_core::EngineCore;
use super::lanes::Lanes;
use crate::device::StreamMut;
use crate::device::queue::{self, Event, Judge, Part};
use crate::engine::order::{
    Batch, Completed, DeviceUse, Enqueue, Failure, Granted, Operation, Predecessors, Recorded, Rest, Runnable, SubmittedOp,
};
use crate::error::{BoxError, Error, Kind, Result, Site, panic_message, shielded};
use crate::plan::Placed;
use crate::runtime::{Begun, Ended, LaneId, Submission, inside, when_reached};
use crate::sync::OnceLock;

impl EngineCore {
    /// Submits a kernel that has been granted its variables, now or when there is room on its lane.
    pub(super) fn enqueue(self: &Arc<Self>, mut operation: Runnable, kernel: Enqueue, batch: &mut Batch<'_>) {
        let mut granted = self.slots.granted(&mut operation);
        let lanes = self.lanes.as_ref().expect("only with devices kernels are left to be enqueued");
        let target = granted.kernel().expect("it is one");
        let predecessors = Predecessors::of(&granted);
        let (lane, placed) = lanes.place(target, &predecessors);
        let before = |&place: &usize| &predecessors.0[place].device_use;
        let events: Option<SmallVec<[Arc<Recorded>; 4]>> = placed.waits.iter().map(|place| before(place).event()).collect();
        let backlog = lanes.devices.device(lane).backlog(lane.lane);
        if let (Some(events), None) = (events, backlog) {
            return self.submit(operation, kernel, Chosen { lane, placed, predecessors, events }, batch);
        }
        // A predecessor without an event: none was recorded, or it has ended meanwhile.
        let blind = placed.waits.iter().map(before).find(|before| before.event().is_none()).cloned();
        lanes.placer().withdraw(placed);
        granted.set_body(|_, rest| {
            *rest = Rest::Kernel(kernel);
            Ok(())
        });
        match (blind, backlog) {
            // If it has ended, this operation is ready again at once.
            (Some(before), _) => batch.ready.extend(before.ending.wake_later(operation)),
            // It is ready again when its lane has room.
            (None, Some(point)) => self.when_reached(lane, point, |core, outcome| match outcome {
                Ok(()) => core.make_ready(operation),
                // A second try would get the same error, as long as the lane has its fault.
                Err(error) => core.fail(operation, error),
            }),
            (None, None) => batch.ready.push(operation),
        }
    }

    /// Calls `act` when a lane has reached a point.
    fn when_reached(self: &Arc<Self>, lane: LaneId, point: u64, act: impl FnOnce(&Arc<Self>, Result<()>) + Send + 'static) {
        let (core, lanes) = (self.clone(), self.lanes.as_ref().expect("the lane is of one"));
        when_reached(&lanes.devices, lane, point, move |outcome| {
            act(&core, outcome);
            // This may be the last reference: dropping the engine drops foreign values.
            let _ = shielded(|| drop(core));
        });
    }

    fn submit(self: &Arc<Self>, mut operation: Runnable, kernel: Enqueue, chosen: Chosen, batch: &mut Batch<'_>) {
        let number = operation.number();
        let mut granted = self.slots.granted(&mut operation);
        let lanes = self.lanes.as_ref().expect("the lane is of one");
        let Chosen { lane, placed, predecessors, events } = chosen;
        let faults = lanes.devices.faults();
        let (outcome, end, begun) = self.submit_to(lanes, lane, number, &mut granted, kernel, &events);
        drop(events);
        let Some(End { point, event, has_waited }) = end else {
            lanes.placer().withdraw(placed);
            self.take_effect(&granted, outcome.as_ref().err());
            return self.end(operation, outcome, batch);
        };
        let stamp = lanes.placer().submitted(placed, point, has_waited);
        let device_use = Arc::new(DeviceUse::new(&lanes.devices, lane, stamp, event));
        let failure = Failure::new(OnceLock::new());
        for (access, variable) in granted.variables() {
            variable.device_uses.add(access.mode(), &device_use, &failure);
        }
        self.take_effect(&granted, outcome.as_ref().err());
        let operation = batch.leave(operation);
        let inputs = predecessors.inputs();
        // Must precede `when_reached`: the operation may end there.
        predecessors.release();
        let submitted = SubmittedOp { operation, device_use, failure, inputs, faults, error: outcome.err(), begun };
        self.when_reached(lane, point, |core, outcome| core.complete(Completed { submitted, outcome }));
    }

    /// Calls a kernel's body, and submits its work. Returns the outcome, the end of the work if the device
    /// was given any, and the report of it if observers get that at the end.
    fn submit_to(
        &self,
        lanes: &Lanes,
        lane: LaneId,
        number: u32,
        operation: &mut Granted<'_>,
        kernel: Enqueue,
        events: &[Arc<Recorded>],
    ) -> (Result<()>, Option<End>, Option<Begun>) {
        let site = || Site { node: operation.full_name().into(), stream: format!("lane {}", lane.lane) };
        let site = lanes.devices.sanitizer().map(|_| site());
        let (mut called, mut refusal, mut kernel) = (Ok(()), Refusal { error: None, site }, Some(kernel));
        let mut begun = self.begin_now(operation, number);
        let waits = &mut events.iter().map(|recorded| recorded.event);
        let Submission { outcome, point } = Submission::new(lanes.devices.device(lane), lane.lane, waits, |stream| {
            stream.queue_mut().begin_part(Part { stream: 0, waits: &[], is_awaited: false });
            let kernel = kernel.take().expect("it is recorded once");
            let enqueue = AssertUnwindSafe(|| operation.enqueue(kernel, StreamMut::Device(stream)));
            called = self
                .around(&mut begun, || inside(self.address(), || catch_unwind(enqueue)))
                .map_err(|panic| operation.panicked(panic_message(panic)))
                .and_then(|called| called.map_err(|cause| operation.failed_on_device(cause)));
            if called.is_err() {
                stream.queue_mut().abandon_part();
            }
            // Submitted even if the body failed: memory that it has dropped, and work of a library, need a
            // known end.
            Ok(queue::Job { key: None, is_recorded: lanes.has_waits(), judge: &mut refusal })
        });
        let _ = shielded(|| drop(kernel));
        let refused = refusal.error.or(outcome.as_ref().err().cloned());
        let result = called.and(refused.map_or(Ok(()), |error| Err(operation.failed_on_device(error.into()))));
        let submitted = outcome.as_ref().ok().map(|submitted| (submitted, lane));
        let begun = self.submit_observed(operation, begun, Ended::of(result.is_ok()), submitted);
        let event = outcome.as_ref().ok().and_then(|submitted| submitted.event);
        (result, point.map(|point| End { point, event, has_waited: outcome.is_ok() }), begun)
    }

    /// Ends a pending operation that cannot continue.
    fn fail(self: &Arc<Self>, mut operation: Runnable, cause: Error) {
        let mut granted = self.slots.granted(&mut operation);
        let _ = shielded(|| granted.discard_body());
        let error = granted.failed_on_device(cause.into());
        self.take_effect(&granted, Some(&error));
        let mut batch = Batch::new(&self.slots);
        self.end(operation, Err(error), &mut batch);
        self.give_back(&mut batch);
        self.start(&mut batch);
    }

    /// Ends an operation whose lane has come to its end, and the operations whose completions waited for it.
    fn complete(self: &Arc<Self>, completed: Completed) {
        // A loop, because a chain of completions may be longer than the stack allows.
        let mut all: SmallVec<[Completed; 4]> = SmallVec::new();
        all.push(completed);
        while let Some(completed) = all.pop() {
            if let Some(completed) = completed.after_inputs() {
                all.extend(self.end_on_device(completed));
            }
        }
    }

    /// Ends an operation that its device has finished, or will never finish. Returns the completions that
    /// waited for it.
    fn end_on_device(self: &Arc<Self>, Completed { submitted, outcome }: Completed) -> Vec<Completed> {
        let SubmittedOp { operation: left, device_use, failure, inputs, faults, error, begun } = submitted;
        let (operation, lanes) = (self.slots.left(&left), self.lanes.as_ref().expect("it was submitted to one"));
        let is_known = error.is_some();
        let outcome = outcome.and_then(|()| lanes.check_faults(device_use.lane, faults));
        let failed = error.or_else(|| Some(operation.failed_on_device(outcome.err()?.into()))).or_else(|| {
            let origin = inputs.iter().find_map(|(_, input)| input.get())?.origin().clone();
            let because = origin.node().unwrap_or("an operation").to_owned();
            Some(Error::with_source(Kind::ResultLost { operation: operation.name.to_cow(), because }, Box::new(origin)))
        });
        lanes.placer().end(device_use.stamp.stream);
        if let Some(begun) = begun {
            self.end_submitted(operation, begun, Ended::of(failed.is_none()));
        }
        if let Some(error) = failed.as_ref().filter(|_| !is_known) {
            self.report(operation, error);
        }
        if let Some(error) = &failed {
            let _ = failure.set(error.clone());
        }
        let (waiting, followers) = device_use.end(failed.is_none());
        // Must precede all that follows: an error that no handle or read gives is given by `idle` when its
        // last clone is dropped. Each is dropped apart, because it may hold foreign values.
        let _ = shielded(|| drop((device_use, failure)));
        inputs.into_iter().for_each(|input| _ = shielded(|| drop(input)));
        waiting.into_iter().for_each(|waiting| self.make_ready(waiting));
        let mut batch = Batch::new(&self.slots);
        self.end_left(left, failed.map_or(Ok(()), Err), &mut batch);
        self.give_back(&mut batch);
        followers
    }
}

impl Operation {
    fn failed_on_device(&self, cause: BoxError) -> Error {
        match cause.downcast::<Error>() {
            // The next submission gets the error of a lost device, whichever work caused the loss.
            Ok(error) if error.is_device_lost() => *error,
            Ok(error) => self.failed_with(error),
            Err(cause) => self.failed_with(cause),
        }
    }
}

/// The lane of a kernel, and the events that it waits for there.
struct Chosen {
    lane: LaneId,
    placed: Placed,
    predecessors: Predecessors,
    events: SmallVec<[Arc<Recorded>; 4]>,
}

/// The end of a kernel's work on its lane.
struct End {
    point: u64,
    event: Option<Event>,
    /// Whether the lane has waited for all predecessors.
    has_waited: bool,
}

/// The device's refusal of a kernel's work.
struct Refusal {
    error: Option<Error>,
    /// The names of the work, if the order is checked.
    site: Option<Site>,
}

impl Judge for Refusal {
    fn refused(&mut self, _: u32, error: Error) {
        self.error.get_or_insert(error);
    }

    fn goes_on(&mut self, _: u32) -> bool {
        false
    }

    fn site(&self, _: u32) -> Site {
        self.site.clone().expect("only a device whose order is checked asks")
    }
}
