//! Devices that queue work: where segments are submitted to, and what happens when the device comes to their
//! ends.
//!
//! ```text
//! submit(segment) ──▶ waits · its nodes · mark · record ──▶ programs that only need it submitted go on
//!                                                  └────▶ the reactor hears of the point ──▶ `Completion` wakes ──▶ what needs it reached goes on
//! ```
//! A completion keeps its run alive, and counts down the same gates as workers do.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::fates::fate;
use super::inner::{Live, RunInner};
use super::state;
use crate::bridge::{Pace, Reactor, RemoteLane, WaiterKey, shielded};
use crate::device::host::{Ticket, aside};
use crate::device::queue::{Event, Fault, QueueDevice};
use crate::error::{Error, Kind, Result};
use crate::graph::NodeId;
use crate::plan::code::{Home, Segment, Target, flag};
use crate::sync::{AtomicBool, Ordering};
use crate::value::Access;

/// The devices of an executor that queue work, and the thread that watches them.
pub(crate) struct Queues {
    devices: Vec<Queued>,
    reactor: Reactor,
}

/// One of them.
struct Queued {
    device: Arc<dyn QueueDevice>,
    /// Its first lane among all of the reactor's.
    first: usize,
    lanes: u32,
}

/// A lane of a device, as runs and operations use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Berth {
    pub(crate) device: usize,
    pub(crate) lane: u32,
}

impl Queues {
    pub(super) fn start(devices: Vec<Arc<dyn QueueDevice>>, pace: Pace) -> Result<Self> {
        let (mut lanes, mut queued) = (Vec::new(), Vec::new());
        for (number, device) in devices.into_iter().enumerate() {
            let first = lanes.len();
            lanes.extend(device.timelines().into_iter().map(|timeline| Arc::new(RemoteLane::new(timeline, number as u32))));
            queued.push(Queued { device, first, lanes: (lanes.len() - first) as u32 });
        }
        let reactor = Reactor::start(lanes, pace).map_err(|cause| Error::with_source(Kind::Thread, Box::new(cause)))?;
        Ok(Self { devices: queued, reactor })
    }

    /// Returns where a program of a run goes.
    ///
    /// # Errors
    /// If the executor has no such device.
    pub(super) fn berth(&self, run: &RunInner, live: &Live, program: u32) -> Result<Berth> {
        let Home { device, id, .. } = run.code().homes[program as usize];
        let Some(queued) = self.devices.get(device as usize) else {
            return Err(Kind::NoSuchDevice { device, count: self.devices.len() }.into());
        };
        // Runs in flight begin at different lanes, so that they meet late.
        Ok(Berth { device: device as usize, lane: id.wrapping_add(live.flight) % queued.lanes })
    }

    /// Returns how many lanes each device has.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = u32> {
        self.devices.iter().map(|queued| queued.lanes)
    }

    pub(crate) fn device(&self, berth: Berth) -> &dyn QueueDevice {
        &*self.devices[berth.device].device
    }

    pub(super) fn quarantined(&self) -> usize {
        self.devices.iter().map(|queued| queued.device.quarantined()).sum()
    }

    /// Frees what was dropped, now or when its last use is over.
    pub(crate) fn collect(self: &Arc<Self>) {
        for (number, queued) in self.devices.iter().enumerate() {
            while let Some((lane, point)) = queued.device.collect() {
                let waker = Waker::from(Arc::new(Collection(self.clone())));
                match self.poll(Berth { device: number, lane }, point, waker) {
                    Poll::Ready(Ok(())) => {}
                    // Of a lost device the next collection keeps all from use.
                    Poll::Ready(Err(fault)) if fault.is_fatal => _ = queued.device.judge(&fault),
                    Poll::Ready(Err(_)) | Poll::Pending => break,
                }
            }
        }
    }

    /// Returns how many faults that were not fatal were found on the lanes.
    pub(crate) fn faults(&self) -> u64 {
        self.reactor.faults().found()
    }

    /// Returns the error for a fault of one of these lanes, after the first `found` faults. Drivers do not
    /// say which work of a lane has failed.
    #[cold]
    pub(crate) fn fault_since(&self, found: u64, is_used: impl Fn(Berth) -> bool) -> Option<Error> {
        let berth = |lane: usize| {
            let device = self.devices.partition_point(|queued| queued.first <= lane) - 1;
            Berth { device, lane: (lane - self.devices[device].first) as u32 }
        };
        let fault = self.reactor.faults().since(found, |lane| is_used(berth(lane)))?;
        Some(Kind::Driver { code: fault.code, name: fault.name }.into())
    }

    /// Returns how the wait for a point ended. If it has not, the waker is woken when it may have.
    pub(crate) fn poll(&self, berth: Berth, point: u64, waker: Waker) -> Poll<Result<(), Fault>> {
        let lane = self.devices[berth.device].first + berth.lane as usize;
        self.reactor.poll(lane, point, &mut WaiterKey::default(), &mut Context::from_waker(&waker))
    }
}

/// Frees, when it is dropped, what a run has left on its devices: values that nobody took, of a run that was
/// dropped or that failed.
pub(super) struct Sweep(pub(super) Option<Arc<Queues>>);

impl Drop for Sweep {
    fn drop(&mut self) {
        self.0.iter().for_each(Queues::collect);
    }
}

/// Frees a device's dropped memory when woken.
struct Collection(Arc<Queues>);

impl Wake for Collection {
    fn wake(self: Arc<Self>) {
        self.0.collect();
    }
}

/// A segment of a run that a device is at.
struct Completion {
    run: Arc<RunInner>,
    step: u32,
    berth: Berth,
    point: u64,
    is_over: AtomicBool,
}

impl Wake for Completion {
    fn wake(self: Arc<Self>) {
        let queues = self.run.queues();
        // Who registers may find that the point has passed while the reactor is on its way to wake.
        if let Poll::Ready(outcome) = queues.poll(self.berth, self.point, Waker::from(self.clone()))
            && !self.is_over.swap(true, Ordering::AcqRel)
        {
            let outcome = outcome.map_err(|fault| queues.device(self.berth).judge(&fault));
            self.run.end_step(self.step, outcome.and_then(|()| self.run.check_faults()));
        }
        // The last owner drops what bodies and errors hold: foreign code.
        let _ = shielded(|| drop(self));
    }
}

/// A program that goes on when there is room on its lane.
struct Resumption {
    run: Arc<RunInner>,
    program: u32,
    berth: Berth,
    point: u64,
    is_over: AtomicBool,
}

impl Wake for Resumption {
    fn wake(self: Arc<Self>) {
        let queues = self.run.queues();
        if let Poll::Ready(outcome) = queues.poll(self.berth, self.point, Waker::from(self.clone()))
            && !self.is_over.swap(true, Ordering::AcqRel)
        {
            if let Err(fault) = outcome {
                self.run.fail_program(self.program, &queues.device(self.berth).judge(&fault));
            }
            self.run.follow(Target::Start { first: self.program, count: 1 });
        }
        let _ = shielded(|| drop(self));
    }
}

impl RunInner {
    pub(super) fn queues(&self) -> &Arc<Queues> {
        self.core.queues.as_ref().expect("a run is queued only by an executor with such a device")
    }

    /// Returns the name of the device that a node is queued on, if it is.
    pub(super) fn device_of(&self, node: NodeId) -> Option<String> {
        let (code, queues, live) = (self.code(), self.core.queues.as_ref()?, self.live.get()?);
        let step = code.step_of[node.index()];
        let is_queued = code.steps[step as usize].flags & flag::SEGMENT != 0;
        let berth = queues.berth(self, live, code.program_of(step));
        is_queued.then(|| berth.map_or_else(|_| "this executor".into(), |berth| queues.device(berth).name()))
    }

    /// Ends a step when its device has come to a point.
    pub(super) fn await_device(self: Arc<Self>, step: u32, berth: Berth, point: u64) {
        Arc::new(Completion { run: self, step, berth, point, is_over: AtomicBool::new(false) }).wake();
    }

    /// Awaits a segment for someone who watches a node of it, if nobody does so yet and it is submitted.
    pub(super) fn await_segment(&self, live: &Live, step: u32) {
        let code = self.code();
        let program = code.program_of(step);
        // ORDERING: AcqRel: whoever takes the point awaits it, once. Of "store it, look for watchers" and
        // "watch, look for it" one side sees the other, by the barrier of `RunInner::watch`.
        let point = live.points[code.segment_index(step)].swap(0, Ordering::AcqRel);
        if point != 0
            && let Ok(berth) = self.queues().berth(self, live, program)
        {
            self.me().await_device(step, berth, point);
        }
    }

    /// Lets a parked program go on once a point has passed.
    pub(super) fn resume_after(&self, program: u32, berth: Berth, point: u64) {
        Arc::new(Resumption { run: self.me(), program, berth, point, is_over: AtomicBool::new(false) }).wake();
    }

    /// Returns an error if a lane that the run uses had a fault since the run began. Then the run's results
    /// may be wrong, earlier ones too.
    fn check_faults(&self) -> Result<()> {
        let (queues, live) = (self.queues(), self.live.get().expect("a step of it was submitted"));
        if queues.faults() == live.faults {
            return Ok(());
        }
        let is_used = |berth| self.code().segments.iter().any(|segment| self.uses(live, segment, berth));
        queues.fault_since(live.faults, is_used).map_or(Ok(()), Err)
    }

    /// Returns true if a segment may use a lane.
    fn uses(&self, live: &Live, segment: &Segment, berth: Berth) -> bool {
        let own = self.queues().berth(self, live, self.code().program_of(segment.step));
        let members = self.code().members_of(segment);
        // A segment of several streams is spread over lanes of its device.
        let is_spread = members.iter().any(|member| member.stream != members[0].stream);
        own.is_ok_and(|own| own == berth || is_spread && own.device == berth.device)
    }

    /// A segment is done, or its device is lost. Whoever calls this keeps the run alive.
    fn end_step(&self, step: u32, outcome: Result<()>) {
        let code = self.code();
        if let Err(error) = outcome {
            self.fail_nodes(step, &error);
        }
        if self.state.glance() & state::WATCHED != 0 {
            let program = code.program_of(step);
            self.signal_watchers(program, step + 1 - code.starts[program as usize]);
        }
        for &target in code.reached_targets(code.segment(step)) {
            self.follow(target);
        }
    }

    /// Fails what a program that is parked would do next.
    fn fail_program(&self, program: u32, error: &Error) {
        let live = self.live.get().expect("a program of it is parked");
        // ORDERING: Acquire pairs with the Release of the store when the program parked.
        let place = live.places[program as usize].load(Ordering::Acquire);
        self.fail_nodes(place >> 1, error);
    }

    /// Fails the nodes of a step of which nothing is known to have gone wrong before. Which of them did it
    /// nobody knows, so none is named.
    fn fail_nodes(&self, step: u32, error: &Error) {
        let unknown = self.code().nodes_of(step).filter(|&node| self.fate(node) == 0);
        unknown.for_each(|node| self.set_fate(node, fate::FAILED, Some(error.clone())));
    }

    /// Fails a node of which nothing is known to have gone wrong before.
    pub(super) fn fail_unless_known(&self, node: NodeId, error: &Error) {
        if self.fate(node) == 0 {
            self.set_fate(node, fate::FAILED, Some(self.blame(node).failed(Box::new(error.clone()))));
        }
    }

    /// Follows a target from outside of the workers.
    fn follow(&self, mut target: Target) {
        let live = self.live.get().expect("a step of it was submitted");
        let pool = self.core.pool.as_ref().expect("an executor with devices has workers");
        loop {
            match target {
                Target::Start { first, count } => return pool.submit(Ticket::new(live.slot, first, count)),
                Target::Arrive(gate) if live.gates[gate as usize].arrive::<true>() => {
                    target = self.code().gates[gate as usize].then;
                }
                Target::Arrive(_) => return,
                Target::Release(node) => return self.release(node),
                Target::End => return Self::finish(self.me()),
            }
        }
    }

    /// Drops the value of a node, whose last reader is done.
    pub(super) fn release(&self, node: NodeId) {
        let (code, live) = (self.code(), self.live.get().expect("a node of it is done"));
        let body = code.body(node);
        // SAFETY: the plan releases a value after its last reader, and the countdown makes this the last of
        // several releases.
        let cells = unsafe { live.frame.cells(Access::Tagged) };
        if let Err(message) = aside(|| shielded(|| body.release(cells))) {
            let message = format!("dropping its value: {message}");
            self.add_fault(Some(node), self.blame(node).panicked(message));
        }
    }

    /// Gives the run's events back.
    pub(super) fn free_events(&self, live: &Live) {
        self.free_events_of(live, &self.code().segments);
    }

    /// Gives the events of segments back, which are done.
    pub(super) fn free_events_of(&self, live: &Live, segments: &[Segment]) {
        let Some(queues) = &self.core.queues else { return };
        for segment in segments {
            let Some(slot) = segment.event else { continue };
            // ORDERING: Relaxed, here and where it is stored: gates order it.
            let handle = live.events[slot as usize].swap(0, Ordering::Relaxed);
            if handle != 0
                && let Ok(berth) = queues.berth(self, live, self.code().program_of(segment.step))
            {
                queues.device(berth).free_events(&mut std::iter::once(Event(handle as usize)));
            }
        }
    }
}
