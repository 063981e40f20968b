//! The sanitizer of an executor, together with the number of one of its devices.

use std::sync::Arc;

use crate::device::queue::Event;
use crate::device::sanitize::{Clock, Sanitizer};

/// The sanitizer of an executor, and the number of a device there.
#[derive(Clone)]
pub(crate) struct Checked {
    pub(super) sanitizer: Arc<Sanitizer>,
    pub(super) device: u32,
}

impl Checked {
    pub(crate) fn new(sanitizer: &Arc<Sanitizer>, device: u32) -> Self {
        Self { sanitizer: sanitizer.clone(), device }
    }

    /// Records an event, with the clock of the work before it.
    pub(super) fn recorded(&self, event: Event, clock: Clock) {
        self.sanitizer.clocks().recorded(event.0, clock);
    }
}
