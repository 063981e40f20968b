//! A GPU's events. They are created once and reused.

use cudarc::driver::sys::CUevent;

use super::context::Context;
use super::driver::Driver;
use crate::error::Result;

/// Most events only order work, and cost less without times.
const DISABLE_TIMING: u32 = 2;

/// The unused events of a device.
#[derive(Default)]
pub(super) struct Events {
    free: Vec<CUevent>,
    has_times: bool,
}

// SAFETY: any thread may use the driver's handles.
unsafe impl Send for Events {}

impl Events {
    /// Returns events that keep the time at which the device came to them.
    pub(super) fn with_times() -> Self {
        Self { has_times: true, ..Self::default() }
    }

    /// Returns an event of the context, which must be current.
    pub(super) fn take(&mut self, context: &Context) -> Result<CUevent> {
        if let Some(event) = self.free.pop() {
            return Ok(event);
        }
        let mut event = std::ptr::null_mut();
        let flags = if self.has_times { 0 } else { DISABLE_TIMING };
        // SAFETY: the call writes one handle, and `event` outlives it.
        context.check(unsafe { (context.driver.event_create)(&mut event, flags) })?;
        Ok(event)
    }

    /// Takes an event back. Queued waits for it keep the work that they wait for.
    pub(super) fn give_back(&mut self, event: CUevent) {
        self.free.push(event);
    }

    pub(super) fn destroy(&mut self, driver: &Driver) {
        for event in self.free.drain(..) {
            // SAFETY: the event is unused, and `self` owns it. The driver keeps what queued waits still need.
            unsafe { (driver.event_destroy)(event) };
        }
    }
}
