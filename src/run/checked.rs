//! What orders the nodes of a simulated run, told to the sanitizer: targets that are followed, gates that are
//! passed, and what the host has seen. A node is checked against this order, not against the chosen one.
//!
//! Each program and each gate has a clock. Kernels for a stream of a device are the uses that are checked. A
//! node of the host knows what the host knows, because such nodes may tell each other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::inner::RunInner;
use super::interpret::{Interpreter, StepResult};
use crate::device::host::Queue;
use crate::device::sanitize::{Key, Sanitizer, within};
use crate::error::{Kind, Site};
use crate::graph::NodeId;
use crate::plan::code::{HostStep, Target};
use crate::runtime::Ended;
use crate::value::Outcome;

impl RunInner {
    fn sanitizer(&self) -> Option<&Arc<Sanitizer>> {
        self.core.choices.as_ref().map(|choices| &choices.sanitizer)
    }

    /// Notes that the run begins, in its place among those in flight.
    pub(super) fn note_begin(&self, slot: u16) {
        if let Some(sanitizer) = self.sanitizer() {
            sanitizer.begin(slot.into());
        }
    }

    /// Notes that the host sees the end of the run: a run that is cancelled does not follow its targets.
    pub(super) fn note_end(&self, slot: u16) {
        let Some(sanitizer) = self.sanitizer() else { return };
        for item in self.items() {
            (0..self.code().programs())
                .for_each(|program| sanitizer.join(Key::Host, Key::Program(slot.into(), item.at.base + program)));
        }
    }

    /// Notes that the host sees what a program has done.
    pub(super) fn note_seen(&self, slot: u16, program: u32) {
        if let Some(sanitizer) = self.sanitizer() {
            sanitizer.join(Key::Host, Key::Program(slot.into(), program));
        }
    }
}

impl<'q, Q: Queue<'q>> Interpreter<'_, 'q, Q> {
    #[inline(always)]
    fn sanitizer(&self) -> Option<&Arc<Sanitizer>> {
        if Q::IS_CHOSEN { self.item.run.sanitizer() } else { None }
    }

    fn run_key(&self) -> u64 {
        self.slot.into()
    }

    fn program_key(&self, program: u32) -> Key {
        Key::Program(self.run_key(), self.item.at.base + program)
    }

    fn gate_key(&self, gate: u32) -> Key {
        Key::Gate(self.run_key(), self.item.at.number, gate)
    }

    /// Notes what this program leads to, before it follows the target.
    #[inline(always)]
    pub(super) fn note_target(&self, target: Target) {
        if let Some(sanitizer) = self.sanitizer() {
            self.note_targets(sanitizer, target);
        }
    }

    #[inline(never)]
    fn note_targets(&self, sanitizer: &Sanitizer, mut target: Target) {
        let mut from = self.program_key(self.program);
        loop {
            match target {
                Target::Start { first, count } => {
                    return (first..first + count).for_each(|program| sanitizer.join(self.program_key(program), from));
                }
                Target::Arrive(gate) => {
                    sanitizer.join(self.gate_key(gate), from);
                    if !self.item.at.gates[gate as usize].is_ours() {
                        return;
                    }
                    from = self.gate_key(gate);
                    target = self.code.gates[gate as usize].then;
                }
                Target::Release(_) => return,
                Target::Phase(_) | Target::PhaseQueued(_) | Target::PhaseReached(_) | Target::End => {
                    // The consumer begins programs of later items behind any of these.
                    sanitizer.join(Key::Base(self.run_key()), from);
                    return sanitizer.join(Key::Host, from);
                }
            }
        }
    }

    /// Notes that this program arrives at the gate of its own next step.
    #[inline(always)]
    pub(super) fn note_gate(&self, gate: u32) {
        if let Some(sanitizer) = self.sanitizer() {
            sanitizer.join(self.gate_key(gate), self.program_key(self.program));
            if self.item.at.gates[gate as usize].is_ours() {
                sanitizer.join(self.program_key(self.program), self.gate_key(gate));
            }
        }
    }

    /// Notes where a control of a program has led to.
    #[inline(always)]
    pub(super) fn note_control(&self, program: u32, result: &StepResult) {
        if let Some(sanitizer) = self.sanitizer() {
            let lead = |to| sanitizer.join(to, self.program_key(program));
            match result {
                StepResult::Moved => lead(self.program_key(self.program)),
                StepResult::LeadsTo(ticket) => {
                    ticket.singles().for_each(|inner| lead(Key::Program(self.run_key(), inner.first())));
                }
                StepResult::Done | StepResult::Parked => {}
            }
        }
    }

    /// Notes that the host sees what this program has done.
    #[inline(always)]
    pub(super) fn note_seen(&self) {
        if let Some(sanitizer) = self.sanitizer() {
            sanitizer.join(Key::Host, self.program_key(self.program));
        }
    }

    /// Notes that this program is at a node of the host, which may learn what other nodes of the host know.
    fn note_host(&self) {
        if let Some(sanitizer) = self.sanitizer() {
            let program = self.program_key(self.program);
            sanitizer.join(program, Key::Base(self.run_key()));
            sanitizer.join(Key::Host, program);
            sanitizer.join(program, Key::Host);
        }
    }

    /// Does what a node of the host does. The host may learn before it and meanwhile.
    fn as_host<R>(&mut self, act: impl FnOnce(&mut Self) -> R) -> R {
        self.note_host();
        let result = act(self);
        self.note_host();
        result
    }

    /// Polls the future of a node.
    pub(super) fn poll_checked(&mut self, attention: u32) -> StepResult {
        if Q::IS_CHOSEN { self.as_host(|interpreter| interpreter.poll_node(attention)) } else { self.poll_node(attention) }
    }

    /// Calls the body of a node that is observed or simulated.
    pub(super) fn call_observed(&mut self, step: &HostStep) {
        let node = self.node();
        if let Some(error) = self.item.run.injected(node) {
            return self.fail(error);
        }
        let (item, mut begun) = (self.item, self.item.begin_node(node));
        let called = item.around(&mut begun, || self.call_checked(node, step));
        item.end_node(node, begun, Ended::of(matches!(called, Ok(Ok(())))));
        item.judge_call(node, called);
    }

    /// Calls a body. A race of a kernel is its error.
    fn call_checked(&mut self, node: NodeId, step: &HostStep) -> std::thread::Result<Outcome> {
        let call = |interpreter: &mut Self| catch_unwind(AssertUnwindSafe(|| interpreter.call(step)));
        let Some(sanitizer) = self.sanitizer().cloned() else { return call(self) };
        if !self.code.body(node).is_queued() {
            return self.as_host(call);
        }
        let (program, base) = (self.program_key(self.program), Key::Base(self.run_key()));
        sanitizer.join(program, base);
        if self.item.live.pipe.is_some() {
            // Its item may come from the host.
            sanitizer.join(program, Key::Host);
        }
        let place = self.item.site(node);
        let site = Site { node: place.node, stream: place.stream };
        let (called, race) = within(&sanitizer, program, site, || call(self));
        match (called, race) {
            (Ok(Ok(())), Some(race)) => Ok(Err(Box::new(Kind::Race(Box::new(race)).into()))),
            (called, _) => called,
        }
    }
}
