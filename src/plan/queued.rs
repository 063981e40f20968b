//! The phases of a pipeline that are one segment on a device. The work of such a phase is queued without a
//! wait on the host: behind the same phase of the previous item, on the same lane, and behind the earlier
//! phases that it reads, by events.

use super::segments::Segments;
use super::{NONE, Schedule, StreamKind};
use crate::graph::NodeId;

/// The phases of a pipeline that are queued, and the waits between them.
#[derive(Default)]
pub(super) struct Queued {
    /// For each phase that is one segment, its device.
    pub(super) devices: Vec<Option<u32>>,
    /// Each phase with a later phase on the same device that reads it.
    behind: Vec<(u32, u32)>,
    /// For each phase the event that its readers wait for, or [`NONE`].
    events: Vec<u32>,
}

impl Queued {
    /// Finds the queued phases. Their events are numbered from `next_event` on.
    pub(super) fn new(schedule: &Schedule, segments: Option<&Segments>, next_event: u32) -> Self {
        let (Some(phases), Some(segments)) = (schedule.phases(), segments) else { return Self::default() };
        let depth = phases.iter().max().map_or(0, |last| last + 1);
        let devices: Vec<_> = (0..depth).map(|phase| device_of(schedule, segments, phases, phase)).collect();
        let phase = |node: NodeId| phases[node.index()];
        let edges = schedule.shape().edges().iter().map(|edge| (phase(edge.source), phase(edge.target)));
        let is_behind = |&(from, to): &(u32, u32)| from < to && is_one(&devices, from, to);
        let mut behind: Vec<(u32, u32)> = edges.filter(is_behind).collect();
        behind.sort_unstable();
        behind.dedup();
        let mut queued = Self { devices, behind, events: vec![NONE; depth as usize] };
        queued.number_events(next_event);
        queued
    }

    fn number_events(&mut self, next_event: u32) {
        let mut next = next_event;
        for &(from, _) in &self.behind {
            let event = &mut self.events[from as usize];
            if *event == NONE {
                *event = next;
                next += 1;
            }
        }
    }

    /// Returns the number of events.
    pub(super) fn events(&self) -> u32 {
        self.events.iter().filter(|&&event| event != NONE).count() as u32
    }

    /// Returns whether a phase is one segment.
    pub(super) fn is_queued(&self, phase: u32) -> bool {
        self.devices.get(phase as usize).is_some_and(Option::is_some)
    }

    /// Returns the event behind a phase, if another phase waits for it.
    pub(super) fn event(&self, phase: u32) -> Option<u32> {
        self.events.get(phase as usize).copied().filter(|&event| event != NONE)
    }

    /// Returns the events that a phase waits for.
    pub(super) fn waits(&self, phase: u32) -> impl Iterator<Item = u32> {
        let before = self.behind.iter().filter(move |&&(_, to)| to == phase);
        before.map(|&(from, _)| self.events[from as usize])
    }
}

/// Returns whether two phases are queued on the same device.
pub(super) fn is_one(devices: &[Option<u32>], from: u32, to: u32) -> bool {
    let device = |phase: u32| devices.get(phase as usize).copied().flatten();
    device(from).is_some() && device(from) == device(to)
}

/// Returns the device of a phase, if all its nodes are one segment.
fn device_of(schedule: &Schedule, segments: &Segments, phases: &[u32], phase: u32) -> Option<u32> {
    let nodes = || schedule.shape().ids().filter(|node| phases[node.index()] == phase);
    let first = nodes().next()?;
    let segment = segments.of[first.index()];
    let is_whole = segment != NONE && nodes().count() == segments.members(segment).len();
    let StreamKind::Device(device) = schedule.kind(schedule.stream_of(first)) else { return None };
    is_whole.then_some(device)
}
