//! What the conductor does with segments: calls the bodies of their nodes, which say what is to be done, and
//! submits that to a device.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::conduct::Conductor;
use super::fates::fate;
use super::inner::RunInner;
use super::observe::{Launched, Ran};
use super::queues::Berth;
use super::state;
use crate::device::host::{Queue, Ticket};
use crate::device::queue::{Event, Job, Judge, Part, QueueDevice, Submitted};
use crate::device::{DeviceStream, StreamMut};
use crate::error::{Error, Kind};
use crate::plan::code::{HostStep, Member, Segment, slice};
use crate::sync::Ordering;

impl<'q, Q: Queue<'q>> Conductor<'_, 'q, Q> {
    /// Submits the step's segment to its device. Of nodes that are skipped nothing is submitted but their
    /// place in the order. Returns true if the program is parked instead, because there is too much on the
    /// device; it goes on when some of that is done.
    #[cold]
    #[inline(never)]
    pub(super) fn submit_segment(&mut self) -> bool {
        let (run, live, code) = (self.run, self.live, self.code);
        let segment = code.segment(self.step);
        let berth = match run.queues().berth(run, live, self.program) {
            Ok(berth) => berth,
            Err(error) => {
                self.fail_members(segment, &error);
                return false;
            }
        };
        let device = run.queues().device(berth);
        let has_failed = || code.members_of(segment).iter().all(|member| run.fate(member.node) != 0);
        if let Some(point) = device.backlog(berth.lane)
            && !has_failed()
        {
            self.store_place(self.step << 1);
            run.resume_after(self.program, berth, point);
            return true;
        }
        let point = match self.submit_to(device, berth, segment) {
            Ok(submitted) => {
                if let (Some(slot), Some(event)) = (segment.event, submitted.event) {
                    live.events[slot as usize].store(event.0 as u64, Ordering::Relaxed);
                }
                Some(submitted.point)
            }
            Err(error) => {
                self.fail_members(segment, &error);
                // What was enqueued before the refusal must be over, too.
                device.mark(berth.lane).ok()
            }
        };
        self.submitted = point.map(|point| (berth, point));
        false
    }

    fn submit_to(&mut self, device: &dyn QueueDevice, berth: Berth, segment: &Segment) -> Result<Submitted, Error> {
        let (run, live, code) = (self.run, self.live, self.code);
        let members = code.members_of(segment);
        // ORDERING: Relaxed, here and where it is stored: the gate before this step comes after the record.
        let event = |&slot: &u32| live.events[slot as usize].load(Ordering::Relaxed) as usize;
        let waits = || slice(&code.segment_waits, segment.waits).iter().map(event);
        let mut stream = device.begin(berth.lane, &mut waits().map(Event))?;
        if waits().any(|event| event == 0) {
            return Err(Kind::NotBehind.into());
        }
        let is_observed = run.state.glance() & state::OBSERVED != 0;
        let mut observed = Vec::new();
        for member in members {
            let started = is_observed.then(Instant::now);
            let has_run = self.enqueue(member, &mut stream);
            if let (Some(started), Some(is_ok)) = (started, has_run) {
                observed.push((member.node, Ran::since(started, is_ok)));
            }
        }
        self.abandon_if_cancelled(members, &mut stream);
        let judge = &mut Members { run, members };
        let submitted = device.submit(stream, &mut Job { key: Some(&segment.key), is_recorded: segment.event.is_some(), judge });
        let launched = submitted.as_ref().map_or(Launched::Calls, |submitted| match submitted.is_graph {
            true => Launched::CudaGraph,
            false => Launched::Calls,
        });
        for (node, mut ran) in observed {
            ran.is_ok &= submitted.is_ok() && run.fate(node) == 0;
            run.observe(node, ran, launched);
        }
        submitted
    }

    /// Forgets what a segment's bodies asked for if the run was cancelled meanwhile, by one of them or by
    /// anyone: none of it has begun.
    fn abandon_if_cancelled(&self, members: &[Member], stream: &mut DeviceStream) {
        if self.run.state.glance() & state::CANCELLED == 0 {
            return;
        }
        stream.abandon_all();
        for member in members {
            // Its body was called, but what it asked for is not done.
            if self.run.fate(member.node) == 0 {
                self.run.set_fate(member.node, fate::CANCELLED, None);
            }
        }
    }

    /// Calls the body of a segment's node. Returns whether it succeeded; None if it is skipped.
    fn enqueue(&mut self, member: &Member, stream: &mut DeviceStream) -> Option<bool> {
        let (run, code) = (self.run, self.code);
        let waits = slice(&code.member_waits, member.waits);
        stream.begin_part(Part { stream: member.stream, waits, is_awaited: member.is_awaited });
        let is_off = run.fate(member.node) != 0 || self.skips(member.node, run.state.glance());
        let has_run = (!is_off).then(|| {
            // SAFETY: as in `call`.
            let cells = unsafe { self.live.frame.cells(member.access) };
            // SAFETY: as in `call`.
            let called = catch_unwind(AssertUnwindSafe(|| unsafe { member.call.run(cells, StreamMut::Device(stream)) }));
            let is_ok = matches!(called, Ok(Ok(())));
            if !is_ok {
                stream.abandon_part();
            }
            run.judge_call(member.node, called);
            is_ok
        });
        for &target in slice(&code.targets, member.releases) {
            let ready = self.follow(target);
            debug_assert!(ready.is_none(), "a release starts no program");
        }
        has_run
    }

    /// Fails the nodes of a segment of which nothing is known yet.
    fn fail_members(&self, segment: &Segment, error: &Error) {
        for member in self.code.members_of(segment) {
            let known = self.run.fate(member.node) != 0 || self.skips(member.node, self.run.state.glance());
            if !known {
                self.run.fail_unless_known(member.node, error);
            }
        }
    }

    /// Does what a segment leads to: what needs it submitted now, and what needs it reached when its device
    /// comes to that. The run may be gone afterwards.
    #[cold]
    #[inline(never)]
    pub(super) fn end_segment(&mut self, step: &HostStep, held: &mut Option<Ticket>) {
        let (run, segment) = (self.run, self.code.segment(self.step));
        let (is_told, is_awaited) = (step.targets_len > 0, segment.reached.1 > 0);
        match self.submitted.take() {
            Some((berth, point)) if is_awaited => {
                // An owner: the run may be over when its segment is.
                let (run, at) = (run.me(), self.step);
                if is_told {
                    self.follow_all(step, held);
                }
                run.await_device(at, berth, point);
            }
            Some((_, point)) => {
                // ORDERING: Release, and the cheap side of `RunInner::watch`: see `await_segment`.
                self.live.points[self.code.segment_index(self.step)].store(point, Ordering::Release);
                self.barrier.light();
                if run.state.glance() & state::WATCHED != 0 {
                    run.await_segment(self.live, self.step);
                }
                self.follow_all(step, held);
            }
            // The device is lost, or there is none.
            None => {
                run.signal_watchers(self.program, 1);
                let reached = self.code.reached_targets(segment);
                if is_told {
                    self.follow_all(step, held);
                }
                reached.iter().for_each(|&target| self.hold(held, target));
            }
        }
    }
}

/// Decides what becomes of a segment's nodes when a device refuses some of it.
struct Members<'a> {
    run: &'a RunInner,
    members: &'a [Member],
}

impl Judge for Members<'_> {
    fn refused(&mut self, part: u32, error: Error) {
        self.run.fail_unless_known(self.members[part as usize].node, &error);
    }

    fn goes_on(&mut self, part: u32) -> bool {
        let node = self.members[part as usize].node;
        let lacks_input = self.run.lacks_input(node);
        if lacks_input && self.run.fate(node) == 0 {
            self.run.set_fate(node, fate::SKIPPED, None);
        }
        !lacks_input
    }
}
