//! How a kernel gets onto a device, and what happens when the device comes to its end.
//!
//! ```text
//! all granted ──▶ place ──▶ begin · body · submit ──▶ note the point, leave the queues ──▶ those behind it are granted
//!                                                └──▶ the reactor hears of the point ──▶ `Completion`: the handle, and who waits on the host
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use smallvec::SmallVec;

use super::body::{Ran, Work};
use super::devices::{Devices, WaitForRoom};
use super::done::{Done, Fate, Recorded};
use super::hand::Hand;
use super::hub::Hub;
use super::kernel::Enqueue;
use super::op::Job;
use super::trail::{Need, Needs};
use crate::bridge::shielded;
use crate::device::StreamMut;
use crate::device::queue::{self, Event, Judge, Part};
use crate::error::{BoxError, Error, Kind, Result, panic_message};
use crate::exec::{Berth, inside};
use crate::plan::Placed;
use crate::sync::{AtomicBool, Mutex, OnceLock, lock};

/// A kernel that has to wait before it can be submitted.
struct Again(Box<dyn Enqueue>);

impl Work for Again {
    unsafe fn run(self) -> Result<Ran, BoxError> {
        Ok(Ran::Enqueue(self.0))
    }
}

impl Hub {
    /// Has a kernel submitted that all is granted to, now or when there is room for it.
    pub(super) fn enqueue(self: &Arc<Self>, number: u32, kernel: Box<dyn Enqueue>, hand: &mut Hand<'_>) {
        // SAFETY: this thread runs it.
        let job = unsafe { self.slots.get(number).job() };
        let devices = self.devices.as_ref().expect("only with devices kernels are left to be enqueued");
        let target = job.kernel().expect("it is one");
        let needs = Needs::of(job);
        let (berth, placed) = devices.place(target, &needs);
        let events: Option<SmallVec<[Arc<Recorded>; 4]>> =
            placed.waits.iter().map(|&place| needs.list()[place].done.event()).collect();
        let room = devices.device(berth).backlog(berth.lane);
        match (events, room) {
            (Some(events), None) => self.submit(number, kernel, Chosen { berth, placed, needs, events }, hand),
            (None, _) => {
                // What it waits for was refused in part, or is over by now: then it is ready again at once.
                let blind = placed.waits.iter().map(|&place| &needs.list()[place].done).find(|done| done.event().is_none());
                let blind = blind.cloned();
                devices.withdraw(placed);
                // SAFETY: this thread runs it, alone.
                unsafe { job.go_on_with(Again(kernel)) };
                if !blind.is_some_and(|done| done.wakes(number)) {
                    hand.ready.push(number);
                }
            }
            (Some(_), Some(point)) => {
                devices.withdraw(placed);
                // SAFETY: as above.
                unsafe { job.go_on_with(Again(kernel)) };
                let hub = self.clone();
                Arc::new(WaitForRoom { hub, number, berth, point, is_over: AtomicBool::new(false) }).wake();
            }
        }
    }

    fn submit(self: &Arc<Self>, number: u32, kernel: Box<dyn Enqueue>, chosen: Chosen, hand: &mut Hand<'_>) {
        // No argument: it is gone when the device is done with it, perhaps before this returns.
        let spot = self.slots.spot(number);
        // SAFETY: this thread runs it.
        let job = unsafe { spot.slot.job() };
        let devices = self.devices.as_ref().expect("the lane is of one");
        let Chosen { berth, placed, needs, events } = chosen;
        let faults = devices.queues.faults();
        let (outcome, end) = self.submit_to(devices, berth, job, kernel, &events);
        drop(events);
        let Some(End { point, event, has_waited }) = end else {
            devices.withdraw(placed);
            self.take_effect(job, outcome.as_ref().err());
            return self.end(spot, outcome, hand);
        };
        let stamp = devices.submitted(placed, point, has_waited);
        let (done, fate) = (Arc::new(Done::new(&devices.queues, berth, stamp, event)), Fate::new(OnceLock::new()));
        for asked in &job.asked {
            // SAFETY: granted.
            unsafe { asked.place() }.trail.note(asked.how(), &done, &fate);
        }
        self.take_effect(job, outcome.as_ref().err());
        self.leave_queues(spot, hand);
        let may_fail = |need: &Need| {
            let input = need.input.clone().filter(|input| !need.done.is_over() || input.get().is_some())?;
            Some((need.done.clone(), input))
        };
        let inputs = needs.list().iter().filter_map(may_fail).collect();
        // Before it can end, as above.
        needs.let_go();
        let left = Mutex::new(Some(Left { done, fate, inputs, faults, failure: outcome.err() }));
        Arc::new(Completion { hub: self.clone(), number, berth, point, left }).wake();
    }

    /// Has a kernel's body called, and what it asks for submitted. Returns how that went, and the point and
    /// event of its end, if there is one to wait for.
    fn submit_to(
        &self,
        devices: &Devices,
        berth: Berth,
        job: &Job,
        kernel: Box<dyn Enqueue>,
        events: &[Arc<Recorded>],
    ) -> (Result<()>, Option<End>) {
        let device = devices.device(berth);
        let mut stream = match device.begin(berth.lane, &mut events.iter().map(|recorded| recorded.event)) {
            Ok(stream) => stream,
            Err(error) => {
                let _ = shielded(|| drop(kernel));
                return (Err(job.failed_on_device(error.into())), None);
            }
        };
        stream.begin_part(Part { stream: 0, waits: &[], is_awaited: false });
        // SAFETY: all that it asked for was granted.
        let enqueue = AssertUnwindSafe(|| unsafe { kernel.enqueue(StreamMut::Device(&mut stream)) });
        let called = inside(self.place(), || catch_unwind(enqueue));
        let outcome = called
            .map_err(|panic| job.panicked(panic_message(panic)))
            .and_then(|called| called.map_err(|cause| job.failed_on_device(cause)));
        if outcome.is_err() {
            stream.abandon_part();
        }
        let mut refusal = Refusal(None);
        // Also if it failed: what it has let go of, and what a library has enqueued, is to be over at a point
        // that is known.
        let submitted =
            device.submit(stream, &mut queue::Job { key: None, is_recorded: devices.has_waits(), judge: &mut refusal });
        let outcome = outcome.and(refusal.0.map_or(Ok(()), |error| Err(job.failed_on_device(error.into()))));
        match submitted {
            Ok(submitted) => (outcome, Some(End { point: submitted.point, event: submitted.event, has_waited: true })),
            // What was enqueued before the refusal must be over, too.
            Err(error) => {
                let end = device.mark(berth.lane).ok().map(|point| End { point, event: None, has_waited: false });
                (outcome.and(Err(job.failed_on_device(error.into()))), end)
            }
        }
    }

    /// Ends an operation that is pending and cannot go on.
    pub(super) fn fail(self: &Arc<Self>, number: u32, cause: Error) {
        let spot = self.slots.spot(number);
        // SAFETY: it is put aside, and who calls this is the only one to take it up again.
        let job = unsafe { spot.slot.job() };
        // SAFETY: as above.
        let _ = shielded(|| unsafe { job.forgo() });
        let error = job.failed_on_device(cause.into());
        let mut hand = Hand::new(self);
        self.take_effect(job, Some(&error));
        self.end(spot, Err(error), &mut hand);
        hand.give_back();
        self.start(&mut hand);
    }

    /// Ends an operation that the device has finished, or will never finish. Returns the ends that follow it.
    fn end_on_device(self: &Arc<Self>, number: u32, left: Left, outcome: Result<()>) -> Vec<Arc<Completion>> {
        let Left { done, fate, inputs, failure, .. } = left;
        let (spot, devices) = (self.slots.spot(number), self.devices.as_ref().expect("it was submitted to one"));
        // SAFETY: its slot is given back only below.
        let job = unsafe { spot.slot.job() };
        let is_heard = failure.is_some();
        let failed = failure.or_else(|| Some(job.failed_on_device(outcome.err()?.into()))).or_else(|| {
            let origin = inputs.iter().find_map(|(_, input)| input.get())?.origin().clone();
            let because = origin.node().unwrap_or("an operation").to_owned();
            Some(Error::with_source(Kind::DoneInVain { operation: job.name.to_cow(), because }, Box::new(origin)))
        });
        devices.end(&done);
        if let Some(error) = failed.as_ref().filter(|_| !is_heard) {
            self.tell_idle(job, error);
        }
        if let Some(error) = &failed {
            let _ = fate.set(error.clone());
        }
        let waiting = done.end(failed.is_none());
        let followers = done.followers();
        // Before anything goes on: what nobody was told is told by `idle` when the last has let go of it.
        // What they drop is foreign, each for itself.
        let _ = shielded(|| drop((done, fate)));
        inputs.into_iter().for_each(|input| _ = shielded(|| drop(input)));
        waiting.into_iter().for_each(|waiting| self.make_ready(waiting));
        let mut hand = Hand::new(self);
        self.leave_scope(spot);
        self.watchers.end(spot, failed.map_or(Ok(()), Err));
        hand.release_looks(spot, 1);
        hand.give_back();
        followers
    }
}

impl Job {
    fn failed_on_device(&self, cause: BoxError) -> Error {
        match cause.downcast::<Error>() {
            // Whoever submits next hears of a loss: it need not be the work that did it.
            Ok(error) if error.is_device_lost() => *error,
            Ok(error) => self.failed(error),
            Err(cause) => self.failed(cause),
        }
    }
}

/// Where a kernel goes, and behind what.
struct Chosen {
    berth: Berth,
    placed: Placed,
    needs: Needs,
    events: SmallVec<[Arc<Recorded>; 4]>,
}

/// Where a kernel's work ends on its lane.
struct End {
    point: u64,
    event: Option<Event>,
    /// Whether the lane has waited for all that it was to wait for.
    has_waited: bool,
}

/// What the device has refused of a kernel's work.
struct Refusal(Option<Error>);

impl Judge for Refusal {
    fn refused(&mut self, _: u32, error: Error) {
        self.0.get_or_insert(error);
    }

    fn goes_on(&mut self, _: u32) -> bool {
        false
    }
}

/// An operation that a device is at.
pub(super) struct Completion {
    hub: Arc<Hub>,
    number: u32,
    berth: Berth,
    point: u64,
    /// Taken by who ends it.
    left: Mutex<Option<Left>>,
}

/// What is left of an operation that was submitted.
struct Left {
    done: Arc<Done>,
    fate: Fate,
    /// What it reads from, as far as that was not known to have gone well.
    inputs: SmallVec<[(Arc<Done>, Fate); 2]>,
    /// The number of lane faults found before it was submitted.
    faults: u64,
    /// What went wrong when it was submitted.
    failure: Option<Error>,
}

impl Completion {
    /// Ends the operation if its device has finished it. Returns the ends that follow it.
    fn go_on(self: &Arc<Self>) -> Vec<Arc<Completion>> {
        let devices = self.hub.devices.as_ref().expect("it was submitted to one");
        // Who registers may find that the point has passed while the reactor is on its way to wake.
        let Poll::Ready(outcome) = devices.queues.poll(self.berth, self.point, Waker::from(self.clone())) else {
            return Vec::new();
        };
        if outcome.is_ok() && self.follows_inputs() {
            return Vec::new();
        }
        let Some(left) = lock(&self.left).take() else { return Vec::new() };
        let outcome = outcome.map_err(|fault| devices.device(self.berth).judge(&fault));
        let outcome = outcome.and_then(|()| devices.check_faults(self.berth, left.faults));
        self.hub.end_on_device(self.number, left, outcome)
    }

    /// Makes this end follow the first pending end that the operation reads from, because that one may report
    /// a failure. The host may hear of the later one first. Returns true if there is one.
    fn follows_inputs(self: &Arc<Self>) -> bool {
        lock(&self.left).as_ref().is_some_and(|left| left.inputs.iter().any(|(done, _)| done.precedes(self)))
    }
}

impl Wake for Completion {
    fn wake(self: Arc<Self>) {
        // A loop, because chains of ends may be longer than the stack allows.
        let mut ends: SmallVec<[Arc<Self>; 4]> = SmallVec::new();
        ends.push(self);
        while let Some(end) = ends.pop() {
            ends.extend(end.go_on());
            // Perhaps the last that holds the engine, and errors: what they drop is foreign.
            let _ = shielded(|| drop(end));
        }
    }
}
