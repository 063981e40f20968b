//! The beginning of every call: it finds the device, counts the call, and returns early on a planned fault or
//! a dead context.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::code::{Code, Outcome};
use crate::driver::callback::is_in_foreign_code;
use crate::driver::calls::Api;
use crate::driver::context;
use crate::driver::control::PROCESS_STATE;
use crate::driver::device::{self, Device};
use crate::driver::stream::Stream;
use crate::driver::table::{Handle, Kind};
use crate::wire::ViolationKind;

/// A call in progress. It writes its line of the log.
pub(super) struct Call {
    pub(super) device: &'static Device,
    api: Api,
    stream: Option<u32>,
    detail: String,
}

impl Call {
    /// Adds a detail to the call's line in the log, if a log is kept.
    pub(super) fn note(&mut self, detail: impl FnOnce() -> String) {
        if self.device.log.is_kept() {
            self.detail = detail();
        }
    }

    fn write_line(&self, outcome: Outcome) {
        if !self.device.log.is_kept() {
            return;
        }
        let stream = self.stream.map(|number| format!(" stream={number}")).unwrap_or_default();
        let gap = if self.detail.is_empty() { "" } else { " " };
        let code = outcome.err().map(|code| format!(" -> {}", code.0)).unwrap_or_default();
        self.device.log.add(format!("{}{stream}{gap}{}{code}", self.api.name(), self.detail));
    }
}

/// Runs the body of a C function. A panic of the driver becomes "unknown", because no panic may cross C.
pub(super) fn answer(body: impl FnOnce() -> Outcome) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// Enters a call that concerns no device.
pub(super) fn on_process(api: Api, body: impl FnOnce() -> Outcome) -> u32 {
    answer(|| match PROCESS_STATE.calls.count(api) {
        Some(code) => Err(code),
        None => body(),
    })
}

/// Enters a call that names a device. A dead context does not prevent it.
pub(super) fn on_device(api: Api, ordinal: i32, body: impl FnOnce(&'static Device) -> Outcome) -> u32 {
    answer(|| {
        check_initialized()?;
        let device = u32::try_from(ordinal).ok().and_then(device::known).ok_or(Code::INVALID_DEVICE)?;
        // ORDERING: Relaxed: a switch that a test sets before it calls.
        if device.switches.is_absent.load(Ordering::Relaxed) || has_no_device() {
            return Err(Code::INVALID_DEVICE);
        }
        count(api, device)?;
        let call = Call { device, api, stream: None, detail: String::new() };
        let outcome = body(device);
        call.write_line(outcome);
        outcome
    })
}

/// Enters a call that concerns the current context.
pub(super) fn on_context(api: Api, body: impl FnOnce(&mut Call) -> Outcome) -> u32 {
    answer(|| {
        check_initialized()?;
        on_live(api, context::current()?, None, body)
    })
}

/// Enters a call that names an object, and with it the device.
pub(super) fn on_object(api: Api, handle: Handle, kind: Kind, body: impl FnOnce(&mut Call) -> Outcome) -> u32 {
    answer(|| on_live(api, owner(handle, kind)?, None, body))
}

/// Enters a call that names a stream. Both default streams, the legacy one and the one per thread, are one
/// stream of the current context.
pub(super) fn on_stream(api: Api, handle: Handle, body: impl FnOnce(&mut Call, &Arc<Stream>) -> Outcome) -> u32 {
    answer(|| {
        let (device, stream) = if handle.0 <= 2 {
            let device = context::current()?;
            (device, Ok(device.default_stream()))
        } else {
            let device = owner(handle, Kind::Stream)?;
            (device, device.streams.get(handle))
        };
        let number = stream.as_ref().ok().map(|stream| stream.number);
        on_live(api, device, number, |call| body(call, &stream?))
    })
}

/// Returns the device that an object of that kind belongs to.
pub(super) fn owner(handle: Handle, kind: Kind) -> Outcome<&'static Device> {
    if !handle.is(kind) {
        return Err(Code::INVALID_HANDLE);
    }
    device::known(handle.ordinal()).ok_or(Code::INVALID_HANDLE)
}

fn on_live(api: Api, device: &'static Device, stream: Option<u32>, body: impl FnOnce(&mut Call) -> Outcome) -> Outcome {
    let mut call = Call { device, api, stream, detail: String::new() };
    let mut outcome = count(api, device).and(device.context.check());
    if outcome.is_ok() || api.gives_back() && device.context.check() == outcome {
        outcome = outcome.and(body(&mut call));
    }
    call.write_line(outcome);
    outcome
}

fn count(api: Api, device: &'static Device) -> Outcome {
    if is_in_foreign_code() {
        let text = format!("{} was called from a host function or a kernel", api.name());
        device.violations.add(ViolationKind::CallInCallback, text);
        return Err(Code::NOT_PERMITTED);
    }
    device.calls.count(api).map_or(Ok(()), Err)
}

fn check_initialized() -> Outcome {
    // ORDERING: Acquire pairs with the Release in `cuInit`.
    if PROCESS_STATE.is_initialized.load(Ordering::Acquire) { Ok(()) } else { Err(Code::NOT_INITIALIZED) }
}

pub(super) fn has_no_device() -> bool {
    // ORDERING: Relaxed: a switch that a test sets before it calls.
    PROCESS_STATE.has_no_device.load(Ordering::Relaxed)
}
