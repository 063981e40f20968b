//! The end of a segment on its device. The reactor's thread counts down the run's gates; or a worker does, if
//! the device has reached the end already.

use std::sync::Arc;

use super::inner::{Item, RunInner};
use super::outcomes::outcome;
use super::pipe::EndedPhases;
use super::state;
use crate::device::host::aside;
use crate::device::queue::Event;
use crate::error::{Error, Result, shielded};
use crate::graph::NodeId;
use crate::plan::code::{Home, Segment, Target, flag};
use crate::plan::pipelining::Passed;
use crate::runtime::{Devices, LaneId, when_reached};
use crate::sync::Ordering;
use crate::value::Access;

impl RunInner {
    pub(super) fn devices(&self) -> &Arc<Devices> {
        self.core.devices.as_ref().expect("only an executor with devices has segments")
    }

    /// Ends a step of an iteration when its lane has reached a point. Keeps the run alive until then.
    pub(super) fn await_device(self: Arc<Self>, number: u32, step: u32, lane: LaneId, point: u64) {
        let devices = self.devices().clone();
        when_reached(&devices, lane, point, move |outcome| {
            let item = self.item(number);
            item.end_step(step, outcome.and_then(|()| item.check_faults()));
            // This may be the last owner of the run, whose drop runs user code.
            let _ = shielded(|| drop(self));
        });
    }
}

impl Item<'_> {
    /// # Errors
    /// If the executor has no such device.
    pub(super) fn lane_of(self, program: u32) -> Result<LaneId> {
        let Home { device, id, .. } = self.code().homes[program as usize];
        // Runs in flight, and items of a single phase, begin at different lanes, so that they seldom share
        // one. Several phases keep to lanes of their own: an upload does not queue behind the item before's
        // kernels.
        let is_spread = self.run.pipelining.as_ref().is_some_and(|plan| plan.is_spread());
        let item = if is_spread { self.at.number } else { 0 };
        self.run.devices().lane(device, id.wrapping_add(u32::from(self.live.slot) + item))
    }

    /// Returns the name of the device that a node is queued on, if it is.
    pub(super) fn device_of(self, node: NodeId) -> Option<String> {
        let (code, devices) = (self.code(), self.run.core.devices.as_ref()?);
        let step = code.step_of[node.index()];
        let is_queued = code.steps[step as usize].flags & flag::SEGMENT != 0;
        let lane = self.lane_of(code.program_of(step));
        is_queued.then(|| lane.map_or_else(|_| "this executor".into(), |lane| devices.device(lane).name()))
    }

    /// Awaits a submitted segment, of which a node is awaited, unless it is awaited already.
    pub(super) fn await_segment(self, step: u32) {
        let code = self.code();
        // ORDERING: AcqRel: the thread that takes the point awaits it, once. Of "store the point, look for
        // watchers" and "watch, look for the point" one side sees the other, by the barrier of `watch`.
        let point = self.at.on_devices().points[code.segment_index(step)].swap(0, Ordering::AcqRel);
        if point != 0
            && let Ok(lane) = self.lane_of(code.program_of(step))
        {
            self.run.me().await_device(self.at.number, step, lane, point);
        }
    }

    pub(super) fn resume_after(self, program: u32, lane: LaneId, point: u64) {
        let (run, number) = (self.run.me(), self.at.number);
        when_reached(self.run.devices(), lane, point, move |outcome| {
            let item = run.item(number);
            if let Err(error) = outcome {
                // ORDERING: Acquire pairs with the Release of the store when the program parked.
                let place = item.at.places[program as usize].load(Ordering::Acquire);
                item.fail_nodes(place >> 1, &error);
            }
            item.follow(Target::Start { first: program, count: 1 });
            let _ = shielded(|| drop(run));
        });
    }

    /// Returns an error if a lane that the item uses had a fault since the item began. Then its results may
    /// be wrong, also earlier ones.
    fn check_faults(self) -> Result<()> {
        // ORDERING: Relaxed: stored before the item began.
        let (devices, before) = (self.run.devices(), self.at.on_devices().lane_faults.load(Ordering::Relaxed));
        if devices.faults() == before {
            return Ok(());
        }
        let is_used = |lane| self.code().segments.iter().any(|segment| self.uses(segment, lane));
        devices.fault_since(before, is_used).map_or(Ok(()), Err)
    }

    fn uses(self, segment: &Segment, lane: LaneId) -> bool {
        let own = self.lane_of(self.code().program_of(segment.step));
        let members = self.code().members_of(segment);
        // A segment of several streams is spread over lanes of its device.
        let is_spread = members.iter().any(|member| member.stream != members[0].stream);
        own.is_ok_and(|own| own == lane || is_spread && own.device == lane.device)
    }

    /// Ends the step of a segment that is done, or whose device is lost. The caller keeps the run alive.
    fn end_step(self, step: u32, outcome: Result<()>) {
        let code = self.code();
        if let Err(error) = outcome {
            self.fail_nodes(step, &error);
        }
        // If nothing of the run waits for the segment, the run may be over.
        if code.segment(step).reached.1 > 0 {
            self.tell_segment(step);
        }
        if self.run.state.glance() & state::WATCHED != 0 {
            let program = code.program_of(step);
            self.run.signal_watchers(program, step + 1 - code.starts[program as usize]);
        }
        for &target in code.reached_targets(code.segment(step)) {
            self.follow(target);
        }
    }

    /// Fails the nodes of a step that have no outcome yet. The error names no node, because a driver does not
    /// say which one has failed.
    fn fail_nodes(self, step: u32, error: &Error) {
        let unknown = self.code().nodes_of(step).filter(|&node| self.outcome(node) == 0);
        unknown.for_each(|node| self.set_outcome(node, outcome::FAILED, Some(error.clone())));
    }

    /// Fails a node that has no outcome yet.
    pub(super) fn fail_unless_known(self, node: NodeId, error: &Error) {
        if self.outcome(node) == 0 {
            self.set_outcome(node, outcome::FAILED, Some(self.site(node).failed(Box::new(error.clone()))));
        }
    }

    /// Follows a target for which no interpreter runs.
    fn follow(self, mut target: Target) {
        let pool = self.run.core.pool.as_ref().expect("an executor with devices has workers");
        let pass = |phase, passed| self.pass(phase, passed, &mut EndedPhases::new(), &mut |ticket| pool.submit(ticket));
        loop {
            match target {
                Target::Start { first, count } => return pool.submit(self.ticket(first, count)),
                Target::Arrive(gate) if self.at.gates[gate as usize].arrive::<true>() => {
                    target = self.code().gates[gate as usize].then;
                }
                Target::Arrive(_) => return,
                Target::Release(node) => return self.release(node),
                Target::Phase(phase) => return pass(phase, Passed::Ended),
                Target::PhaseQueued(phase) => return pass(phase, Passed::Queued),
                Target::PhaseReached(phase) => return pass(phase, Passed::Reached),
                Target::End if self.live.pipe.is_some() => return pass(0, Passed::Ended),
                Target::End => return RunInner::finish(self.run.me(), Some(self.live.slot)),
            }
        }
    }

    /// Drops the value of a node, whose last reader is done.
    pub(super) fn release(self, node: NodeId) {
        let body = self.code().body(node);
        // SAFETY: the plan releases a value after its last reader, and the countdown makes this the last of
        // several releases.
        let cells = unsafe { self.at.frame.cells(Access::Tagged) };
        if let Err(message) = aside(|| shielded(|| body.release(cells))) {
            let message = format!("dropping its value: {message}");
            self.add_fault(Some(node), self.site(node).panicked(message));
        }
    }

    pub(super) fn free_events(self, segments: &[Segment]) {
        let Some(devices) = &self.run.core.devices else { return };
        for segment in segments {
            let Some(slot) = segment.event else { continue };
            // ORDERING: Relaxed: the gates that lead here order it after the store in `submit_segment`.
            let handle = self.at.on_devices().events[slot as usize].swap(0, Ordering::Relaxed);
            if handle != 0
                && let Ok(lane) = self.lane_of(self.code().program_of(segment.step))
            {
                devices.device(lane).free_events(&mut std::iter::once(Event(handle as usize)));
            }
        }
    }
}
