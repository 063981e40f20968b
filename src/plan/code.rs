//! A plan in the form that hosts run: every wait and record of the schedule becomes a countdown. The code is
//! immutable. The words that count down belong to a run.
//!
//! ```text
//! schedule   wait 0@3 · wait 1@7 · run x · record 2@5 · release a
//! code       [gate, counts 3: the program itself and two records] ─▶ body of x ─▶ targets: arrive at gates, start programs
//! ```
//! A step whose only predecessor is the step before it in its program costs an indirect call and no atomics.
//! A program whose first node waits for one record needs no gate: that record starts it. A gate with many
//! arrivals is a tree of gates, so that workers do not contend for one word.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::graph::{Body, Carries, NodeId, Test, Transfer};
use crate::value::{Access, Arena, Call, Cells};

/// Step flags. A step without flags is one call.
pub(crate) mod flag {
    /// The step is its program's last.
    pub(crate) const LAST: u8 = 1;
    /// The step has targets, in the list `targets`.
    pub(crate) const TARGETS: u8 = 2;
    /// The step has one target: an arrival at the gate with the number `targets`.
    pub(crate) const ARRIVE: u8 = 16;
    /// The next step has a gate.
    pub(crate) const GATE: u8 = 4;
    /// The node is async: the thread that reaches it polls it.
    pub(crate) const ASYNC: u8 = 8;
    /// The step is a [`Segment`](super::Segment), whose nodes only enqueue work. Only on devices with queues.
    pub(crate) const SEGMENT: u8 = 32;
    /// The node is a loop or a branch.
    pub(crate) const CONTROL: u8 = 64;
    /// The step is the first of its kind in the code, so its duration is unknown.
    pub(crate) const FIRST_OF_KIND: u8 = 128;
}

/// One node in its program, or one segment. Its size is half a cache line.
pub(crate) struct HostStep {
    pub(crate) call: Call,
    /// The start of this step's targets in the list, or the gate of its only target.
    pub(crate) targets: u32,
    pub(crate) targets_len: u32,
    /// The gate before the next step.
    pub(crate) gate: u32,
    pub(crate) flags: u8,
    pub(crate) access: Access,
}

/// An action at the end of a step, or at the last arrival at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Resumes these programs.
    Start { first: u32, count: u32 },
    /// Counts one arrival at the gate.
    Arrive(u32),
    /// Releases the value of the node.
    Release(NodeId),
    /// The item has ended a phase.
    Phase(u32),
    /// The work of a phase is in the queue of the device, so that later work can be queued behind it.
    PhaseQueued(u32),
    /// The device has done the work of such a phase.
    PhaseReached(u32),
    /// Ends the run, or the item.
    End,
}

/// A step of several nodes, submitted to a device as one unit. Its targets resume after the submission.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) step: u32,
    /// The start of its nodes in `members`, and their number.
    pub(crate) members: (u32, u32),
    /// The start of the events that it waits for in `segment_waits`, and their number.
    pub(crate) waits: (u32, u32),
    /// The event to record after it, if another segment waits for one.
    pub(crate) event: Option<u32>,
    /// The start in `targets` of the targets that resume once it is reached, and their number.
    pub(crate) reached: (u32, u32),
    /// The device's key for it. No two segments have the same key, in any plan.
    pub(crate) key: Arc<()>,
}

/// One node of a segment.
pub(crate) struct Member {
    pub(crate) node: NodeId,
    pub(crate) call: Call,
    pub(crate) access: Access,
    /// The stream. Members of one stream run in order.
    pub(crate) stream: u32,
    /// The start in `member_waits` of the numbers, in the segment, of the nodes that it waits for, and the
    /// number of these.
    pub(crate) waits: (u32, u32),
    /// Whether another member of the segment waits for it.
    pub(crate) is_awaited: bool,
    /// The start of its releases in `targets`, and their number.
    pub(crate) releases: (u32, u32),
}

/// A countdown: the number of arrivals, and the action at the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) count: u32,
    pub(crate) then: Target,
}

/// The place of a program's work on a device with queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) device: u32,
    /// Programs with the same id are on the same stream.
    pub(crate) id: u32,
    pub(crate) is_host: bool,
}

/// An inner graph: programs that its control starts. Their end resumes the control.
#[derive(Debug)]
pub(crate) struct Scope {
    /// The start of its programs, and their number. The same for their gates and segments.
    pub(crate) programs: (u32, u32),
    /// The number of its programs that wait for nothing.
    pub(crate) roots: u32,
    pub(crate) gates: (u32, u32),
    pub(crate) segments: (u32, u32),
    /// The number of its first node, among the nodes of all graphs.
    pub(crate) first_node: u32,
    /// The loop or branch that owns it.
    pub(crate) control: NodeId,
    /// Its steps, if it is one program of plain calls. Then the control calls them itself.
    pub(crate) calls: Option<Range<u32>>,
}

/// A loop or a branch, at its step.
pub(crate) struct Control {
    pub(crate) step: u32,
    pub(crate) node: NodeId,
    pub(crate) draft: Arc<ControlDraft>,
}

/// A loop or a branch, independent of its step.
pub(crate) struct ControlDraft {
    /// The node in its own graph.
    pub(crate) node: NodeId,
    pub(crate) flow: ControlFlow,
    pub(crate) carries: Carries,
    /// All cells that belong to it.
    pub(crate) cells: Box<[(u32, &'static Transfer)]>,
}

/// The kind of a control, with its scopes by number.
pub(crate) enum ControlFlow {
    Repeat { condition: Option<u32>, test: Test, body: u32, max_iterations: u64 },
    Branch { selector: u32, select: fn(Cells<'_>, u32) -> i64, arms: Box<[u32]> },
}

/// All programs of a plan, and how they resume each other.
#[derive(Default)]
pub(crate) struct Code {
    /// The steps, program after program.
    pub(crate) steps: Vec<HostStep>,
    /// The body of each node. It keeps the calls of the steps alive.
    pub(crate) bodies: Arena<dyn Body>,
    /// The node of each step. For a segment, the first node.
    pub(crate) nodes: Vec<NodeId>,
    /// The start of each program in `steps`, and the end of the last one.
    pub(crate) starts: Vec<u32>,
    /// The stream of each program: a stream of the schedule, or of the schedule of an inner graph. The latter
    /// are numbered after the former.
    pub(crate) streams: Vec<u32>,
    pub(crate) homes: Vec<Home>,
    /// Whether the code is one short program of plain calls, whose end is the end of the run.
    pub(crate) is_calls: bool,
    /// The number of programs without waits. They come first.
    pub(crate) roots: u32,
    /// In a pipeline, for each phase: the first of its programs that wait only for the phase's begin, and
    /// their number.
    pub(crate) phases: Vec<(u32, u32)>,
    /// For each phase that is one segment, its device. The work of these phases can be queued behind each
    /// other.
    pub(crate) queued: Vec<Option<u32>>,
    pub(crate) targets: Vec<Target>,
    pub(crate) gates: Vec<Gate>,
    /// The place of each node in `steps`. Nodes of inner graphs are numbered after those of the outermost
    /// graph, graph by graph.
    pub(crate) step_of: Vec<u32>,
    /// The inner graphs, in the order of their first nodes.
    pub(crate) scopes: Vec<Scope>,
    /// The loops and branches, by step.
    pub(crate) controls: Vec<Control>,
    /// The cells of controls, and of values that no node releases.
    pub(crate) cells: Vec<(u32, &'static Transfer)>,
    /// The steps of async nodes, ascending.
    pub(crate) asyncs: Vec<u32>,
    /// The segments, by step.
    pub(crate) segments: Vec<Segment>,
    pub(crate) members: Vec<Member>,
    pub(crate) member_waits: Vec<u32>,
    pub(crate) segment_waits: Vec<u32>,
    /// The number of events of a run.
    pub(crate) events: u32,
    /// The nodes whose values need a drop.
    pub(crate) drops: Vec<NodeId>,
}

/// The most nodes of a graph without [`flag::FIRST_OF_KIND`]: within so few steps the clock is read often
/// enough.
const SMALL: usize = 15;

impl Code {
    /// Marks the first step of each kind of body, and every loop and branch.
    pub(super) fn find_kinds(&mut self) {
        if self.steps.len() <= SMALL {
            return;
        }
        // Few kinds of body occur near each other: the recent ones need no lookup in the set.
        let (mut known, mut recent) = (HashSet::new(), [0; 8]);
        for step in &mut self.steps {
            let kind = step.call.kind();
            let last = std::mem::replace(&mut recent[kind / 16 % 8], kind);
            let is_first = last != kind && known.insert(kind);
            if is_first || step.flags & flag::CONTROL != 0 {
                step.flags |= flag::FIRST_OF_KIND;
            }
        }
    }

    /// Returns whether the steps of a program are plain calls whose only targets are starts of other
    /// programs.
    pub(super) fn are_calls(&self, steps: Range<u32>) -> bool {
        self.are_calls_up_to(steps, |end| matches!(end, Target::Start { .. }))
    }

    fn are_calls_up_to(&self, steps: Range<u32>, is_end: impl Fn(Target) -> bool) -> bool {
        let steps = &self.steps[steps.start as usize..steps.end as usize];
        steps.split_last().is_some_and(|(last, before)| {
            let ends = matches!(self.targets_of(last), [target] if is_end(*target));
            last.flags == flag::LAST | flag::TARGETS && ends && before.iter().all(|step| step.flags == 0)
        })
    }

    /// Sets [`is_calls`](Code::is_calls).
    pub(super) fn find_calls(&mut self) {
        let (steps, is_end) = (self.steps.len(), |target| matches!(target, Target::End));
        self.is_calls = steps <= SMALL && self.is_one_program() && self.are_calls_up_to(0..steps as u32, is_end);
    }

    /// Returns whether the code is one program, whose end is the end of the run or the item.
    pub(crate) fn is_one_program(&self) -> bool {
        let has_others = self.programs() > 1 || !self.gates.is_empty() || !self.segments.is_empty();
        !has_others && self.steps.last().is_some_and(|last| matches!(self.targets_of(last), [Target::End]))
    }

    pub(crate) fn programs(&self) -> u32 {
        self.streams.len() as u32
    }

    /// Returns the program of a step.
    pub(crate) fn program_of(&self, step: u32) -> u32 {
        self.starts.partition_point(|&start| start <= step) as u32 - 1
    }

    /// Returns the body of a node, for uses other than its call.
    pub(crate) fn body(&self, node: NodeId) -> &dyn Body {
        self.bodies.get(node.index())
    }

    /// Returns how a node accesses its values.
    pub(crate) fn access(&self, node: NodeId) -> Access {
        let step = self.step_of[node.index()];
        let member = || self.members_of(self.segment(step)).iter().find(|member| member.node == node);
        let step = &self.steps[step as usize];
        if step.flags & flag::SEGMENT == 0 { step.access } else { member().expect("it is in its segment").access }
    }

    #[inline]
    pub(crate) fn targets_of(&self, step: &HostStep) -> &[Target] {
        &self.targets[step.targets as usize..(step.targets + step.targets_len) as usize]
    }

    /// Returns the segment of a step.
    pub(crate) fn segment(&self, step: u32) -> &Segment {
        &self.segments[self.segment_index(step)]
    }

    /// Returns the place of the segment of a step in `segments`.
    pub(crate) fn segment_index(&self, step: u32) -> usize {
        self.segments.binary_search_by_key(&step, |segment| segment.step).expect("the step is a segment")
    }

    pub(crate) fn members_of(&self, segment: &Segment) -> &[Member] {
        slice(&self.members, segment.members)
    }

    /// Returns the targets that resume once a segment is done.
    pub(crate) fn reached_targets(&self, segment: &Segment) -> &[Target] {
        slice(&self.targets, segment.reached)
    }

    /// Returns the nodes of a step.
    pub(crate) fn nodes_of(&self, step: u32) -> impl Iterator<Item = NodeId> + '_ {
        let is_segment = self.steps[step as usize].flags & flag::SEGMENT != 0;
        let members = if is_segment { self.members_of(self.segment(step)) } else { &[] };
        (!is_segment).then(|| self.nodes[step as usize]).into_iter().chain(members.iter().map(|member| member.node))
    }

    /// Returns the place of the loop or branch of a step in `controls`.
    pub(crate) fn control_index(&self, step: u32) -> usize {
        self.controls.binary_search_by_key(&step, |control| control.step).expect("the step is a control")
    }

    /// Returns the inner graph of a node. None for a node of the outermost graph.
    pub(crate) fn scope_of(&self, node: NodeId) -> Option<usize> {
        self.scopes.partition_point(|scope| scope.first_node <= node.0).checked_sub(1)
    }

    /// Returns the stream that runs a node.
    pub(crate) fn stream_of(&self, node: NodeId) -> u32 {
        self.streams[self.program_of(self.step_of[node.index()]) as usize]
    }

    /// Returns the place of an async node's step among the async nodes.
    pub(crate) fn async_index(&self, step: u32) -> u32 {
        self.asyncs.binary_search(&step).expect("the step is async") as u32
    }
}

/// Returns the part of a list with this start and length.
pub(crate) fn slice<T>(list: &[T], (first, len): (u32, u32)) -> &[T] {
    &list[first as usize..(first + len) as usize]
}
