//! Awaited nodes: a program signals its lane only once one of its nodes is awaited.

use std::sync::Arc;

use super::inner::{RunInner, Start};
use super::state;
use crate::device::host::aside;
use crate::graph::NodeId;
use crate::plan::code::flag;
use crate::runtime::Lane;
use crate::sync::{OnceLock, Ordering, lock};

impl RunInner {
    /// Returns the lane of the node's program, the node's point on it, and whether a check of the program now
    /// sees all its earlier steps. From now on the program signals the lane.
    pub(super) fn watch(&self, node: NodeId) -> (Arc<Lane>, u64, bool) {
        let code = self.code();
        let step = code.step_of[node.index()];
        let program = code.program_of(step);
        let lanes = self.watched.get_or_init(|| (0..code.programs()).map(|_| OnceLock::new()).collect());
        let lane = lanes[program as usize].get_or_init(|| Arc::new(Lane::new())).clone();
        self.state.raise(state::WATCHED);
        // ORDERING: the heavy side of "note the step, light, load the state" before each step. A step that is
        // not noted down when `catch_up` looks belongs to a program that sees WATCHED, and signals. If the
        // barrier is refused, the lock orders this before the steps of a run that has not started.
        let is_ordered = self.core.barrier.heavy() || matches!(*lock(&self.start), Start::Waiting(_));
        (lane, u64::from(step - code.starts[program as usize]) + 1, is_ordered)
    }

    /// Signals, on behalf of the program of a watched node, the steps that it did before it was watched.
    pub(super) fn catch_up(&self, node: NodeId, lane: &Lane) {
        let Some(item) = self.first() else { return };
        let code = self.code();
        let step = code.step_of[node.index()];
        if code.steps[step as usize].flags & flag::SEGMENT != 0 {
            return item.await_segment(step);
        }
        let program = code.program_of(step);
        let (start, end) = (code.starts[program as usize], code.starts[program as usize + 1]);
        let polled = self.progress.get(item.live.slot);
        let at_workers = self.core.pool.iter().flat_map(|pool| pool.steps_at(item.live.slot));
        // Workers first: a program that leaves its worker meanwhile has its place stored before.
        let running = at_workers.chain(polled).filter(|step| (start..end).contains(step)).max().unwrap_or(start);
        // ORDERING: Acquire pairs with the Release of the store when the program parked.
        let parked = item.at.places[program as usize].load(Ordering::Acquire);
        let done = (parked >> 1) + (parked & 1);
        // ORDERING: Relaxed: the next run in this slot notes its steps after this run's `complete`, so the
        // Acquire of such a note makes DONE visible. The end of a run signals all its lanes.
        if self.state.glance() & state::DONE != 0 {
            return;
        }
        if running.max(done) > step {
            self.note_seen(item.live.slot, item.at.base + program);
            // Not beyond this node: a device may not have done the later ones.
            lane.signal(u64::from(step - start) + 1);
        }
    }

    /// Signals that the first `done` steps of a program are done. Called by the program itself.
    pub(super) fn signal_watchers(&self, program: u32, done: u32) {
        if let Some(lane) = self.watched.get().and_then(|lanes| lanes[program as usize].get()) {
            aside(|| lane.signal(u64::from(done)));
        }
    }
}
