//! A plan in the form that hosts run: every wait and record of the schedule turned into a countdown.
//! Immutable; the words that count down belong to a run.
//!
//! ```text
//! schedule   wait 0@3 · wait 1@7 · run x · record 2@5 · release a
//! code       [gate, counts 3: the program itself and two records] ─▶ body of x ─▶ targets: arrive at gates, start programs
//! ```
//! A step whose only predecessor is its program's step before costs an indirect call and no atomics. A
//! program whose first node waits for one record needs no gate: that record starts it. A gate that many
//! records arrive at is a tree of gates, so that workers do not queue for one word.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::graph::{Body, Carries, NodeId, Test, Transfer};
use crate::value::{Access, Arena, Call, Cells};

/// Step flags. A step without any is one call.
pub(crate) mod flag {
    /// The step is its program's last.
    pub(crate) const LAST: u8 = 1;
    /// The step has targets in the list.
    pub(crate) const TARGETS: u8 = 2;
    /// The step has one target: it arrives at the gate `targets`.
    pub(crate) const ARRIVE: u8 = 16;
    /// The next step has a gate.
    pub(crate) const GATE: u8 = 4;
    /// The node is async: the thread that comes to it polls it.
    pub(crate) const ASYNC: u8 = 8;
    /// The step is a [`Segment`](super::Segment), whose nodes only enqueue; on devices with queues only.
    pub(crate) const SEGMENT: u8 = 32;
    /// The node is a loop or a branch.
    pub(crate) const CONTROL: u8 = 64;
    /// The step is the first of its kind, so its length is unknown.
    pub(crate) const FIRST_OF_KIND: u8 = 128;
}

/// One node in its program, or one segment. Half a cache line.
pub(crate) struct HostStep {
    pub(crate) call: Call,
    /// Where this step's targets begin in the list, or its only target's gate.
    pub(crate) targets: u32,
    pub(crate) targets_len: u32,
    /// The gate before the next step.
    pub(crate) gate: u32,
    pub(crate) flags: u8,
    pub(crate) access: Access,
}

/// What happens when a step is done, or when the last has arrived at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// These programs can be resumed.
    Start { first: u32, count: u32 },
    /// One more has arrived at the gate.
    Arrive(u32),
    /// The value of the node can be dropped.
    Release(NodeId),
    /// The item has passed a phase.
    Phase(u32),
    /// The device has the work of a phase in its queue: work that goes behind it can be queued.
    PhaseQueued(u32),
    /// The device has done the work of such a phase.
    PhaseReached(u32),
    /// The run, or the item, is complete.
    End,
}

/// A step of several nodes, submitted to a device as one. Its targets can go on once it is submitted.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) step: u32,
    /// Where its nodes begin in `members`, and how many there are.
    pub(crate) members: (u32, u32),
    /// The same in `segment_waits`: the events that come first.
    pub(crate) waits: (u32, u32),
    /// The event to record after it, if another segment waits for one.
    pub(crate) event: Option<u32>,
    /// Where the targets that can go on once it is reached begin in `targets`, and how many there are.
    pub(crate) reached: (u32, u32),
    /// The device's key for it. The segments of all plans are different.
    pub(crate) key: Arc<()>,
}

/// One node of a segment.
pub(crate) struct Member {
    pub(crate) node: NodeId,
    pub(crate) call: Call,
    pub(crate) access: Access,
    /// Members of one stream are in order.
    pub(crate) stream: u32,
    /// Where the numbers, in the segment, of the nodes that it waits for begin in `member_waits`, and how
    /// many there are.
    pub(crate) waits: (u32, u32),
    /// Whether another of the segment waits for it.
    pub(crate) is_awaited: bool,
    /// Where the releases behind it begin in `targets`, and how many there are.
    pub(crate) releases: (u32, u32),
}

/// A countdown: how many must arrive, and what happens then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) count: u32,
    pub(crate) then: Target,
}

/// Where a program's work goes on a device with queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) device: u32,
    /// Programs with the same id are on the same stream.
    pub(crate) id: u32,
    pub(crate) is_host: bool,
}

/// An inner graph: programs that its control starts, and whose end continues the control.
#[derive(Debug)]
pub(crate) struct Scope {
    /// Where its programs begin, and how many there are; and so for what these count and submit.
    pub(crate) programs: (u32, u32),
    /// How many of them wait for nothing.
    pub(crate) roots: u32,
    pub(crate) gates: (u32, u32),
    pub(crate) segments: (u32, u32),
    /// The number of its first node among those of all graphs.
    pub(crate) first_node: u32,
    /// The loop or branch that it is of.
    pub(crate) control: NodeId,
    /// Its steps, if it is one program of plain calls: the control makes them itself.
    pub(crate) calls: Option<Range<u32>>,
}

/// A loop or a branch, where it stands.
pub(crate) struct Control {
    pub(crate) step: u32,
    pub(crate) node: NodeId,
    pub(crate) draft: Arc<ControlDraft>,
}

/// What a loop or a branch does, wherever it stands.
pub(crate) struct ControlDraft {
    /// The node, in its own graph.
    pub(crate) node: NodeId,
    pub(crate) flow: ControlFlow,
    pub(crate) carries: Carries,
    /// All cells that are its own.
    pub(crate) cells: Box<[(u32, &'static Transfer)]>,
}

/// What a control does with its scopes, by their number.
pub(crate) enum ControlFlow {
    Repeat { condition: Option<u32>, test: Test, body: u32, max_iterations: u64 },
    Branch { selector: u32, select: fn(Cells<'_>, u32) -> i64, arms: Box<[u32]> },
}

/// All programs of a plan, and how they wake each other.
#[derive(Default)]
pub(crate) struct Code {
    /// Program after program.
    pub(crate) steps: Vec<HostStep>,
    /// The body of each node: keeps the calls of the steps alive.
    pub(crate) bodies: Arena<dyn Body>,
    /// The node of each step; of a segment the first.
    pub(crate) nodes: Vec<NodeId>,
    /// Where each program starts in `steps`, and where the last one ends.
    pub(crate) starts: Vec<u32>,
    /// The stream that each program is: of the schedule, or of the schedule of an inner graph, whose streams
    /// count on behind.
    pub(crate) streams: Vec<u32>,
    pub(crate) homes: Vec<Home>,
    /// Whether it is one short program of plain calls, with whose end a run is over.
    pub(crate) is_calls: bool,
    /// Programs `0..roots` wait for nothing.
    pub(crate) roots: u32,
    /// The programs of each phase that wait for nothing else, in a pipeline: the first, and how many.
    pub(crate) phases: Vec<(u32, u32)>,
    /// For each phase that is one segment its device: the phases whose work can be queued behind each other.
    pub(crate) queued: Vec<Option<u32>>,
    pub(crate) targets: Vec<Target>,
    pub(crate) gates: Vec<Gate>,
    /// Where each node stands in `steps`. Nodes of inner graphs count on behind those of the outermost one,
    /// graph by graph.
    pub(crate) step_of: Vec<u32>,
    /// The inner graphs, by their first nodes.
    pub(crate) scopes: Vec<Scope>,
    /// The loops and branches, by step.
    pub(crate) controls: Vec<Control>,
    /// The cells of those, and of values that nothing releases.
    pub(crate) cells: Vec<(u32, &'static Transfer)>,
    /// The steps of async nodes, ascending.
    pub(crate) asyncs: Vec<u32>,
    /// The segments, by step.
    pub(crate) segments: Vec<Segment>,
    pub(crate) members: Vec<Member>,
    pub(crate) member_waits: Vec<u32>,
    pub(crate) segment_waits: Vec<u32>,
    /// How many events a run has.
    pub(crate) events: u32,
    /// The nodes whose values need a drop.
    pub(crate) drops: Vec<NodeId>,
}

/// The largest graph without [`flag::FIRST_OF_KIND`]: in so few steps the clock is read often enough.
const SMALL: usize = 15;

impl Code {
    /// Finds the first step of each kind of body, and every loop and branch.
    pub(super) fn find_kinds(&mut self) {
        if self.steps.len() <= SMALL {
            return;
        }
        // Few kinds are in use near each other: the recent ones need no lookup in the set.
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

    /// Returns whether the steps of a program are plain calls, and all that follows is another program.
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

    /// Finds out whether it is [one program of calls](Code::is_calls).
    pub(super) fn find_calls(&mut self) {
        let (steps, is_end) = (self.steps.len(), |target| matches!(target, Target::End));
        self.is_calls = steps <= SMALL && self.is_one_program() && self.are_calls_up_to(0..steps as u32, is_end);
    }

    /// Returns whether it is one program, with whose end the run or the item is over.
    pub(crate) fn is_one_program(&self) -> bool {
        let has_others = self.programs() > 1 || !self.gates.is_empty() || !self.segments.is_empty();
        !has_others && self.steps.last().is_some_and(|last| matches!(self.targets_of(last), [Target::End]))
    }

    pub(crate) fn programs(&self) -> u32 {
        self.streams.len() as u32
    }

    /// Returns the program that a step belongs to.
    pub(crate) fn program_of(&self, step: u32) -> u32 {
        self.starts.partition_point(|&start| start <= step) as u32 - 1
    }

    /// Returns the body of a node, for what is done with it other than calling it.
    pub(crate) fn body(&self, node: NodeId) -> &dyn Body {
        self.bodies.get(node.index())
    }

    /// Returns what a node is called with.
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

    /// Returns the segment that a step is.
    pub(crate) fn segment(&self, step: u32) -> &Segment {
        &self.segments[self.segment_index(step)]
    }

    /// Returns where that stands in `segments`.
    pub(crate) fn segment_index(&self, step: u32) -> usize {
        self.segments.binary_search_by_key(&step, |segment| segment.step).expect("the step is a segment")
    }

    pub(crate) fn members_of(&self, segment: &Segment) -> &[Member] {
        slice(&self.members, segment.members)
    }

    /// Returns what can go on once a segment is done.
    pub(crate) fn reached_targets(&self, segment: &Segment) -> &[Target] {
        slice(&self.targets, segment.reached)
    }

    /// Returns the nodes of a step.
    pub(crate) fn nodes_of(&self, step: u32) -> impl Iterator<Item = NodeId> + '_ {
        let is_segment = self.steps[step as usize].flags & flag::SEGMENT != 0;
        let members = if is_segment { self.members_of(self.segment(step)) } else { &[] };
        (!is_segment).then(|| self.nodes[step as usize]).into_iter().chain(members.iter().map(|member| member.node))
    }

    /// Returns where the loop or branch at a step stands in `controls`.
    pub(crate) fn control_index(&self, step: u32) -> usize {
        self.controls.binary_search_by_key(&step, |control| control.step).expect("the step is a control")
    }

    /// Returns the inner graph that a node is of; none for one of the outermost graph.
    pub(crate) fn scope_of(&self, node: NodeId) -> Option<usize> {
        self.scopes.partition_point(|scope| scope.first_node <= node.0).checked_sub(1)
    }

    /// Returns the stream that runs a node.
    pub(crate) fn stream_of(&self, node: NodeId) -> u32 {
        self.streams[self.program_of(self.step_of[node.index()]) as usize]
    }

    /// Returns the position of an async node's step among the async nodes.
    pub(crate) fn async_index(&self, step: u32) -> u32 {
        self.asyncs.binary_search(&step).expect("the step is async") as u32
    }
}

/// Returns the part of a list that begins somewhere and is so long.
pub(crate) fn slice<T>(list: &[T], (first, len): (u32, u32)) -> &[T] {
    &list[first as usize..(first + len) as usize]
}
