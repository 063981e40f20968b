//! Nodes whose bodies only enqueue work, so that a node ends later than its body. Who enqueues behind them goes on when they are *submitted*, and its
//! stream waits; all others go on when they are *reached*.
//!
//! ```text
//! submitted:  producer queued, consumer queued        reached:  producer queued, consumer on the host
//! ```
//! On the host device both come at once.

use super::lower::{Facts, NONE, Records};
use crate::graph::NodeId;

/// Numbers of what leads to targets: two for each record, if there are queued nodes, and one for each of those, for the host node behind it in
/// its own program.
pub(super) struct Causes<'a> {
    facts: &'a [Facts],
    records: &'a Records,
    /// For each node its number among the queued ones; empty if there are none.
    ordinals: Vec<u32>,
    queued: u32,
    /// For each record the event that stands for it, or [`NONE`]; empty if there are no queued nodes.
    events: Vec<u32>,
    events_len: u32,
}

impl<'a> Causes<'a> {
    pub(super) fn new(facts: &'a [Facts], records: &'a Records) -> Self {
        let queued = facts.iter().filter(|node| node.is_queued).count() as u32;
        let (mut ordinals, mut events) = (Vec::new(), Vec::new());
        if queued > 0 {
            let mut next = 0;
            ordinals.extend(facts.iter().map(|node| {
                next += u32::from(node.is_queued);
                next.wrapping_sub(1)
            }));
            events.resize(records.count(), NONE);
        }
        Self { facts, records, ordinals, queued, events, events_len: 0 }
    }

    pub(super) fn is_queued(&self, node: NodeId) -> bool {
        self.facts[node.index()].is_queued
    }

    fn per_record(&self) -> u32 {
        1 + u32::from(self.queued > 0)
    }

    pub(super) fn count(&self) -> usize {
        self.records.count() * self.per_record() as usize + self.queued as usize
    }

    /// The cause for those whom the record tells that its node is submitted; of a host node, that it is done.
    pub(super) fn submitted(&self, record: u32) -> u32 {
        if record == NONE { NONE } else { record * self.per_record() }
    }

    /// The cause for those whom the record of a queued node tells that it is reached.
    pub(super) fn reached(&self, record: u32) -> u32 {
        if record == NONE { NONE } else { record * self.per_record() + 1 }
    }

    /// The cause that lets `consumer` go on after a record.
    pub(super) fn of(&self, record: u32, consumer: NodeId) -> u32 {
        let is_reached = self.is_queued(self.records.node(record)) && !self.is_queued(consumer);
        if is_reached { self.reached(record) } else { self.submitted(record) }
    }

    /// The cause that lets a host node go on that is behind this queued one in their program.
    pub(super) fn behind(&self, queued: NodeId) -> u32 {
        self.records.count() as u32 * self.per_record() + self.ordinals[queued.index()]
    }

    /// Notes that the stream of `consumer` waits for a record, if both are queued. Returns the event for it.
    pub(super) fn wait(&mut self, record: u32, consumer: NodeId) -> Option<u32> {
        if !self.is_queued(consumer) || !self.is_queued(self.records.node(record)) {
            return None;
        }
        let event = &mut self.events[record as usize];
        if *event == NONE {
            *event = self.events_len;
            self.events_len += 1;
        }
        Some(*event)
    }

    /// Returns the event to record for a record, if a queued node waits for it.
    pub(super) fn event(&self, record: u32) -> Option<u32> {
        self.events.get(record as usize).copied().filter(|&event| event != NONE)
    }

    pub(super) fn events(&self) -> u32 {
        self.events_len
    }
}
