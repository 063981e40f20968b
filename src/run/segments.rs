//! Segments: the bodies of their nodes record work, which is submitted to a device as one.

use std::time::Instant;

use super::enqueue::call_body;
use super::inner::Item;
use super::interpret::Interpreter;
use super::outcomes::outcome;
use super::state;
use super::times::SubmittedNode;
use crate::device::host::{Queue, Ticket};
use crate::device::queue::{Event, Job, Judge, Part};
use crate::device::{DeviceStream, StreamMut};
use crate::error::{Error, Kind, Site};
use crate::plan::code::{HostStep, Member, Segment, slice};
use crate::runtime::{Begun, LaneId, Submission};
use crate::sync::Ordering;

impl<'q, Q: Queue<'q>> Interpreter<'_, 'q, Q> {
    /// Submits the step's segment to its device. A skipped node keeps its place in the order, and nothing
    /// else. Returns true if the program is parked instead, because the lane has too much work; it resumes
    /// when some of that is done.
    #[cold]
    #[inline(never)]
    pub(super) fn submit_segment(&mut self) -> bool {
        let (item, code) = (self.item, self.code);
        let segment = code.segment(self.step);
        let lane = match item.lane_of(self.program) {
            Ok(lane) => lane,
            Err(error) => {
                self.fail_members(segment, &error);
                return false;
            }
        };
        let has_failed = || code.members_of(segment).iter().all(|member| item.outcome(member.node) != 0);
        if let Some(point) = item.run.devices().device(lane).backlog(lane.lane)
            && !has_failed()
        {
            self.store_place(self.step << 1);
            item.resume_after(self.program, lane, point);
            return true;
        }
        let Submission { outcome, point } = self.submit_to(lane, segment);
        match outcome {
            Ok(submitted) => {
                if let (Some(slot), Some(event)) = (segment.event, submitted.event) {
                    // ORDERING: Relaxed: the gate before each step that waits for the event comes after this.
                    item.at.on_devices().events[slot as usize].store(event.0 as u64, Ordering::Relaxed);
                }
            }
            Err(error) => self.fail_members(segment, &error),
        }
        self.submitted = point.map(|point| (lane, point));
        false
    }

    fn submit_to(&mut self, lane: LaneId, segment: &Segment) -> Submission {
        let (item, run, code) = (self.item, self.item.run, self.code);
        let members = code.members_of(segment);
        // ORDERING: Relaxed: the gate before this step comes after the store in `submit_segment`.
        let event = |&slot: &u32| item.at.on_devices().events[slot as usize].load(Ordering::Relaxed) as usize;
        let waits = || slice(&code.segment_waits, segment.waits).iter().map(event);
        let mut observed = Vec::new();
        let mut judge = Members { item, members };
        let events = &mut waits().map(Event);
        let submission = Submission::new(run.devices().device(lane), lane.lane, events, |stream| {
            if waits().any(|event| event == 0) {
                return Err(Kind::NotBehind.into());
            }
            for (part, member) in (0..).zip(members) {
                let mut begun = None;
                let has_run = self.record(member, stream, &mut begun);
                if let (Some(begun), Some(is_ok)) = (begun, has_run) {
                    let end = Instant::now();
                    // Work that is queued behind it on the device can begin from now on.
                    item.note_end(member.node, end);
                    observed.push((part, begun, is_ok, end));
                }
            }
            self.abandon_if_cancelled(members, stream);
            Ok(Job { key: Some((&segment.key, item.at.number)), is_recorded: segment.event.is_some(), judge: &mut judge })
        });
        let submitted = submission.outcome.as_ref().ok();
        for (part, mut begun, is_ok, end) in observed {
            begun.submit(submitted.map(|submitted| (submitted, lane.device, part)), end);
            let (node, is_ok) = (members[part as usize].node, is_ok && submitted.is_some());
            item.end_submitted(SubmittedNode { node, begun, is_ok, step: self.step, lane });
        }
        item.tell_timed();
        submission
    }

    /// Abandons the work of a segment if the run was cancelled meanwhile: none of it has begun.
    fn abandon_if_cancelled(&self, members: &[Member], stream: &mut DeviceStream) {
        if self.item.run.state.glance() & state::CANCELLED == 0 {
            return;
        }
        stream.queue_mut().abandon_all();
        for member in members {
            // Its body was called, but its work is not done.
            if self.item.outcome(member.node) == 0 {
                self.item.set_outcome(member.node, outcome::CANCELLED, None);
            }
        }
    }

    /// Calls the body of a segment's node. Returns whether it succeeded; None if it is skipped.
    fn record(&mut self, member: &Member, stream: &mut DeviceStream, begun: &mut Option<Begun>) -> Option<bool> {
        let (item, code) = (self.item, self.code);
        let waits = slice(&code.member_waits, member.waits);
        stream.queue_mut().begin_part(Part { stream: member.stream, waits, is_awaited: member.is_awaited });
        let is_off = item.outcome(member.node) != 0 || self.skips(member.node, item.run.state.glance());
        let has_run = (!is_off).then(|| {
            *begun = item.begin_node(member.node);
            // SAFETY: this program is at this segment, so this thread alone runs its nodes; what they read
            // was recorded before, by edges of the plan. `access` is what `Graph::nodes_in_place` found.
            let cells = unsafe { item.at.frame.cells(member.access) };
            // SAFETY: this thread alone runs the node; the plan keeps its body, and the cells have the access
            // that the call was made for.
            let call = || unsafe { call_body(&member.call, cells, StreamMut::Device(stream)) };
            let called = item.around(begun, call);
            let is_ok = matches!(called, Ok(Ok(())));
            if !is_ok {
                stream.queue_mut().abandon_part();
            }
            item.judge_call(member.node, called);
            is_ok
        });
        for &target in slice(&code.targets, member.releases) {
            let ready = self.follow(target);
            debug_assert!(ready.is_none(), "a release starts no program");
        }
        has_run
    }

    /// Fails the nodes of a segment that have no outcome yet.
    fn fail_members(&self, segment: &Segment, error: &Error) {
        for member in self.code.members_of(segment) {
            let known = self.item.outcome(member.node) != 0 || self.skips(member.node, self.item.run.state.glance());
            if !known {
                self.item.fail_unless_known(member.node, error);
            }
        }
    }

    /// Carries out what follows a segment: now what needs it submitted, and when its device has come to its
    /// end what needs it done. The run may be gone afterwards.
    #[cold]
    #[inline(never)]
    pub(super) fn end_segment(&mut self, step: &HostStep, held: &mut Option<Ticket>) {
        let (item, segment) = (self.item, self.code.segment(self.step));
        let (has_targets, is_awaited) = (step.targets_len > 0, segment.reached.1 > 0);
        match self.submitted.take() {
            Some((lane, point)) if is_awaited => {
                // An owner: the run may be over when its segment is.
                let (run, number, at) = (item.run.me(), item.at.number, self.step);
                if has_targets {
                    self.follow_all(step, held);
                }
                run.await_device(number, at, lane, point);
            }
            Some((_, point)) => {
                // ORDERING: Release pairs with the swap in `await_segment`; the barrier is the light side of
                // `RunInner::watch`.
                item.at.on_devices().points[self.code.segment_index(self.step)].store(point, Ordering::Release);
                self.barrier.light();
                if item.run.state.glance() & state::WATCHED != 0 {
                    item.await_segment(self.step);
                }
                self.follow_all(step, held);
            }
            // The device is lost, or there is none.
            None => {
                item.run.signal_watchers(self.program, 1);
                let reached = self.code.reached_targets(segment);
                if has_targets {
                    self.follow_all(step, held);
                }
                reached.iter().for_each(|&target| self.hold(held, target));
            }
        }
    }
}

/// Decides the outcomes of a segment's nodes when a device refuses some of its work.
struct Members<'a> {
    item: Item<'a>,
    members: &'a [Member],
}

impl Judge for Members<'_> {
    fn refused(&mut self, part: u32, error: Error) {
        self.item.fail_unless_known(self.members[part as usize].node, &error);
    }

    fn goes_on(&mut self, part: u32) -> bool {
        let node = self.members[part as usize].node;
        let lacks_input = self.item.lacks_input(node);
        if lacks_input && self.item.outcome(node) == 0 {
            self.item.set_outcome(node, outcome::SKIPPED, None);
        }
        !lacks_input
    }

    fn site(&self, part: u32) -> Site {
        let site = self.item.site(self.members[part as usize].node);
        Site { node: site.node, stream: site.stream }
    }
}
