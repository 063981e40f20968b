//! A GPU's events: made once, used again.

use cudarc::driver::sys::CUevent;

use super::context::Context;
use super::driver::Driver;
use crate::error::Result;

/// No timing: events are for order, and cost less without.
const DISABLE_TIMING: u32 = 2;

/// The unused events of a device.
#[derive(Default)]
pub(super) struct Events {
    free: Vec<CUevent>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Events {}

impl Events {
    /// Returns an event of the context, which is current.
    pub(super) fn take(&mut self, context: &Context) -> Result<CUevent> {
        if let Some(event) = self.free.pop() {
            return Ok(event);
        }
        let mut event = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        context.check(unsafe { (context.driver.event_create)(&mut event, DISABLE_TIMING) })?;
        Ok(event)
    }

    /// Takes an event back. Waits for it that are queued already keep what they wait for.
    pub(super) fn give_back(&mut self, event: CUevent) {
        self.free.push(event);
    }

    pub(super) fn destroy(&mut self, driver: &Driver) {
        for event in self.free.drain(..) {
            // SAFETY: the event is free, so no caller has it. The driver keeps what it still needs.
            unsafe { (driver.event_destroy)(event) };
        }
    }
}
