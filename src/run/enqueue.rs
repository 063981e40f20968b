//! A whole graph as one kernel: its bodies are called on a stream of a device, one after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::inputs::Inputs;
use super::outcomes::Site;
use super::values::FrameValues;
use crate::device::{DeviceStream, StreamMut};
use crate::error::{Result, panic_message};
use crate::plan::Plan;
use crate::value::{Call, Cells, Frame, Outcome};

/// Returns the device, counted from 0, that all nodes of the plan are kernels for, if they are.
pub(crate) fn device_of_all(plan: &Plan) -> Option<u32> {
    let code = &plan.inner().code;
    let device = code.homes.first()?.device;
    let is_there = code.homes.iter().all(|home| !home.is_host && home.device == device);
    let is_queued = (0..code.step_of.len()).all(|node| code.bodies.get(node).is_queued());
    (is_there && is_queued && code.controls.is_empty()).then_some(device)
}

/// Enqueues a plan that is [of one device](device_of_all) on a stream, as one segment without an end: what
/// follows is submitted behind it, and the host awaits nothing. `take` gets the outputs. The other values are
/// dropped when all is enqueued; the memory of a device outlives the work that was enqueued before.
///
/// # Errors
/// The inputs' mistakes; or the first failure, which names its node. The caller abandons what was enqueued
/// before it.
pub(crate) fn enqueue<R>(
    plan: &Plan,
    mut inputs: Inputs,
    stream: &mut DeviceStream,
    take: impl FnOnce(&FrameValues<'_>) -> R,
) -> Result<R> {
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
    let values = unsafe { FrameValues::new(plan, code, &frame) };
    let results = failed.map_or_else(|| Ok(take(&values)), Err);
    values.drop_inputs();
    values.drop_outputs();
    values.drop_others();
    results
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
