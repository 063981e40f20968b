//! A graph whose nodes all only enqueue, done as one kernel: its nodes' bodies are called one after the
//! other, for one stream.
//!
//! So a flow calls graphs of kernels. There is no run that somebody on the host would have to await: what
//! comes next is submitted behind it, on that stream or another. Its values are dropped when all is enqueued;
//! a device's memory outlives what was enqueued before.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::inputs::Inputs;
use super::outcomes::Site;
use super::outputs::Outputs;
use crate::device::{DeviceStream, StreamMut};
use crate::error::{Result, panic_message, shielded};
use crate::graph::NodeId;
use crate::plan::{Plan, PlanInner};
use crate::value::{Access, Frame};

/// Returns the device, counted from 0, that all nodes of the plan are kernels for, if they are.
pub(crate) fn device_of_all(plan: &Plan) -> Option<u32> {
    let code = &plan.inner().code;
    let device = code.homes.first()?.device;
    let is_there = code.homes.iter().all(|home| !home.is_host && home.device == device);
    let is_queued = (0..code.step_of.len()).all(|node| code.bodies.get(node).is_queued());
    (is_there && is_queued && code.controls.is_empty()).then_some(device)
}

/// Calls the bodies of a plan that is [of one device](device_of_all), for that stream.
///
/// # Errors
/// The inputs' mistakes; or the first failure, which names its node. What was enqueued before it is for the
/// caller to abandon.
pub(crate) fn enqueue(plan: &Plan, inputs: Inputs, stream: &mut DeviceStream) -> Result<Outputs> {
    let inner = plan.inner();
    inputs.check(inner)?;
    let values = Values { plan: inner, frame: Frame::new(&inner.layout)? };
    inputs.fill(inner, &values.frame);
    for &node in inner.schedule.order() {
        values.call(node, StreamMut::Device(stream))?;
    }
    // SAFETY: as in `Values::call`.
    let cells = || unsafe { values.frame.cells(Access::Tagged) };
    let outputs = inner.outputs.iter().map(|port| (port.transfer.share)(cells(), port.offset));
    Ok(Outputs::new(plan, outputs))
}

/// The values of a graph whose nodes are called here, in an order that the plan allows.
struct Values<'p> {
    plan: &'p PlanInner,
    frame: Frame,
}

impl Values<'_> {
    fn call(&self, node: NodeId, stream: StreamMut<'_>) -> Result<()> {
        let code = &self.plan.code;
        let step = &code.steps[code.step_of[node.index()] as usize];
        // SAFETY: nobody else has the frame, and what the node reads was written before.
        let cells = unsafe { self.frame.cells(step.access) };
        // SAFETY: the plan keeps the body, and the cells are as its step says.
        match catch_unwind(AssertUnwindSafe(|| unsafe { step.call.run(cells, stream) })) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => Err(self.site(node).failed(cause)),
            Err(panic) => Err(self.site(node).panicked(panic_message(panic))),
        }
    }

    fn site(&self, node: NodeId) -> Site {
        let device = self.plan.code.homes[0].device;
        Site { node: self.plan.name_of(node), stream: "the stream of its call".into(), device: format!("device {device}") }
    }
}

impl Drop for Values<'_> {
    fn drop(&mut self) {
        // SAFETY: as in `call`.
        let cells = || unsafe { self.frame.cells(Access::Tagged) };
        for input in &self.plan.inputs {
            let _ = shielded(|| (input.port.transfer.clear)(cells(), input.port.offset));
        }
        let outputs = self.plan.schedule.shape().outputs().iter().map(|&(node, _)| node);
        for node in outputs.chain(self.plan.code.drops.iter().copied()) {
            let _ = shielded(|| self.plan.code.body(node).release(cells()));
        }
    }
}
