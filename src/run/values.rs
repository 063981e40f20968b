//! The values of a run while none of its steps runs: the outputs are taken out, the rest is dropped.

use std::any::TypeId;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use super::outputs::Outputs;
use crate::error::shielded;
use crate::graph::{NodeId, OutputPort, Transfer};
use crate::plan::Plan;
use crate::plan::code::Code;
use crate::value::{Access, Cells, Frame, Slot};

/// The values in a frame, whose cells have no other user while this lives.
pub struct FrameValues<'r> {
    plan: &'r Plan,
    code: &'r Code,
    frame: &'r Frame,
    /// The outputs that were moved out.
    taken: Cell<usize>,
}

impl fmt::Debug for FrameValues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameValues").field("plan", self.plan).finish_non_exhaustive()
    }
}

impl<'r> FrameValues<'r> {
    /// # Safety
    /// No step touches the cells of the frame while this lives. The frame has the layout of the plan, which
    /// has the code.
    pub(crate) unsafe fn new(plan: &'r Plan, code: &'r Code, frame: &'r Frame) -> Self {
        Self { plan, code, frame, taken: Cell::new(0) }
    }

    pub(super) fn cells(&self) -> Cells<'r> {
        // SAFETY: the caller of `new` has promised that no step touches the cells while this lives.
        unsafe { self.frame.cells(Access::Tagged) }
    }

    /// Moves the outputs out.
    pub(super) fn outputs(&self) -> Outputs {
        let ports = self.plan.inner().outputs.iter();
        self.taken.set(self.plan.inner().outputs.len());
        let take = |port: &OutputPort| {
            let Transfer { share, take_shared, .. } = port.of.transfer;
            (if port.comes_again { share } else { take_shared })(self.cells(), port.offset)
        };
        Outputs::new(self.plan, ports.map(take))
    }

    /// Moves one output out, by its number among the last `count`: those that a function declares behind
    /// the graph's own.
    #[inline]
    pub(crate) fn result<T: Send + Sync + 'static>(&self, number: usize, count: usize) -> Arc<T> {
        let outputs = &self.plan.inner().outputs;
        let port = &outputs[outputs.len() - count + number];
        assert_eq!(port.of.id, TypeId::of::<T>(), "the output is of that type");
        self.taken.set(self.taken.get() + 1);
        let (cells, slot) = (self.cells(), Slot::<T>::at(port.offset));
        if port.comes_again { cells.share(slot) } else { cells.take_shared(slot) }
    }

    /// Drops the other values when outputs were moved out. A node drops all its values together. So if the
    /// node of an output made others, or an output was left, these nodes are released.
    #[inline]
    pub(super) fn drop_rest(&self) {
        let outputs = &self.plan.inner().outputs;
        if self.taken.get() < outputs.len() || outputs.iter().any(|port| port.has_siblings) {
            self.drop_outputs();
        }
        self.drop_inputs();
    }

    /// Drops the inputs, and what loops and branches carry.
    pub(super) fn drop_inputs(&self) {
        self.drop_cells(self.plan.inner().inputs.iter().map(|input| (input.port.offset, input.port.of.transfer)));
        if let Some(context) = &self.plan.inner().context {
            let _ = shielded(|| self.cells().clear(context.slot));
        }
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
