//! A GPU's events: made once, used again.

use cudarc::driver::sys::CUevent;

use super::driver::Driver;
use crate::error::Result;

/// No timing: events are for order, and cost less without.
const DISABLE_TIMING: u32 = 2;

/// Events of a device that nobody uses.
#[derive(Default)]
pub(super) struct Events {
    free: Vec<CUevent>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Events {}

impl Events {
    /// Returns an event.
    pub(super) fn take(&mut self, driver: &Driver) -> Result<CUevent> {
        self.free.pop().map_or_else(|| create(driver), Ok)
    }

    /// Takes an event back. Waits for it that are queued already keep what they wait for.
    pub(super) fn give_back(&mut self, event: CUevent) {
        self.free.push(event);
    }

    pub(super) fn destroy(&mut self, driver: &Driver) {
        for event in self.free.drain(..) {
            // SAFETY: nobody has it. The driver keeps what it still needs.
            unsafe { (driver.event_destroy)(event) };
        }
    }
}

fn create(driver: &Driver) -> Result<CUevent> {
    let mut event = std::ptr::null_mut();
    // SAFETY: it writes one handle; the context is current.
    driver.check(unsafe { (driver.event_create)(&mut event, DISABLE_TIMING) })?;
    Ok(event)
}
