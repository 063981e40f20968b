//! A plan in the form that hosts run: every wait and record of the schedule turned into a countdown. Immutable; the words that
//! count down belong to a run.
//!
//! ```text
//! schedule   wait 0@3 · wait 1@7 · run x · record 2@5 · release a
//! code       [gate, counts 3: the program itself and two records] ─▶ body of x ─▶ targets: arrive at gates, start programs
//! ```
//! A step whose only predecessor is its program's step before costs an indirect call and no atomics. A program whose first node
//! waits for one record needs no gate: that record starts it. A gate that many records arrive at is a tree of gates, so that
//! workers do not queue for one word.

use std::sync::Arc;

use crate::graph::{Body, NodeId};
use crate::value::{Access, Arena, Call};

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
    /// The node is async: it is polled by who awaits the run.
    pub(crate) const ASYNC: u8 = 8;
    /// The step is a [`Segment`](super::Segment), whose nodes only enqueue; on devices with queues only.
    pub(crate) const SEGMENT: u8 = 32;
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
    /// The run is complete.
    End,
}

/// A step that is several nodes, submitted to a device as one. Its targets are what can go on once it is submitted.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) step: u32,
    /// Where its nodes begin in `members`, and how many there are.
    pub(crate) members: (u32, u32),
    /// The same in `segment_waits`: the events that come first.
    pub(crate) waits: (u32, u32),
    /// The event to record after it, if another segment waits for one.
    pub(crate) event: Option<u32>,
    /// Where what can go on once it is done begins in `targets`, and how much that is.
    pub(crate) reached: (u32, u32),
    /// What a device knows it by: the segments of all plans are different.
    pub(crate) key: Arc<()>,
}

/// One node of a segment.
pub(crate) struct Member {
    pub(crate) node: NodeId,
    pub(crate) call: Call,
    pub(crate) access: Access,
    /// Who has the same number is in order.
    pub(crate) stream: u32,
    /// Where the numbers, in the segment, of the nodes that it waits for begin in `member_waits`, and how many there are.
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

/// All programs of a plan, and how they wake each other.
pub(crate) struct Code {
    /// Program after program.
    pub(crate) steps: Vec<HostStep>,
    /// The body of each node: keeps the calls of the steps alive.
    pub(crate) bodies: Arena<dyn Body>,
    /// The node of each step; of a segment the first.
    pub(crate) nodes: Vec<NodeId>,
    /// Where each program starts in `steps`, and where the last one ends.
    pub(crate) starts: Vec<u32>,
    /// The stream of the schedule that each program is.
    pub(crate) streams: Vec<u32>,
    /// Programs `0..roots` wait for nothing.
    pub(crate) roots: u32,
    pub(crate) targets: Vec<Target>,
    pub(crate) gates: Vec<Gate>,
    /// Where each node stands in `steps`.
    pub(crate) step_of: Vec<u32>,
    /// The steps of async nodes, ascending.
    pub(crate) asyncs: Vec<u32>,
    /// The segments, by step.
    pub(crate) segments: Vec<Segment>,
    pub(crate) members: Vec<Member>,
    pub(crate) member_waits: Vec<u32>,
    pub(crate) segment_waits: Vec<u32>,
    /// How many events a run has.
    pub(crate) events: u32,
    /// The nodes whose value must be dropped by someone.
    pub(crate) drops: Vec<NodeId>,
}

impl Code {
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

    /// Returns the position of an async node's step among the async nodes.
    pub(crate) fn async_index(&self, step: u32) -> u32 {
        self.asyncs.binary_search(&step).expect("the step is async") as u32
    }
}

/// Returns the part of a list that begins somewhere and is so long.
pub(crate) fn slice<T>(list: &[T], (first, len): (u32, u32)) -> &[T] {
    &list[first as usize..(first + len) as usize]
}
