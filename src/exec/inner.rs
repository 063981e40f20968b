//! One run's own data: what its programs, its futures and its canceller share.

use std::sync::{Arc, Weak};
use std::task::Poll;

use smallvec::SmallVec;

use super::asyncs::Driver;
use super::conduct;
use super::control::ControlState;
use super::core::Core;
use super::countdown::Countdown;
use super::queues::Sweep;
use super::serial::Turn;
use super::state::{self, State};
use super::{Inputs, Outputs};
use crate::bridge::{Held, Lane, Wakeset, shielded};
use crate::device::host::{Entry, Progress, Ticket, aside};
use crate::error::{Error, Kind, Result};
use crate::graph::NodeId;
use crate::plan::code::{Code, flag};
use crate::plan::{Plan, PlanInner};
use crate::sync::{AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, lock};
use crate::value::{Access, Cells, Frame};

/// The point of a run's own lane that says: complete.
pub(super) const COMPLETE: u64 = 1;
/// A point beyond every step of a program, but below the one that idle waiters wait for.
const BEYOND: u64 = u64::MAX - 1;

pub(super) struct RunInner {
    /// Lets the last step keep the run alive while it says that it was the last.
    me: Weak<RunInner>,
    pub(super) plan: Plan,
    /// What observers know the run by.
    pub(super) number: u64,
    pub(super) core: Arc<Core>,
    pub(super) state: State,
    /// Reaches [`COMPLETE`] once; rung when an async node was woken.
    pub(super) lane: Arc<Lane>,
    /// Its place on a stream of runs.
    serial: Option<Turn>,
    pub(super) start: Mutex<Start>,
    pub(super) live: OnceLock<Live>,
    pub(super) driver: Mutex<Driver>,
    /// Where the poll of an inline run is.
    pub(super) progress: Progress,
    /// Why the run fails; with the node that each is about, if it is about one.
    pub(super) faults: Mutex<Vec<(Option<NodeId>, Error)>>,
    /// What became of each node, once one has failed. A small run needs no memory for it.
    pub(super) fates: OnceLock<SmallVec<[AtomicU32; 4]>>,
    /// A lane for each program, once a node is awaited; made for those programs only whose nodes are.
    watched: OnceLock<Box<[OnceLock<Arc<Lane>>]>>,
    pub(super) verdict: OnceLock<Result<()>>,
    /// Keeps the run from its drop to its end.
    pub(super) held: Held<Self>,
    /// Last: it comes behind the values.
    _sweep: Sweep,
}

/// What a run holds until it starts.
pub(super) enum Start {
    /// `turn` is its place in the queue; `place` its place among those in flight, if it has one already.
    Waiting {
        inputs: Inputs,
        turn: u64,
        place: Option<u32>,
    },
    /// It has taken its place, and whoever gets its first ticket makes its memory: a worker, if there are
    /// any, so that memory is made where it is used and not in a poll.
    Boarding {
        inputs: Inputs,
        flight: u32,
    },
    Started,
}

/// What a run has from its start on.
pub(super) struct Live {
    pub(super) frame: Frame,
    /// The countdowns of the plan's gates.
    pub(super) gates: Box<[Countdown]>,
    /// Where each program goes on: twice its step, plus one when the step's body is done.
    pub(super) places: Box<[AtomicU32]>,
    /// The events that streams of a device wait for; 0 until recorded.
    pub(super) events: Box<[AtomicU64]>,
    /// The end of each segment that nobody awaits yet, as a point of its lane; 0 until it is submitted, and
    /// once somebody does.
    pub(super) points: Box<[AtomicU64]>,
    /// The number of lane faults found when it began.
    pub(super) faults: u64,
    pub(super) wakes: Option<Arc<Wakeset>>,
    /// Where the run is with each loop and branch.
    pub(super) controls: Box<[ControlState]>,
    /// The run's entry in the pool; 0 for inline runs.
    pub(super) slot: u16,
    /// The run's place among those in flight.
    pub(super) flight: u32,
}

impl RunInner {
    pub(super) fn new(core: &Arc<Core>, plan: &Plan, inputs: Inputs, join: impl FnOnce(&Arc<Lane>) -> Option<Turn>) -> Arc<Self> {
        let observed = if core.observer.is_some() || core.rehearsal.is_some() { state::OBSERVED } else { 0 };
        let number = if observed == 0 { 0 } else { core.next_number() };
        let lane = Arc::new(Lane::new());
        let serial = join(&lane);
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            plan: plan.clone(),
            number,
            core: core.clone(),
            state: State::new(observed),
            lane,
            serial,
            start: Mutex::new(Start::Waiting { inputs, turn: 0, place: None }),
            live: OnceLock::new(),
            driver: Mutex::new(Driver::default()),
            progress: Progress::new(),
            faults: Mutex::new(Vec::new()),
            fates: OnceLock::new(),
            watched: OnceLock::new(),
            verdict: OnceLock::new(),
            held: Held::new(),
            _sweep: Sweep(core.queues.clone()),
        })
    }

    pub(super) fn weak(&self) -> &Weak<Self> {
        &self.me
    }

    pub(super) fn plan(&self) -> &PlanInner {
        self.plan.inner()
    }

    /// Returns the code that this executor runs.
    pub(super) fn code(&self) -> &Code {
        if self.core.queues.is_some() { self.plan().queue_code() } else { &self.plan().code }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.lane.has_reached(COMPLETE)
    }

    /// Starts the run if it has not started and there is room; otherwise queues it.
    pub(super) fn start(self: &Arc<Self>) -> Poll<()> {
        let mut start = lock(&self.start);
        let Start::Waiting { inputs, turn, place } = &mut *start else { return Poll::Ready(()) };
        if self.serial.as_ref().is_some_and(|serial| !serial.has_come()) {
            return Poll::Pending;
        }
        let admitted = match (self.check(inputs), *place) {
            (Ok(()), Some(place)) => Poll::Ready(Ok(place)),
            (Ok(()), None) => self.core.admit(self, turn),
            (Err(error), _) => Poll::Ready(Err(error)),
        };
        let Poll::Ready(admitted) = admitted else { return Poll::Pending };
        let (turn, place) = (*turn, *place);
        let Start::Waiting { inputs, .. } = std::mem::replace(&mut *start, Start::Started) else { unreachable!() };
        drop(start);
        match admitted {
            Ok(flight) => self.take_off(inputs, flight),
            Err(error) => {
                self.core.leave_queue(turn);
                place.into_iter().for_each(|place| self.core.give_back(place));
                self.refuse(error);
                let _ = shielded(|| drop(inputs));
            }
        }
        Poll::Ready(())
    }

    /// Takes a place among those in flight before the run starts. Otherwise gives the inputs back: the run is
    /// over.
    pub(super) fn reserve(self: &Arc<Self>) -> Result<(), (Error, Inputs)> {
        let mut start = lock(&self.start);
        let Start::Waiting { place, .. } = &mut *start else { unreachable!("nobody else knows of this run yet") };
        let error = match self.core.try_admit(self) {
            Ok(admitted) => {
                *place = Some(admitted);
                return Ok(());
            }
            Err(error) => error,
        };
        let Start::Waiting { inputs, .. } = std::mem::replace(&mut *start, Start::Started) else { unreachable!() };
        drop(start);
        self.refuse(error.clone());
        Err((error, inputs))
    }

    fn check(&self, inputs: &Inputs) -> Result<()> {
        inputs.check(self.plan())
    }

    fn take_off(self: &Arc<Self>, inputs: Inputs, flight: u32) {
        let (pool, code) = (self.core.pool.as_ref(), self.code());
        let slot = pool.map_or(0, |pool| {
            let entry =
                Entry { run: Arc::as_ptr(self).cast(), resume: conduct::resume_shared, resume_alone: conduct::resume_alone };
            // SAFETY: the place is this run's alone. It is kept alive, by `Run` or by limbo, until it is
            // complete, and completing begins with `leave`.
            unsafe { pool.enter(slot_of(flight), entry) };
            slot_of(flight)
        });
        let roots = (code.programs() > 0).then(|| Ticket::new(slot, 0, code.roots));
        *lock(&self.start) = Start::Boarding { inputs, flight };
        match (roots, pool) {
            (Some(roots), Some(pool)) => pool.submit(roots),
            (Some(roots), None) => {
                // Before the run is live, so that another task that polls it then does not find it without
                // anything to do.
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

    /// Returns the run's state since its start. The caller holds a ticket of the run, and the first call
    /// makes the state. If there is no memory for that, the run is over. Its ticket, which is the only one,
    /// is then void.
    pub(super) fn live(&self) -> Option<&Live> {
        self.live.get().or_else(|| self.make_live())
    }

    #[cold]
    fn make_live(&self) -> Option<&Live> {
        let Start::Boarding { inputs, flight } = std::mem::replace(&mut *lock(&self.start), Start::Started) else {
            unreachable!("tickets exist only of runs that have taken their place")
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
        // Nobody drives a run that is not live, so nobody holds this.
        lock(&self.driver).expect_nodes(code.asyncs.len());
        let live = Live {
            frame,
            gates: code.gates.iter().map(|gate| Countdown::new(gate.count)).collect(),
            places: code.starts[..code.programs() as usize].iter().map(|&step| AtomicU32::new(step << 1)).collect(),
            events: (0..code.events).map(|_| AtomicU64::new(0)).collect(),
            points: code.segments.iter().map(|_| AtomicU64::new(0)).collect(),
            faults: self.core.queues.as_ref().map_or(0, |queues| queues.faults()),
            wakes: (!code.asyncs.is_empty()).then(|| Wakeset::new(code.asyncs.len(), self.lane.clone())),
            controls: code.controls.iter().map(|_| ControlState::new()).collect(),
            slot: if self.core.pool.is_some() { slot_of(flight) } else { 0 },
            flight,
        };
        Some(self.live.get_or_init(|| live))
    }

    /// Ends a run that never started.
    fn refuse(&self, error: Error) {
        if self.state.complete().is_some() {
            let _ = self.verdict.set(Err(error));
            self.signal_all();
        }
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
        let Some(Start::Waiting { inputs, turn, place, .. }) = waiting else { return self.drive_cancelled() };
        self.core.leave_queue(turn);
        place.into_iter().for_each(|place| self.core.give_back(place));
        self.refuse(cancelled(bits | state::CANCELLED));
        let _ = shielded(|| drop(inputs));
    }

    /// The last step's last act: whoever calls this must not touch the run again, unless it is kept alive
    /// elsewhere.
    pub(super) fn finish(alive: Arc<Self>) {
        if let Some(bits) = alive.state.complete() {
            alive.land(bits);
        }
        // The last owner drops what bodies and errors hold: foreign code.
        let _ = shielded(|| drop(alive));
    }

    /// Ends a run that has taken its place, but has no memory. The caller holds its only ticket, and gives it
    /// up.
    #[cold]
    fn refuse_in_flight(&self, error: Error, flight: u32) {
        // The task that awaits the run may drop it as soon as it is complete.
        let alive = self.me();
        if let Some(bits) = self.state.complete() {
            let is_cancelled = bits & state::CANCELLED != 0;
            let _ = self.verdict.set(Err(if is_cancelled { cancelled(bits) } else { error }));
            self.leave(flight);
            self.tell_end();
        }
        let _ = shielded(|| drop(alive));
    }

    fn land(&self, bits: u32) {
        let _ = self.verdict.set(self.judge(bits));
        if let Some(live) = self.live.get() {
            self.free_events(live);
            self.leave(live.flight);
        }
        self.tell_end();
    }

    /// Gives the run's places back. No ticket for it exists, and none will.
    fn leave(&self, flight: u32) {
        if let Some(pool) = &self.core.pool {
            // SAFETY: the run was entered in this slot; no ticket for it exists, and none will.
            unsafe { pool.leave(slot_of(flight)) };
        }
        self.core.end_flight(flight);
    }

    fn tell_end(&self) {
        self.signal_all();
        if let Some(queues) = &self.core.queues {
            queues.collect();
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
        self.serial.iter().for_each(Turn::end);
    }

    /// Returns what a complete run gave, for the one `Run` to ask once. The run keeps nothing of it, nor of
    /// what it was given: whoever gets the outputs is their only owner, and an input that somebody shared
    /// with the run is his alone again, even if a worker is still on its way out of the run.
    pub(super) fn outputs(&self) -> Result<Outputs> {
        let outputs = self.verdict.get().expect("the run is complete").clone().map(|()| self.move_outputs());
        if let Some(live) = self.live.get() {
            for input in &self.plan().inputs {
                // SAFETY: the run is complete: nobody else touches its cells any more.
                let _ = shielded(|| (input.port.transfer.clear)(unsafe { live.frame.cells(Access::Tagged) }, input.port.offset));
            }
        }
        outputs
    }

    fn move_outputs(&self) -> Outputs {
        let live = self.live.get().expect("only a run that started completes without an error");
        let plan = self.plan();
        // SAFETY: as in `outputs`.
        let cells = || unsafe { live.frame.cells(Access::Tagged) };
        let outputs = Outputs::new(&self.plan, plan.outputs.iter().map(|port| (port.transfer.share)(cells(), port.offset)));
        for &(node, _) in plan.schedule.shape().outputs() {
            let body = plan.code.bodies.get(node.index());
            let _ = shielded(|| body.release(cells()));
        }
        outputs
    }

    /// Returns the cells as the node may use them.
    ///
    /// # Safety
    /// As [`Frame::cells`]: the caller must be the one that runs, polls or releases this node now.
    pub(super) unsafe fn cells(&self, node: NodeId) -> Cells<'_> {
        let live = self.live.get().expect("a node runs only once the run is live");
        // SAFETY: by the caller's promise.
        unsafe { live.frame.cells(self.code().access(node)) }
    }

    /// Returns the lane of the node's program, the node's point on it, and whether a check of the program now
    /// sees all its earlier steps. From now on the program signals the lane.
    pub(super) fn watch(&self, node: NodeId) -> (Arc<Lane>, u64, bool) {
        let code = self.code();
        let step = code.step_of[node.index()];
        let program = code.program_of(step);
        let lanes = self.watched.get_or_init(|| (0..code.programs()).map(|_| OnceLock::new()).collect());
        let lane = lanes[program as usize].get_or_init(|| Arc::new(Lane::new())).clone();
        self.state.raise(state::WATCHED);
        // ORDERING: the dear side of "note the step, light, glance" before each step: whatever step is not
        // noted down when `catch_up` looks is one whose program sees WATCHED, and signals. If the barrier is
        // refused, the lock orders this before the steps of a run that has not started.
        let is_ordered = self.core.barrier.heavy() || matches!(*lock(&self.start), Start::Waiting { .. });
        (lane, u64::from(step - code.starts[program as usize]) + 1, is_ordered)
    }

    /// Signals, on behalf of the program of a watched node, the steps that it did before it was watched.
    pub(super) fn catch_up(&self, node: NodeId, lane: &Lane) {
        let Some(live) = self.live.get() else { return };
        let code = self.code();
        let program = code.program_of(code.step_of[node.index()]);
        let (start, end) = (code.starts[program as usize], code.starts[program as usize + 1]);
        let polled = self.progress.get(live.slot);
        let at_workers = self.core.pool.iter().flat_map(|pool| pool.steps_at(live.slot));
        // Workers first: a program that leaves its worker meanwhile has its place stored before.
        let running = at_workers.chain(polled).filter(|step| (start..end).contains(step)).max().unwrap_or(start);
        // ORDERING: Acquire pairs with the Release of the store when the program parked.
        let parked = live.places[program as usize].load(Ordering::Acquire);
        let done = (parked >> 1) + (parked & 1);
        let done = running.max(done) - start;
        // Not further than to this node: of those behind it, a device may be at some still.
        let own = code.step_of[node.index()] - start + 1;
        let step = start + own - 1;
        if code.steps[step as usize].flags & flag::SEGMENT != 0 {
            return self.await_segment(live, step);
        }
        if done >= own {
            lane.signal(u64::from(own));
        }
    }

    /// Called by the program itself: its first `done` steps are done.
    pub(super) fn signal_watchers(&self, program: u32, done: u32) {
        if let Some(lane) = self.watched.get().and_then(|lanes| lanes[program as usize].get()) {
            aside(|| lane.signal(u64::from(done)));
        }
    }
}

/// Returns the slot of a run in the pool. Its place among those in flight is below `max_in_flight`, and so
/// below the slots.
fn slot_of(flight: u32) -> u16 {
    flight as u16
}

/// The verdict on a run with these bits.
pub(super) fn cancelled(bits: u32) -> Error {
    if bits & state::SHUT_DOWN != 0 { Kind::ShutDown.into() } else { Kind::Cancelled.into() }
}

impl Drop for RunInner {
    fn drop(&mut self) {
        let Some(live) = self.live.get() else { return };
        let (plan, code) = (self.plan(), self.code());
        // SAFETY: the run is being dropped: nobody else touches its cells.
        let cells = || unsafe { live.frame.cells(Access::Tagged) };
        for input in &plan.inputs {
            let _ = shielded(|| (input.port.transfer.clear)(cells(), input.port.offset));
        }
        for &(offset, transfer) in &code.cells {
            let _ = shielded(|| (transfer.clear)(cells(), offset));
        }
        // After a clean run, what was not released are the outputs.
        let is_clean = matches!(self.verdict.get(), Some(Ok(())));
        let outputs = plan.schedule.shape().outputs().iter().map(|&(node, _)| node);
        let asyncs = code.asyncs.iter().map(|&step| code.nodes[step as usize]);
        let rest = (!is_clean).then(|| code.drops.iter().copied().chain(asyncs)).into_iter().flatten();
        for node in outputs.chain(rest) {
            let body = code.body(node);
            let _ = shielded(|| body.abort(cells()));
            let _ = shielded(|| body.release(cells()));
        }
    }
}
