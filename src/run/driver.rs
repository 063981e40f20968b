//! The polling task's share of an inline run. The driver's lock makes one task at a time the polling task.

use crate::device::host::Tickets;

/// The state that the polling task keeps between polls.
#[derive(Default)]
pub(super) struct Driver {
    /// Programs that are ready.
    pub(super) tickets: Tickets,
}
