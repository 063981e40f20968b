//! The start of a run (admission, its memory, its first tickets), and its cancel.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard};
use std::task::Poll;

use super::Inputs;
use super::countdown::Countdown;
use super::inner::{Admitted, Iteration, Live, OnDevices, RunInner, Start, Waiting};
use super::outcomes::cancelled;
use super::pipe::{EndedPhases, Pipe};
use super::state;
use super::step_state::StepState;
use crate::device::host::{Cost, Entry, Ticket};
use crate::error::{Error, Kind, Refused, Result, shielded};
use crate::plan::pipelining::Init;
use crate::runtime::{AsyncContext, Client, Flying, Precedence, Resumes, WakeSet};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, fence, lock};
use crate::value::Frame;

/// Held while a context is made and its run is admitted. Models of loom have no contexts.
static CONTEXTS: StdMutex<()> = StdMutex::new(());

impl Client for RunInner {
    fn drain(&self) {
        if self.pipelining.is_some() && !self.is_nested {
            self.lane.ring();
        }
    }

    fn shut_down(self: Arc<Self>) {
        self.cancel(state::SHUT_DOWN);
    }
}

impl RunInner {
    /// Sets the priority of a run that is not queued.
    pub(super) fn set_priority(&self, priority: i8) {
        if let Start::Waiting(waiting) = &mut *lock(&self.start)
            && !waiting.precedence.is_queued()
        {
            waiting.precedence.set_priority(priority);
        }
    }

    /// Notes that other work has made the run, if it has: a drain lets it begin.
    #[cfg(feature = "tokio")]
    pub(super) fn note_inner(&self) {
        if crate::runtime::is_inside_work()
            && let Start::Waiting(waiting) = &mut *lock(&self.start)
            && !waiting.precedence.is_queued()
        {
            waiting.precedence.set_inner();
        }
    }

    /// Starts the run if it has not started and there is room; otherwise queues it.
    pub(super) fn start(self: &Arc<Self>) -> Poll<()> {
        let mut start = lock(&self.start);
        let Start::Waiting(Waiting { inputs, precedence, slot, .. }) = &mut *start else { return Poll::Ready(()) };
        if self.observed.is_some() {
            self.note_ready();
        }
        // A run in the queue was checked at its first poll.
        // Items are checked one by one.
        let is_checked = precedence.is_queued() || self.pipelining.is_some();
        let checked = if is_checked { Ok(()) } else { inputs.check(self.plan()) };
        let order = checked.is_ok().then(|| self.take_context_order(inputs, precedence));
        let admitted = match (checked, *slot) {
            (Ok(()), Some(slot)) => Poll::Ready(Ok(slot)),
            (Ok(()), None) if self.is_nested => self.core.admit_nested(&self.lane),
            (Ok(()), None) => self.core.admit(Flying::new(self), precedence, Some(&self.lane)),
            (Err(error), _) => Poll::Ready(Err(error)),
        };
        drop(order);
        let Poll::Ready(admitted) = admitted else { return Poll::Pending };
        let mut waiting = start.take_waiting().expect("it waits, and the lock is held");
        drop(start);
        match admitted {
            Ok(slot) => {
                if self.observed.is_some() {
                    self.tell_begin();
                }
                self.launch(waiting, slot);
            }
            Err(error) => {
                waiting.inputs.refuse(self.plan(), &error);
                self.refuse_waiting(waiting, error);
            }
        }
        Poll::Ready(())
    }

    /// Makes the context of the run, if its plan has one. Runs with contexts wait for each other in the order
    /// in which these are made, so they are admitted in this order, too: until the caller drops the guard, no
    /// other one comes between, and their priorities do not count.
    fn take_context_order(&self, inputs: &mut Inputs, precedence: &mut Precedence) -> Option<MutexGuard<'static, ()>> {
        if self.plan().context.is_none() || precedence.is_queued() {
            return None;
        }
        let guard = CONTEXTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        inputs.make_context(self.plan());
        precedence.set_priority(0);
        Some(guard)
    }

    /// Takes a place among those in flight before the run starts. Otherwise returns the inputs: the run is
    /// over.
    pub(super) fn reserve(self: &Arc<Self>) -> Result<(), Refused<Inputs>> {
        let mut start = lock(&self.start);
        let Start::Waiting(waiting) = &mut *start else { unreachable!("the run is not shared yet") };
        match self.core.try_admit(Flying::new(self)) {
            Ok(slot) => {
                waiting.slot = Some(slot);
                Ok(())
            }
            Err(error) => {
                let inputs = std::mem::take(&mut waiting.inputs);
                *start = Start::Started;
                drop(start);
                self.me().refuse(error.clone(), None);
                Err(Refused::new(error, inputs))
            }
        }
    }

    /// Ends a run that waited, and so leaves the queue.
    fn refuse_waiting(&self, waiting: Waiting, error: Error) {
        self.core.leave_queue(waiting.precedence);
        waiting.slot.into_iter().for_each(|slot| self.core.withdraw(slot));
        self.me().refuse(error, None);
        let _ = shielded(|| drop(waiting.inputs));
    }

    /// Enters the run in the pool, and submits its first tickets, or runs them.
    fn launch(self: &Arc<Self>, waiting: Waiting, slot: u16) {
        let (pool, code) = (self.core.pool.as_ref(), self.code());
        if let Some(pool) = pool {
            // SAFETY: admission gave this place to this run alone. `Run` or limbo keeps the run alive until
            // it is complete, and completing it begins with `leave`.
            unsafe { pool.enter(slot, Entry::new(Arc::as_ptr(self))) };
        }
        if self.pipelining.is_some() {
            return self.open(slot);
        }
        let roots = (code.programs() > 0).then(|| Ticket::new(slot, 0, code.roots));
        // Without workers, async nodes are polled by the task that awaits the run, in its runtime.
        let has_context = pool.is_some() && !code.asyncs.is_empty();
        let context = if has_context { AsyncContext::current() } else { AsyncContext::default() };
        let by_poll = self.polls_run_it();
        let is_timed = !by_poll && self.is_to_be_timed();
        let admitted = Admitted { inputs: waiting.inputs, slot, context, is_timed, spare: waiting.spare };
        match (roots, pool) {
            (Some(roots), Some(pool)) if !by_poll => {
                *lock(&self.start) = Start::Admitted(admitted);
                pool.submit(roots);
            }
            (Some(roots), Some(_)) => {
                if self.make_live(admitted) {
                    self.run_in_poll(roots);
                }
            }
            (Some(roots), None) => {
                // Must precede `live`: another task that polls the run finds its first programs then.
                lock(&self.driver).push(roots);
                if !self.make_live(admitted) {
                    lock(&self.driver).clear();
                }
            }
            (None, _) => {
                if self.make_live(admitted) {
                    Self::finish(self.clone(), Some(slot));
                }
            }
        }
    }

    /// Makes the state that an admitted run has from now on, in the thread with its only ticket. Returns
    /// false if there is no memory: then the run is over and may be gone, and its ticket is void.
    #[cold]
    pub(super) fn make_admitted_live(&self) -> bool {
        let start = std::mem::replace(&mut *lock(&self.start), Start::Started);
        let Start::Admitted(admitted) = start else { unreachable!("only admitted runs have tickets") };
        self.make_live(admitted)
    }

    fn make_live(&self, admitted: Admitted) -> bool {
        let Admitted { mut inputs, slot, context, is_timed, spare } = admitted;
        self.note_begin(slot);
        let plan = self.plan();
        let worked = is_timed.then(|| AtomicU64::new(0));
        let live = match spare {
            Some(mut live) => {
                live.renew(self.code(), slot, worked);
                live
            }
            None => match Frame::new(&plan.layout) {
                Ok(frame) => Box::new(self.live_of(frame, slot, context, worked)),
                Err(error) => {
                    let _ = shielded(|| drop(inputs));
                    self.me().refuse(error, Some(slot));
                    return false;
                }
            },
        };
        inputs.fill(plan, &live.first.frame);
        self.live.set(live);
        true
    }

    fn live_of(&self, frame: Frame, slot: u16, context: AsyncContext, worked: Option<AtomicU64>) -> Live {
        let first = self.iteration(0, frame);
        Live { wakes: self.wakes(1, slot), context, slot, worked, first, more: Box::default(), pipe: None }
    }

    /// Makes the iterations of a run over many items. Its consumer begins the items.
    fn open(self: &Arc<Self>, slot: u16) {
        if let Err(error) = self.make_iterations(slot) {
            self.clone().refuse(error, Some(slot));
        }
    }

    #[cold]
    fn make_iterations(&self, slot: u16) -> Result<()> {
        self.note_begin(slot);
        let plan = self.pipelining();
        let frames = (0..plan.slots).map(|_| Frame::new(&self.plan().layout)).collect::<Result<Vec<Frame>>>()?;
        let mut iterations = frames.into_iter().zip(0..).map(|(frame, number)| self.iteration(number, frame));
        let first = iterations.next().expect("there is a slot for one item");
        let code = self.code();
        let has_threads = self.core.pool.is_some();
        let cost = self.may_be_cheap().then(Cost::new);
        let pipe = Some(Box::new(Pipe::new(plan, code, has_threads, self.observed.is_some(), cost)));
        let wakes = self.wakes(plan.slots, slot);
        let (context, more) = (AsyncContext::current(), iterations.collect());
        let live = Live { wakes, context, slot, worked: None, first, more, pipe };
        // From here on the end of the run drops what was filled.
        self.live.set(Box::new(live));
        // ORDERING: pairs with the fence in `drive_cancelled`. Of "make the run live, load the state" and
        // "cancel, load the run" one side sees the other.
        fence(Ordering::SeqCst);
        if self.state.is_cancelled() {
            self.close();
        }
        plan.inits.iter().try_for_each(|init| self.fill(init))
    }

    /// Puts what a state or a feedback begins with into the cells of its iterations.
    fn fill(&self, init: &Init) -> Result<()> {
        let access = self.plan().inputs[init.input as usize].access();
        let filled = shielded(|| {
            let fill = (init.make)();
            for item in self.items() {
                // SAFETY: no item has begun.
                fill(unsafe { item.at.frame.cells(access) });
            }
        });
        filled.map_err(|message| Kind::InitPanicked { name: init.name.clone(), message }.into())
    }

    /// Returns the wake set for the async nodes of so many iterations, if there are any.
    fn wakes(&self, iterations: u32, slot: u16) -> Option<Arc<WakeSet>> {
        let code = self.code();
        let resumes = || match &self.core.pool {
            Some(pool) => Resumes::Worker { pool: pool.clone(), slot },
            None => Resumes::Poll(self.lane.clone()),
        };
        let base = |iteration| iteration * code.programs();
        let programs =
            (0..iterations).flat_map(|iteration| code.asyncs.iter().map(move |&step| base(iteration) + code.program_of(step)));
        (!code.asyncs.is_empty()).then(|| WakeSet::new(programs, resumes()))
    }

    /// Returns an iteration before its start.
    #[inline(always)]
    fn iteration(&self, number: u32, frame: Frame) -> Iteration {
        let code = self.code();
        Iteration {
            number,
            base: number * code.programs(),
            frame,
            gates: code.gates.iter().map(|gate| Countdown::new(gate.count)).collect(),
            places: code.starts[..code.programs() as usize].iter().map(|&step| AtomicU32::new(step << 1)).collect(),
            on_devices: self.core.devices.as_ref().map(|devices| {
                let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
                let (events, points) = (words(code.events as usize), words(code.segments.len()));
                Box::new(OnDevices { events, points, lane_faults: AtomicU64::new(devices.faults()) })
            }),
            times: self.times(code),
            item: AtomicU64::new(0),
            state: AtomicU32::new(0),
            ends: Countdown::new(self.pipelining.as_ref().map_or(0, |plan| plan.last_phases)),
            asyncs: StepState::of(code.asyncs.len()),
            controls: StepState::of(code.controls.len()),
            faults: Mutex::new(Vec::new()),
            outcomes: OnceLock::new(),
            is_marked: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Cancels the run, unless it is complete or cancelled, or its threads are in another process. Never
    /// blocks.
    pub(super) fn cancel(&self, bits: u32) {
        if self.core.is_forked() || !self.state.cancel(bits) {
            return;
        }
        let waiting = lock(&self.start).take_waiting();
        match waiting {
            Some(waiting) => self.refuse_waiting(waiting, cancelled(bits | state::CANCELLED)),
            None => self.drive_cancelled(),
        }
        if self.pipelining.is_some() {
            if let Some(pool) = &self.core.pool {
                self.end_items(&mut EndedPhases::new(), &mut |ticket| pool.submit(ticket));
            }
            self.close();
            self.lane.ring();
        }
    }
}
