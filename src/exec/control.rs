//! Loops and branches: a program that comes to one stands there, starts the programs of an inner graph, and
//! goes on with the control when these have ended, as often as it takes. Nothing is made for an iteration,
//! nothing recurses, and no one waits: who ends an inner graph goes on.
//!
//! ```text
//! begin ─▶ first states in ─▶ [condition runs] ─▶ goes on? ── no ──▶ last states out ─▶ the program's next step
//!                                   ▲                │ yes
//!                        new states in ◀─ [body runs]
//! ```

use std::time::Instant;

use super::conduct::{Attended, Conductor};
use super::fates::fate;
use super::inner::RunInner;
use super::observe::{Launched, Ran};
use super::state;
use crate::device::host::{Queue, Ticket};
use crate::error::{Error, Kind};
use crate::graph::{NodeId, Test};
use crate::plan::code::{Control, ControlFlow, flag};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::value::{Access, Cells};

/// Where a run is with a loop or a branch. One thread at a time has the program that stands there, and
/// tickets hand it on; only `has_failed` is for everyone.
pub(super) struct ControlState {
    phase: AtomicU32,
    /// Of a loop how many iterations have begun; of a branch which arm was taken.
    count: AtomicU64,
    has_failed: AtomicBool,
    /// When it began, in an observed run.
    since: Mutex<Option<Instant>>,
}

/// What a control waits for.
mod phase {
    pub(super) const IDLE: u32 = 0;
    pub(super) const CONDITION: u32 = 1;
    /// The body, or an arm.
    pub(super) const GIVER: u32 = 2;
}

/// What a control does next.
enum Turn {
    /// Runs an inner graph, and is in this phase meanwhile.
    Enter {
        scope: u32,
        phase: u32,
    },
    /// Is done.
    Over,
    Fail(Error),
}

impl ControlState {
    pub(super) fn new() -> Self {
        Self {
            phase: AtomicU32::new(phase::IDLE),
            count: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            since: Mutex::new(None),
        }
    }

    // ORDERING: Relaxed in all of these: tickets order what the holders of the program do, and a node that
    // fails does so before its graph ends, which is before the control goes on.

    fn phase(&self) -> u32 {
        self.phase.load(Ordering::Relaxed)
    }

    fn set_phase(&self, phase: u32) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn set_count(&self, count: u64) {
        self.count.store(count, Ordering::Relaxed);
    }
}

impl<'q, Q: Queue<'q>> Conductor<'_, 'q, Q> {
    /// Goes on with the loop or branch at this step.
    pub(super) fn control(&mut self, attention: u32) -> Attended {
        let (run, live, code) = (self.run, self.live, self.code);
        let index = code.control_index(self.step);
        let (control, state) = (&code.controls[index], &live.controls[index]);
        let phase = state.phase();
        if phase == phase::IDLE {
            if self.skips(control.node, attention) {
                return Attended::Done;
            }
            if code.steps[self.step as usize].flags & flag::FIRST_OF_KIND != 0 {
                self.queue.expect_long();
            }
            if attention & state::OBSERVED != 0 {
                *lock(&state.since) = Some(Instant::now());
                if let Some(error) = run.injected(control.node) {
                    self.fail(error);
                    return Attended::Done;
                }
            }
        } else if attention & state::CANCELLED != 0 {
            run.set_fate(control.node, fate::CANCELLED, None);
            return self.leave(control.node, state, false);
        } else if state.has_failed.load(Ordering::Relaxed) {
            run.set_fate(control.node, fate::FAILED, None);
            return self.leave(control.node, state, false);
        }
        // SAFETY: the program stands at the control, so what that reads was written before, and none of its
        // inner graphs runs. Nobody else touches its states then, nor what an inner graph has left; what lies
        // in graphs around is only read.
        let cells = unsafe { live.frame.cells(Access::Tagged) };
        match self.turn(control, state, cells) {
            Turn::Enter { scope, phase } => {
                state.set_phase(phase);
                Attended::LeadsTo(self.enter(scope))
            }
            Turn::Over => {
                control.draft.carries.leave.iter().for_each(|carry| carry.act(cells));
                self.leave(control.node, state, true)
            }
            Turn::Fail(error) => {
                run.set_fate(control.node, fate::FAILED, Some(error));
                self.leave(control.node, state, false)
            }
        }
    }

    /// Takes what an inner graph has come to, and decides what comes next.
    fn turn(&self, control: &Control, state: &ControlState, cells: Cells<'_>) -> Turn {
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
                    Some(scope) => Turn::Enter { scope, phase: phase::CONDITION },
                    None => self.decide(control, state, cells),
                }
            }
            (ControlFlow::Branch { selector, select, arms }, phase::IDLE) => {
                begin();
                let selector = select(cells, *selector);
                match usize::try_from(selector).ok().and_then(|arm| arms.get(arm)) {
                    Some(&scope) => {
                        state.set_count(selector as u64);
                        Turn::Enter { scope, phase: phase::GIVER }
                    }
                    None if selector == -1 => Turn::Over,
                    None => Turn::Fail(Kind::NoSuchArm { node: self.name_of(control), selector, arms: arms.len() }.into()),
                }
            }
            (ControlFlow::Branch { .. }, _) => {
                give(state.count() as usize);
                Turn::Over
            }
        }
    }

    /// Asks whether a loop goes on.
    fn decide(&self, control: &Control, state: &ControlState, cells: Cells<'_>) -> Turn {
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
            None => Turn::Fail(Kind::Undecided { node: self.name_of(control), count }.into()),
            Some(false) => Turn::Over,
            Some(true) if count == *max_iterations => {
                Turn::Fail(Kind::TooManyIterations { node: self.name_of(control), max: count }.into())
            }
            Some(true) => {
                state.set_count(count + 1);
                Turn::Enter { scope: *body, phase: phase::GIVER }
            }
        }
    }

    fn name_of(&self, control: &Control) -> std::sync::Arc<str> {
        self.run.plan().name_of(control.node)
    }

    /// Winds an inner graph up. Returns its first programs; or the control's own, if it has none.
    fn enter(&mut self, scope: u32) -> Ticket {
        let (run, live, code) = (self.run, self.live, self.code);
        let scope = &code.scopes[scope as usize];
        // Nothing of it is running: all that it did is done, on devices too.
        for at in range(scope.gates) {
            live.gates[at].reset(code.gates[at].count);
        }
        for at in range(scope.programs) {
            // ORDERING: Relaxed: the tickets for these programs come after this.
            live.places[at].store(code.starts[at] << 1, Ordering::Relaxed);
        }
        run.free_events_of(live, &code.segments[range(scope.segments)]);
        for at in range(scope.segments) {
            live.points[at].store(0, Ordering::Relaxed);
        }
        self.store_place(self.step << 1);
        match scope.programs {
            (_, 0) => Ticket::new(self.slot, self.program, 1),
            (first, _) => Ticket::new(self.slot, first, scope.roots),
        }
    }

    /// Ends a control. An outer loop may come to it again.
    fn leave(&self, node: NodeId, state: &ControlState, is_ok: bool) -> Attended {
        state.set_phase(phase::IDLE);
        if let Some(since) = lock(&state.since).take() {
            self.run.observe(node, Ran::since(since, is_ok), Launched::Host);
        }
        Attended::Done
    }
}

fn range((first, len): (u32, u32)) -> std::ops::Range<usize> {
    first as usize..(first + len) as usize
}

impl RunInner {
    /// A node has failed: the loop or branch that it is in does not go on.
    pub(super) fn fail_around(&self, node: NodeId) {
        let (code, live) = (self.code(), self.live.get());
        if let (Some(scope), Some(live)) = (code.scope_of(node), live) {
            let control = code.scopes[scope].control;
            let state = &live.controls[code.control_index(code.step_of[control.index()])];
            state.has_failed.store(true, Ordering::Relaxed);
        }
    }
}
