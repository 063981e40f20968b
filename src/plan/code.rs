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
    /// On a device with queues the body only enqueues, and the node ends later: see [`QueuedStep`](super::QueuedStep).
    pub(crate) const QUEUED: u8 = 32;
}

/// One node in its program. Half a cache line.
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
    /// The value of the node at this step can be dropped.
    Release(u32),
    /// The run is complete.
    End,
}

/// What a step has besides, if its body enqueues work: its targets are what can go on once that is enqueued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedStep {
    pub(crate) step: u32,
    /// Where the events that its stream waits for before it begin in `queue_waits`, and how many there are.
    pub(crate) waits: (u32, u32),
    /// The event to record after it, if another stream waits for one.
    pub(crate) event: Option<u32>,
    /// Where what can go on once it is done begins in `targets`, and how much that is.
    pub(crate) reached: (u32, u32),
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
    /// The node of each step.
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
    /// The steps whose bodies enqueue, ascending.
    pub(crate) queued: Vec<QueuedStep>,
    /// Where each step stands in `queued`; empty if none does.
    pub(crate) queued_of: Vec<u32>,
    /// The events that queued steps wait for.
    pub(crate) queue_waits: Vec<u32>,
    /// How many events a run has.
    pub(crate) events: u32,
    /// The steps whose value must be dropped by someone.
    pub(crate) drops: Vec<u32>,
}

impl Code {
    pub(crate) fn programs(&self) -> u32 {
        self.streams.len() as u32
    }

    /// Returns the program that a step belongs to.
    pub(crate) fn program_of(&self, step: u32) -> u32 {
        self.starts.partition_point(|&start| start <= step) as u32 - 1
    }

    /// Returns the body of the node at `step`, for what is done with it other than calling it.
    pub(crate) fn body(&self, step: u32) -> &dyn Body {
        self.bodies.get(self.nodes[step as usize].index())
    }

    pub(crate) fn targets_of(&self, step: &HostStep) -> &[Target] {
        &self.targets[step.targets as usize..(step.targets + step.targets_len) as usize]
    }

    /// Returns what a step has whose body enqueues.
    pub(crate) fn queued(&self, step: u32) -> &QueuedStep {
        &self.queued[self.queued_of[step as usize] as usize]
    }

    /// Returns what can go on once the work of a queued step is done.
    pub(crate) fn reached_targets(&self, queued: &QueuedStep) -> &[Target] {
        &self.targets[queued.reached.0 as usize..(queued.reached.0 + queued.reached.1) as usize]
    }

    /// Returns the position of an async node's step among the async nodes.
    pub(crate) fn async_index(&self, step: u32) -> u32 {
        self.asyncs.binary_search(&step).expect("the step is async") as u32
    }
}
