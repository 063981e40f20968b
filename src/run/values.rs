//! The values of an execution while no step of it runs: the outputs are taken out, the rest is dropped. And
//! the enqueueing of a whole graph as one kernel, which has no steps but the calls of its bodies.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::inputs::Inputs;
use super::outcomes::Site;
use super::outputs::Outputs;
use crate::device::{DeviceStream, StreamMut};
use crate::error::{Result, panic_message, shielded};
use crate::graph::NodeId;
use crate::plan::Plan;
use crate::plan::code::Code;
use crate::value::{Access, Call, Cells, Frame, Outcome};

/// The values. The only user of the frame's cells, for now.
pub(super) struct Values<'r> {
    plan: &'r Plan,
    code: &'r Code,
    frame: &'r Frame,
}

impl<'r> Values<'r> {
    /// # Safety
    /// No step touches the cells of the frame while this lives. The frame has the layout of the plan, which
    /// has the code.
    pub(super) unsafe fn new(plan: &'r Plan, code: &'r Code, frame: &'r Frame) -> Self {
        Self { plan, code, frame }
    }

    fn cells(&self) -> Cells<'r> {
        // SAFETY: this is the only user of the cells.
        unsafe { self.frame.cells(Access::Tagged) }
    }

    /// Returns shares of the outputs.
    pub(super) fn outputs(&self) -> Outputs {
        let ports = self.plan.inner().outputs.iter();
        Outputs::new(self.plan, ports.map(|port| (port.of.transfer.share)(self.cells(), port.offset)))
    }

    /// Drops the inputs, and what loops and branches carry.
    pub(super) fn drop_inputs(&self) {
        let inputs = self.plan.inner().inputs.iter().map(|input| (input.port.offset, input.port.of.transfer));
        for (offset, transfer) in inputs.chain(self.code.cells.iter().copied()) {
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

/// Calls a body that enqueues work.
///
/// # Safety
/// The plan of the call is alive. The caller alone runs its node, what that reads was written before, and the
/// cells have the access that the call was made for.
pub(super) unsafe fn call_body(call: &Call, cells: Cells<'_>, stream: StreamMut<'_>) -> std::thread::Result<Outcome> {
    // SAFETY: the caller promises what the call asks for.
    catch_unwind(AssertUnwindSafe(|| unsafe { call.run(cells, stream) }))
}

/// Returns the device, counted from 0, that all nodes of the plan are kernels for, if they are.
pub(crate) fn device_of_all(plan: &Plan) -> Option<u32> {
    let code = &plan.inner().code;
    let device = code.homes.first()?.device;
    let is_there = code.homes.iter().all(|home| !home.is_host && home.device == device);
    let is_queued = (0..code.step_of.len()).all(|node| code.bodies.get(node).is_queued());
    (is_there && is_queued && code.controls.is_empty()).then_some(device)
}

/// Enqueues a plan that is [of one device](device_of_all) on a stream, as one segment without an end: what
/// follows is submitted behind it, and the host awaits nothing. The values are dropped when all is enqueued;
/// the memory of a device outlives what was enqueued before.
///
/// # Errors
/// The inputs' mistakes; or the first failure, which names its node. The caller abandons what was enqueued
/// before it.
pub(crate) fn enqueue(plan: &Plan, inputs: Inputs, stream: &mut DeviceStream) -> Result<Outputs> {
    let (inner, code) = (plan.inner(), &plan.inner().code);
    inputs.check(inner)?;
    let frame = Frame::new(&inner.layout)?;
    inputs.fill(inner, &frame);
    let failed = inner.schedule.order().iter().find_map(|&node| {
        let step = &code.steps[code.step_of[node.index()] as usize];
        // SAFETY: the frame is this function's own. `access` is what the call was made for.
        let cells = unsafe { frame.cells(step.access) };
        // SAFETY: the plan keeps the bodies. The order is one that the plan allows, so what a node reads was
        // written before.
        let called = unsafe { call_body(&step.call, cells, StreamMut::Device(stream)) };
        let site = || Site {
            node: inner.name_of(node),
            stream: "the stream of its call".into(),
            device: format!("device {}", code.homes[0].device),
        };
        match called {
            Ok(outcome) => outcome.err().map(|cause| site().failed(cause)),
            Err(panic) => Some(site().panicked(panic_message(panic))),
        }
    });
    // SAFETY: the frame is this function's own, and nothing runs in it any more.
    let values = unsafe { Values::new(plan, code, &frame) };
    let outputs = failed.map_or_else(|| Ok(values.outputs()), Err);
    values.drop_inputs();
    values.drop_outputs();
    values.drop_others();
    outputs
}
