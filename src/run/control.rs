//! Loops and branches. A program that comes to one starts the programs of an inner graph, and continues when
//! they have ended, once for each iteration. An iteration allocates nothing and recurses nowhere. The thread
//! that ends an inner graph continues with the control.
//!
//! ```text
//! begin ─▶ first states in ─▶ [condition] ─▶ goes on? ── no ──▶ last states out ─▶ the program's next step
//!                                  ▲               │ yes
//!                        new states in ◀──── [body runs]
//! ```

use std::mem::replace;
use std::ops::Range;

use super::inner::Item;
use super::interpret::{Interpreter, StepResult};
use super::outcomes::outcome;
use super::state;
use super::step_state::{StepState, phase};
use crate::device::host::{HostStream, Queue, Ticket};
use crate::error::{Kind, Result};
use crate::graph::{NodeId, Test};
use crate::name::Name;
use crate::plan::code::{Control, ControlFlow, Scope, flag};
use crate::runtime::Ended;
use crate::sync::Ordering;
use crate::value::{Access, Cells};

/// What a control does next: it runs an inner graph, in a phase, or is done.
type NextInner = Option<(u32, u32)>;

impl<'q, Q: Queue<'q>> Interpreter<'_, 'q, Q> {
    pub(super) fn control(&mut self, attention: u32) -> StepResult {
        let index = self.code.control_index(self.step);
        let (control, state) = (&self.code.controls[index], &self.item.at.controls[index]);
        // Where the program continues when something else than this loop ends an inner graph. It takes the
        // note of the step back, too: values are moved and dropped now, which is not within a step.
        self.store_place(self.step << 1);
        if self.ends_now(control, state, attention) {
            return StepResult::Done;
        }
        loop {
            let Some(number) = self.advance(control, state) else { return StepResult::Done };
            let scope = &self.code.scopes[number as usize];
            let Some(calls) = &scope.calls else { return StepResult::LeadsTo(self.begin(number, scope)) };
            if let Some(result) = self.call_all(number, scope.programs.0, calls.clone()) {
                return result;
            }
        }
    }

    /// Makes the calls of a program, and comes back to this step. If something else is to be done before
    /// that, returns it: then the interpreter stands where the program continues.
    #[inline(always)]
    fn call_all(&mut self, scope: u32, program: u32, calls: Range<u32>) -> Option<StepResult> {
        let code = self.code;
        let stream = HostStream::new(code.streams[program as usize]);
        let back = (replace(&mut self.program, program), replace(&mut self.step, calls.start), replace(&mut self.stream, stream));
        for step in &code.steps[calls.start as usize..calls.end as usize] {
            if self.arrive_at_step() != 0 {
                self.item.note_inner(scope);
                return Some(StepResult::Moved);
            }
            if !self.queue.has_fuel() {
                self.store_place(self.step << 1);
                self.queue.defer(self.item.ticket(program, 1));
                return Some(StepResult::Parked);
            }
            if let Err(error) = self.call(step) {
                self.fail(error);
            }
            self.step += 1;
        }
        // For the futures of its nodes.
        // ORDERING: Release pairs with the Acquire in `RunInner::catch_up`.
        self.item.at.places[program as usize].store(calls.end << 1, Ordering::Release);
        (self.program, self.step, self.stream) = back;
        self.queue.progress().leave();
        // ORDERING: the light side of the barrier in `RunInner::watch`.
        self.barrier.light();
        let attention = self.item.run.state.glance();
        if attention & state::WATCHED != 0 {
            self.item.run.signal_watchers(program, calls.len() as u32);
        }
        (attention != 0).then_some(StepResult::Moved)
    }

    /// Notes down that this thread is at the step. Returns what needs attention.
    #[inline(always)]
    fn arrive_at_step(&self) -> u32 {
        self.queue.progress().set(self.slot, self.step);
        // ORDERING: the light side of the barrier in `RunInner::watch`.
        self.barrier.light();
        self.item.run.state.glance()
    }

    /// Begins a control, or comes back to it. Returns true if it ends here: it has failed, or the run is
    /// cancelled.
    fn ends_now(&mut self, control: &Control, state: &StepState, attention: u32) -> bool {
        let item = self.item;
        if state.phase() == phase::IDLE {
            if self.skips(control.node, attention) {
                return true;
            }
            if self.code.steps[self.step as usize].flags & flag::FIRST_OF_KIND != 0 {
                self.queue.expect_long();
            }
            if attention & state::OBSERVED != 0 {
                if let Some(error) = item.run.injected(control.node) {
                    self.fail(error);
                    return true;
                }
                state.keep(item.begin_node(control.node));
            }
            return false;
        }
        if attention & state::CANCELLED != 0 {
            item.set_outcome(control.node, outcome::CANCELLED, None);
            self.leave(control.node, state, Ended::Cancelled);
            return true;
        }
        if state.has_failed() {
            item.set_outcome(control.node, outcome::FAILED, None);
            self.leave(control.node, state, Ended::Failed);
            return true;
        }
        false
    }

    /// Does what a control does next. Returns the inner graph that comes then; none if the control is done.
    #[inline(always)]
    fn advance(&self, control: &Control, state: &StepState) -> Option<u32> {
        // SAFETY: the program stands at the control, so the control's inputs were written before, and none of
        // its inner graphs runs. No other thread touches its states then, nor the values that an inner graph
        // has left. Values of graphs around are only read.
        let cells = unsafe { self.item.at.frame.cells(Access::Tagged) };
        match self.next_inner(control, state, cells) {
            Ok(Some((scope, phase))) => {
                state.set_phase(phase);
                return Some(scope);
            }
            Ok(None) => {
                control.draft.carries.leave.iter().for_each(|carry| carry.act(cells));
                self.leave(control.node, state, Ended::Ok);
            }
            Err(error) => {
                self.item.set_outcome(control.node, outcome::FAILED, Some(error));
                self.leave(control.node, state, Ended::Failed);
            }
        }
        None
    }

    /// Moves the results of an inner graph, and decides the next step.
    #[inline(always)]
    fn next_inner(&self, control: &Control, state: &StepState, cells: Cells<'_>) -> Result<NextInner> {
        let carries = &control.draft.carries;
        let give = |giver: usize| carries.give[giver].iter().for_each(|carry| carry.act(cells));
        let begin = || carries.enter.iter().for_each(|carry| carry.act(cells));
        match (&control.draft.flow, state.phase()) {
            (ControlFlow::Repeat { .. }, phase::CONDITION) => self.decide(control, state, cells),
            (ControlFlow::Repeat { condition, .. }, phase) => {
                if phase == phase::IDLE {
                    state.set_count(0);
                    begin();
                } else {
                    give(0);
                }
                match *condition {
                    Some(scope) => Ok(Some((scope, phase::CONDITION))),
                    None => self.decide(control, state, cells),
                }
            }
            (ControlFlow::Branch { selector, select, arms }, phase::IDLE) => {
                begin();
                let selector = select(cells, *selector);
                match usize::try_from(selector).ok().and_then(|arm| arms.get(arm)) {
                    Some(&scope) => {
                        state.set_count(selector as u64);
                        Ok(Some((scope, phase::INSIDE)))
                    }
                    None if selector == -1 => Ok(None),
                    None => Err(Kind::NoSuchArm { node: self.name_of(control), selector, arms: arms.len() }.into()),
                }
            }
            (ControlFlow::Branch { .. }, _) => {
                give(state.count() as usize);
                Ok(None)
            }
        }
    }

    #[inline(always)]
    fn decide(&self, control: &Control, state: &StepState, cells: Cells<'_>) -> Result<NextInner> {
        let ControlFlow::Repeat { test, body, max_iterations, .. } = &control.draft.flow else { unreachable!("only loops ask") };
        let count = state.count();
        let holds = match test {
            Test::Times(times) => Some(count < *times),
            Test::Value(asked) => {
                let holds = (asked.holds)(cells, asked.offset);
                if asked.is_own {
                    (asked.transfer.clear)(cells, asked.offset);
                }
                holds
            }
        };
        match holds {
            None => Err(Kind::Undecided { node: self.name_of(control), count }.into()),
            Some(false) => Ok(None),
            Some(true) if count == *max_iterations => {
                Err(Kind::TooManyIterations { node: self.name_of(control), max: count }.into())
            }
            Some(true) => {
                state.set_count(count + 1);
                Ok(Some((*body, phase::INSIDE)))
            }
        }
    }

    fn name_of(&self, control: &Control) -> Name {
        self.item.plan().name_of(control.node)
    }

    /// Resets an inner graph. Returns its first programs; or the control's own, if it has none.
    fn begin(&self, number: u32, scope: &Scope) -> Ticket {
        let (item, code) = (self.item, self.code);
        if item.at.times.is_some() {
            item.note_inner(number);
        }
        // None of its nodes runs, neither on the host nor on a device.
        for at in range(scope.gates) {
            item.at.gates[at].reset(code.gates[at].count);
        }
        for at in range(scope.programs) {
            // ORDERING: Relaxed: the tickets for these programs come after this.
            item.at.places[at].store(code.starts[at] << 1, Ordering::Relaxed);
        }
        item.free_events(&code.segments[range(scope.segments)]);
        for at in range(scope.segments) {
            // ORDERING: Relaxed: the tickets for these programs come after this.
            item.at.on_devices().points[at].store(0, Ordering::Relaxed);
        }
        match scope.programs {
            (_, 0) => item.ticket(self.program, 1),
            (first, _) => item.ticket(first, scope.roots),
        }
    }

    /// Ends a control. An outer loop may come to it again.
    fn leave(&self, node: NodeId, state: &StepState, ended: Ended) {
        state.end();
        self.item.end_node(node, state.take(), ended);
    }
}

fn range((first, len): (u32, u32)) -> std::ops::Range<usize> {
    first as usize..(first + len) as usize
}

impl Item<'_> {
    /// Stops the loop or branch around a node that has failed.
    pub(super) fn fail_around(self, node: NodeId) {
        let code = self.code();
        if let Some((_, control)) = self.run.around(node).next() {
            self.at.controls[code.control_index(code.step_of[control.index()])].fail();
        }
    }
}
