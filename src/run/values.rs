//! The values of a run while none of its steps runs: the outputs are taken out, the rest is dropped.

use super::outputs::Outputs;
use crate::error::shielded;
use crate::graph::{NodeId, Transfer};
use crate::plan::Plan;
use crate::plan::code::Code;
use crate::value::{Access, Cells, Frame};

/// The values in a frame, whose cells have no other user while this lives.
pub(crate) struct FrameValues<'r> {
    plan: &'r Plan,
    code: &'r Code,
    frame: &'r Frame,
}

impl<'r> FrameValues<'r> {
    /// # Safety
    /// No step touches the cells of the frame while this lives. The frame has the layout of the plan, which
    /// has the code.
    pub(crate) unsafe fn new(plan: &'r Plan, code: &'r Code, frame: &'r Frame) -> Self {
        Self { plan, code, frame }
    }

    pub(super) fn cells(&self) -> Cells<'r> {
        // SAFETY: the caller of `new` has promised that no step touches the cells while this lives.
        unsafe { self.frame.cells(Access::Tagged) }
    }

    /// Returns shares of the outputs.
    pub(super) fn outputs(&self) -> Outputs {
        let ports = self.plan.inner().outputs.iter();
        Outputs::new(self.plan, ports.map(|port| (port.of.transfer.share)(self.cells(), port.offset)))
    }

    /// Drops the inputs, and what loops and branches carry.
    pub(super) fn drop_inputs(&self) {
        self.drop_cells(self.plan.inner().inputs.iter().map(|input| (input.port.offset, input.port.of.transfer)));
        self.drop_carried();
    }

    /// Drops what loops and branches carry.
    pub(super) fn drop_carried(&self) {
        self.drop_cells(self.code.cells.iter().copied());
    }

    pub(super) fn drop_cells(&self, cells: impl Iterator<Item = (u32, &'static Transfer)>) {
        for (offset, transfer) in cells {
            let _ = shielded(|| (transfer.clear)(self.cells(), offset));
        }
    }

    pub(super) fn drop_outputs(&self) {
        self.drop_of(self.plan.inner().schedule.shape().outputs().iter().map(|&(node, _)| node));
    }

    /// Drops the values of nodes that were not released yet, and their futures.
    pub(super) fn drop_others(&self) {
        let asyncs = self.code.asyncs.iter().map(|&step| self.code.nodes[step as usize]);
        self.drop_of(self.code.drops.iter().copied().chain(asyncs));
    }

    fn drop_of(&self, nodes: impl Iterator<Item = NodeId>) {
        for node in nodes {
            let body = self.code.body(node);
            let _ = shielded(|| body.abort(self.cells()));
            let _ = shielded(|| body.release(self.cells()));
        }
    }
}
