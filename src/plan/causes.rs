//! The causes for which a program resumes: records. A record of a segment is two causes. Work that is queued
//! behind the segment on a device resumes when the segment is *submitted*, and its stream waits for the
//! segment. All other work resumes when the segment is *reached*.
//!
//! ```text
//! submitted:  segment queued, consumer queued        reached:  segment queued, consumer on the host
//! ```

use super::NONE;
use super::records::Records;
use super::segments::Segments;
use crate::graph::NodeId;

/// The numbers of causes: one for each record, or two if there are segments.
pub(super) struct Causes<'a> {
    segments: Option<&'a Segments>,
    records: &'a Records,
    /// For each record its event, or [`NONE`]. Empty if there are no segments.
    events: Vec<u32>,
    /// The number of the next event.
    next_event: u32,
}

impl<'a> Causes<'a> {
    /// Makes the causes. Their events are numbered from `next_event` on.
    pub(super) fn new(segments: Option<&'a Segments>, records: &'a Records, next_event: u32) -> Self {
        let events = if segments.is_some() { vec![NONE; records.count()] } else { Vec::new() };
        Self { segments, records, events, next_event }
    }

    /// Returns the segment that a node represents.
    pub(super) fn segment(&self, node: NodeId) -> Option<u32> {
        self.segments.map(|segments| segments.of[node.index()]).filter(|&segment| segment != NONE)
    }

    fn per_record(&self) -> u32 {
        1 + u32::from(self.segments.is_some())
    }

    pub(super) fn count(&self) -> usize {
        self.records.count() * self.per_record() as usize
    }

    /// Returns the cause for targets that need the record's segment submitted, or the record's host node
    /// done.
    pub(super) fn submitted(&self, record: u32) -> u32 {
        if record == NONE { NONE } else { record * self.per_record() }
    }

    /// Returns the cause for targets that need the record's segment reached.
    pub(super) fn reached(&self, record: u32) -> u32 {
        if record == NONE { NONE } else { record * self.per_record() + 1 }
    }

    /// Returns the cause for which `consumer` resumes after a record.
    pub(super) fn of(&self, record: u32, consumer: NodeId) -> u32 {
        let is_reached = self.segment(self.records.node(record)).is_some() && self.segment(consumer).is_none();
        if is_reached { self.reached(record) } else { self.submitted(record) }
    }

    /// Notes that the stream of `consumer` waits for a record, if both belong to segments.
    pub(super) fn wait(&mut self, record: u32, consumer: NodeId) {
        if self.segment(consumer).is_none() || self.segment(self.records.node(record)).is_none() {
            return;
        }
        let event = &mut self.events[record as usize];
        if *event == NONE {
            *event = self.next_event;
            self.next_event += 1;
        }
    }

    /// Returns the event of a record, if a segment waits for it.
    pub(super) fn event(&self, record: u32) -> Option<u32> {
        self.events.get(record as usize).copied().filter(|&event| event != NONE)
    }

    pub(super) fn next_event(&self) -> u32 {
        self.next_event
    }
}
