//! The interpreter of programs. A step without flags costs an indirect call, a store to the worker's own line
//! and a load of the run's state. Countdowns and queues are used only where programs meet.
//!
//! The last target of a program's last step may end the run, and free it. After that target the interpreter
//! does not read the run. So releases come before a last step's records (see `plan::lower`), and the run and
//! its code are fields of the interpreter: an argument would have to live until its function returns.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::at_once::AT_ONCE;
use super::inner::{Item, RunInner};
use super::outcomes::outcome;
use super::pipe::EndedPhases;
use super::polls::Sample;
use super::state;
use crate::device::StreamMut;
use crate::device::host::{Barrier, HostStream, Queue, Resume, Ticket, TicketOrigin};
use crate::error::BoxError;
use crate::graph::NodeId;
use crate::plan::code::{Code, HostStep, Target, flag};
use crate::plan::pipelining::Passed;
use crate::runtime::LaneId;
use crate::sync::Ordering;
use crate::value::Outcome;

impl Resume for RunInner {
    unsafe fn resume<'q, Q: Queue<'q>>(run: *const Self, ticket: Ticket, queue: &mut Q) {
        // SAFETY: the ticket exists, so the run is not complete and is kept alive.
        let run = unsafe { &*run };
        if run.live.get().is_none() && !run.make_admitted_live() {
            return;
        }
        let item = run.first().expect("the run is live");
        let sample = run.sample(item.live);
        let code = run.code();
        let program = queue.keep_first(ticket);
        let (stream, barrier) = (HostStream::new(0), run.core.barrier);
        let mut interpreter = Interpreter {
            item,
            base: item.at.base,
            origin: TicketOrigin::new(item.live.slot, item.at.base),
            programs: code.programs(),
            code,
            barrier,
            slot: item.live.slot,
            queue,
            stream,
            program,
            step: 0,
            // A poll may run items beside the only worker.
            is_shared: Q::IS_SHARED || item.live.pipe.as_ref().is_some_and(|pipe| pipe.is_shared),
            is_body_done: false,
            submitted: None,
            sample,
            queues: PhantomData,
        };
        interpreter.go_to(program);
        // A panic comes from a body: all other user code is shielded. It is caught outside of the loop, so
        // that a step does not pay for it.
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| interpreter.run())) {
            interpreter.fail_panicked(panic);
        }
    }
}

/// The flags of steps that need more than a call.
const ATTENDED: u8 = flag::ASYNC | flag::SEGMENT | flag::CONTROL | flag::FIRST_OF_KIND;

pub(super) struct Interpreter<'r, 'q, Q> {
    pub(super) item: Item<'r>,
    /// The item's first program among those of all iterations, and the number of its programs.
    base: u32,
    programs: u32,
    origin: TicketOrigin,
    pub(super) code: &'r Code,
    pub(super) barrier: Barrier,
    /// A copy, for when the run may be gone.
    pub(super) slot: u16,
    pub(super) queue: &'r mut Q,
    pub(super) stream: HostStream,
    pub(super) program: u32,
    pub(super) step: u32,
    /// Whether other threads may arrive at the item's gates meanwhile.
    is_shared: bool,
    /// Whether the body of the step that the program resumes at is done.
    is_body_done: bool,
    /// The lane that the step's segment was submitted to, and its point there.
    pub(super) submitted: Option<(LaneId, u64)>,
    /// The time of this visit, if that is wanted.
    sample: Option<Sample>,
    queues: PhantomData<&'q ()>,
}

/// Calls the body of a step.
///
/// # Safety
/// The caller is the only thread that runs this node now, and its inputs were written before.
#[inline(always)]
pub(super) unsafe fn call(item: Item<'_>, step: &HostStep, stream: &mut HostStream) -> Outcome {
    // SAFETY: the caller alone uses the node's cells. The step's access comes from `Graph::nodes_in_place`:
    // no value that an in-place node touches is ever an Arc.
    let cells = unsafe { item.at.frame.cells(step.access) };
    // SAFETY: the plan keeps the body, and the call was made for the step's access.
    unsafe { step.call.run(cells, StreamMut::Host(stream)) }
}

/// The outcome of a step that needs attention.
pub(super) enum StepResult {
    Done,
    /// The program waits. A ticket resumes it.
    Parked,
    /// The program waits for these programs, or continues itself.
    LeadsTo(Ticket),
    /// The interpreter stands at another step, which comes next.
    Moved,
}

/// What a thread runs after a step.
enum Next {
    Step,
    Program(Ticket),
    Leave,
}

impl<'q, Q: Queue<'q>> Interpreter<'_, 'q, Q> {
    /// Goes to a program, by its number among those of all iterations.
    fn go_to(&mut self, program: u32) {
        let own = program.wrapping_sub(self.base);
        let own = if own < self.programs { own } else { self.go_to_item_of(program) };
        // ORDERING: Relaxed: the ticket, or the countdown that led here, orders this after the store.
        let place = self.item.at.places[own as usize].load(Ordering::Relaxed);
        self.is_body_done = place & 1 != 0;
        self.stand_at(own, place >> 1);
    }

    /// Goes to a step of a program of this item.
    #[inline(always)]
    fn stand_at(&mut self, program: u32, step: u32) {
        self.stream = HostStream::new(self.code.streams[program as usize]);
        (self.program, self.step) = (program, step);
    }

    /// Goes to another item of the run, which has this program. Returns the program's number there.
    #[inline(never)]
    fn go_to_item_of(&mut self, program: u32) -> u32 {
        let number = if self.programs == 1 { program } else { program / self.programs };
        self.item = self.item.iteration(number);
        self.base = self.item.at.base;
        self.origin = TicketOrigin::new(self.slot, self.base);
        program - self.base
    }

    /// Returns the ticket of programs of this item.
    #[inline(always)]
    fn ticket(&self, first: u32, count: u32) -> Ticket {
        self.origin.plus(first, count)
    }

    /// Runs steps until the program, and those it leads to, are parked or done.
    fn run(&mut self) {
        // Constants are kept in locals: after a call of a body the compiler would read all fields again.
        let (run, barrier, progress) = (self.item.run, self.barrier, self.queue.progress());
        let steps = &self.code.steps[..];
        loop {
            let step = &steps[self.step as usize];
            progress.set(self.slot, self.step);
            // ORDERING: the light side of the barrier in `RunInner::watch`.
            barrier.light();
            let attention = run.state.glance();
            let is_plain = attention == 0 && !self.is_body_done;
            if is_plain && step.flags == 0 {
                // Most steps of a chain: nothing follows but the next step.
                if let Err(error) = self.call(step) {
                    self.fail(error);
                }
                self.step += 1;
                if self.queue.has_fuel() {
                    continue;
                }
                self.store_place(self.step << 1);
                return self.queue.defer(self.ticket(self.program, 1));
            }
            if !is_plain || step.flags & ATTENDED != 0 {
                match self.run_attentively(step, attention) {
                    StepResult::Done => {}
                    StepResult::Parked => return,
                    StepResult::Moved if self.queue.has_fuel() => continue,
                    StepResult::Moved => {
                        self.store_place(self.step << 1);
                        return self.queue.defer(self.ticket(self.program, 1));
                    }
                    StepResult::LeadsTo(ticket) if !self.queue.has_fuel() => return self.queue.defer(ticket),
                    StepResult::LeadsTo(ticket) => {
                        let program = self.queue.keep_first(ticket);
                        self.go_to(program);
                        continue;
                    }
                }
            } else if let Err(error) = self.call(step) {
                self.fail(error);
            }
            let next = if step.flags & flag::LAST != 0 { self.end_program() } else { self.lead_on(step) };
            match next {
                Next::Step => self.step += 1,
                // Many short programs that lead to each other take as long as one long program.
                Next::Program(ticket) if !self.queue.has_fuel() => return self.queue.defer(ticket),
                Next::Program(ticket) => {
                    let program = self.queue.keep_first(ticket);
                    self.go_to(program);
                    continue;
                }
                Next::Leave => match self.next_program() {
                    Some(program) => {
                        self.go_to(program);
                        continue;
                    }
                    None => return,
                },
            }
            if !self.queue.has_fuel() {
                self.store_place(self.step << 1);
                return self.queue.defer(self.ticket(self.program, 1));
            }
        }
    }

    /// Returns another program of this run that this thread has queued. Does not touch the run, which may be
    /// gone. If there is a ticket for it among this thread's own, it is not gone.
    #[inline(always)]
    fn next_program(&mut self) -> Option<u32> {
        if !self.queue.has_fuel() {
            return None;
        }
        self.queue.next_of(self.slot)
    }

    #[inline(always)]
    pub(super) fn call(&mut self, step: &HostStep) -> Outcome {
        // SAFETY: this program is at this step, so this thread runs this node now. Its inputs were written
        // before it: the plan orders every edge, and a node that lacks an input is skipped.
        unsafe { call(self.item, step, &mut self.stream) }
    }

    /// Runs a step of a run that needs attention, a step that is no plain call, or the first call of a kind.
    #[cold]
    #[inline(never)]
    fn run_attentively(&mut self, step: &HostStep, attention: u32) -> StepResult {
        if std::mem::take(&mut self.is_body_done) {
            return StepResult::Done;
        }
        if attention & state::WATCHED != 0 {
            self.signal_watchers(self.step);
        }
        if step.flags & flag::SEGMENT != 0 {
            return if self.submit_segment() { StepResult::Parked } else { StepResult::Done };
        }
        if step.flags & flag::CONTROL != 0 {
            let (program, result) = (self.program, self.control(attention));
            self.note_control(program, &result);
            return result;
        }
        // A cancelled async node may have a future to drop.
        let is_async = step.flags & flag::ASYNC != 0;
        if !(is_async && attention & state::CANCELLED != 0) && self.skips(self.node(), attention) {
            return StepResult::Done;
        }
        if step.flags & flag::FIRST_OF_KIND != 0 {
            self.queue.expect_long();
        }
        if is_async {
            return self.poll_checked(attention);
        }
        if attention & state::OBSERVED != 0 {
            self.call_observed(step);
        } else if let Err(error) = self.call(step) {
            self.fail(error);
        }
        StepResult::Done
    }

    /// Returns true if a node must not run, and records that.
    pub(super) fn skips(&self, node: NodeId, attention: u32) -> bool {
        let outcome = if attention & state::CANCELLED != 0 {
            outcome::CANCELLED
        } else if attention & state::FAILED != 0 && self.item.lacks_input(node) {
            outcome::SKIPPED
        } else {
            return false;
        };
        self.item.set_outcome(node, outcome, None);
        true
    }

    pub(super) fn node(&self) -> NodeId {
        self.code.nodes[self.step as usize]
    }

    pub(super) fn fail(&self, error: BoxError) {
        self.item.judge_call(self.node(), Ok(Err(error)));
    }

    fn fail_panicked(&mut self, panic: Box<dyn Any + Send>) {
        self.item.judge_call(self.node(), Err(panic));
        self.is_body_done = true;
    }

    /// Carries out what follows a step that is not the last: records, releases, the gate of the next step.
    #[inline(always)]
    fn lead_on(&mut self, step: &HostStep) -> Next {
        let mut held = None;
        if step.flags & flag::TARGETS != 0 {
            self.follow_all(step, &mut held);
        } else if step.flags & flag::ARRIVE != 0 {
            self.note_target(Target::Arrive(step.targets));
            if self.arrives_last(step.targets) {
                held = self.follow(self.code.gates[step.targets as usize].then);
            }
        }
        if step.flags & flag::GATE != 0 && !self.passes_gate(step.gate) {
            return held.map_or(Next::Leave, Next::Program);
        }
        if let Some(ticket) = held {
            self.queue.push(ticket);
        }
        Next::Step
    }

    /// Carries out what follows the program's last step. The run may be gone afterwards, unless another
    /// program follows.
    fn end_program(&mut self) -> Next {
        let code = self.code;
        let step = &code.steps[self.step as usize];
        // In a run over many items, the next item begins the program anew.
        let pipe = self.item.live.pipe.as_deref();
        let next = if pipe.is_some() { self.code.starts[self.program as usize] } else { self.step + 1 };
        self.store_place(next << 1);
        if let Some(pipe) = pipe.filter(|pipe| pipe.is_plain && !self.item.is_marked()) {
            self.end_sample();
            self.item.set_done(pipe);
            return Next::Leave;
        }
        let mut held = None;
        if step.flags & flag::ARRIVE != 0 {
            held = self.follow(Target::Arrive(step.targets));
        } else if step.flags & flag::SEGMENT != 0 {
            self.end_segment(step, &mut held);
        } else if let [target] = self.code.targets_of(step) {
            held = self.follow(*target);
        } else {
            self.follow_all(step, &mut held);
        }
        held.map_or(Next::Leave, Next::Program)
    }

    #[inline]
    pub(super) fn follow_all(&mut self, step: &HostStep, held: &mut Option<Ticket>) {
        let code = self.code;
        for &target in code.targets_of(step) {
            self.hold(held, target);
        }
    }

    /// Follows a target. Of the programs that become ready, `held` keeps the last, to be run next.
    #[inline]
    pub(super) fn hold(&mut self, held: &mut Option<Ticket>, target: Target) {
        if let Some(ready) = self.follow(target)
            && let Some(earlier) = held.replace(ready)
        {
            self.queue.push(earlier);
        }
    }

    /// Follows a target through the gates it fills. Returns the programs that are ready now.
    #[inline]
    pub(super) fn follow(&mut self, target: Target) -> Option<Ticket> {
        self.reach(target).unwrap_or_else(|other| self.follow_other(other))
    }

    /// Follows a target through the gates it fills, by a shared reference: so the compiler keeps what it has
    /// loaded. Returns a target that is neither a program nor a gate.
    #[inline]
    fn reach(&self, mut target: Target) -> Result<Option<Ticket>, Target> {
        self.note_target(target);
        loop {
            match target {
                Target::Start { first, count } => return Ok(Some(self.ticket(first, count))),
                Target::Arrive(gate) if self.arrives_last(gate) => target = self.code.gates[gate as usize].then,
                Target::Arrive(_) => return Ok(None),
                other => return Err(other),
            }
        }
    }

    /// Follows a target other than programs and gates. Not inlined: most targets are those.
    #[inline(never)]
    fn follow_other(&mut self, target: Target) -> Option<Ticket> {
        match target {
            Target::Start { .. } | Target::Arrive(_) => unreachable!("`follow` has followed these"),
            Target::Release(node) => {
                self.item.release(node);
                None
            }
            // The poll that runs it ends it.
            Target::End if self.slot == AT_ONCE => None,
            Target::End if self.item.live.pipe.is_none() => {
                self.end_sample();
                RunInner::finish_by(self.item.run.me(), Some(self.slot), &mut |waker| self.queue.wake(waker));
                None
            }
            Target::End => self.end_item(),
            Target::Phase(phase) => self.pass(phase, Passed::Ended),
            Target::PhaseQueued(phase) => self.pass(phase, Passed::Queued),
            Target::PhaseReached(phase) => self.pass(phase, Passed::Reached),
        }
    }

    /// Ends an item of a single phase. Returns programs that are ready now. The run may be gone afterwards.
    fn end_item(&mut self) -> Option<Ticket> {
        if self.item.run.pipelining().phases[0].leads_on() {
            return self.pass(0, Passed::Ended);
        }
        self.end_sample();
        self.item.end();
        None
    }

    /// Passes a phase of the item. Returns programs that are ready now. The run may be gone afterwards.
    fn pass(&mut self, phase: u32, passed: Passed) -> Option<Ticket> {
        self.end_sample();
        let (item, queue, mut held) = (self.item, &mut *self.queue, None);
        item.pass(phase, passed, &mut EndedPhases::new(), &mut |ticket| {
            if let Some(earlier) = held.replace(ticket) {
                queue.push(earlier);
            }
        });
        held
    }

    /// Ends the time of this visit. What follows may wake the consumer, which takes longer than a cheap item.
    #[inline]
    fn end_sample(&mut self) {
        if self.sample.is_some() {
            self.sample = None;
        }
    }

    #[inline]
    fn arrives_last(&self, gate: u32) -> bool {
        let gate = &self.item.at.gates[gate as usize];
        if Q::IS_SHARED || self.is_shared { gate.arrive::<true>() } else { gate.arrive::<false>() }
    }

    /// Arrives at the gate of the program's own next step. False parks the program: its last arrival resumes
    /// it.
    #[inline]
    fn passes_gate(&mut self, gate: u32) -> bool {
        self.note_gate(gate);
        // Checked first: a program that does not park need not store its place.
        if self.item.at.gates[gate as usize].is_ours() {
            return true;
        }
        self.store_place((self.step + 1) << 1);
        self.arrives_last(gate)
    }

    /// Stores where the program continues, before it parks or ends, and signals the futures of its nodes.
    #[inline(always)]
    pub(super) fn store_place(&self, place: u32) {
        // ORDERING: Release pairs with the Acquire in `RunInner::catch_up`. The ticket that resumes the
        // program brings the place to its thread.
        self.item.at.places[self.program as usize].store(place, Ordering::Release);
        // After this another thread may end the run, and another run may use its slot. So this thread must
        // have no note for the slot.
        self.queue.progress().leave();
        // ORDERING: the light side of the barrier in `RunInner::watch`.
        self.barrier.light();
        if self.item.run.state.glance() & state::WATCHED != 0 {
            self.signal_watchers(place >> 1);
        }
    }

    /// Signals that this program has come to `step`. The end of a segment is signalled when its device has
    /// done it.
    #[cold]
    fn signal_watchers(&self, step: u32) {
        self.note_seen();
        let start = self.code.starts[self.program as usize];
        if step == start || self.code.steps[step as usize - 1].flags & flag::SEGMENT == 0 {
            self.item.run.signal_watchers(self.program, step - start);
        }
    }
}
