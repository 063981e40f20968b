//! The communicators of one world: of its operations, its comparisons, and the reports after these. The world
//! has them, and so has each request on them until it has completed. The drop of the last owner tells the
//! control connection, which frees the communicators when all ranks have come so far.

use std::sync::Arc;

use super::calls::{COMMS, Handle};
use super::path::OfWorld;
use crate::comm::control::Control;
use crate::comm::health::Health;
use crate::sync::{AtomicU64, Ordering};

pub(super) struct Comm<H> {
    handles: [H; COMMS],
    /// The number of the world.
    pub(super) world: u32,
    pub(super) control: Arc<Control>,
    pub(super) health: Arc<Health>,
    /// The numbers of messages, which are those of other ranks at the end.
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

impl<H: Handle> Comm<H> {
    pub(super) fn new(handles: [H; COMMS], world: u32, control: Arc<Control>, health: Arc<Health>) -> Self {
        Self { handles, world, control, health, sent: AtomicU64::new(0), received: AtomicU64::new(0) }
    }

    pub(super) fn handle(&self) -> H {
        self.handles[0]
    }

    pub(super) fn comparisons(&self) -> H {
        self.handles[1]
    }

    pub(super) fn reports(&self) -> H {
        self.handles[2]
    }
}

impl<H: Handle> OfWorld for Comm<H> {
    fn is_broken(&self) -> bool {
        self.health.fault().is_some()
    }
}

/// Counts one more message.
pub(super) fn count_message(messages: &AtomicU64) {
    // ORDERING: Relaxed: the last owner of the communicator reads it, after the drops of all others.
    messages.fetch_add(1, Ordering::Relaxed);
}

impl<H> Drop for Comm<H> {
    fn drop(&mut self) {
        // ORDERING: Relaxed: the count of owners orders all before this.
        let messages = (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
        self.control.rest(self.world, self.health.fault().is_none().then_some(messages));
    }
}
