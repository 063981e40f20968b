//! An engine as a client of its executor.

use std::sync::Arc;

use super::engine_core::{CLOSED, EngineCore};
use super::waits::EngineDrain;
use crate::runtime::{Client, Idle};
use crate::sync::Ordering;

impl Client for EngineCore {
    fn pending(&self) -> usize {
        Self::pending(self)
    }

    fn idle(self: Arc<Self>) -> Option<Idle> {
        // The engine that flows share keeps no failures.
        let failures = self.failures.upgrade().unwrap_or_default();
        Some(Arc::new(EngineDrain { core: self, failures }).idle())
    }

    fn shut_down(self: Arc<Self>) {
        // ORDERING: SeqCst pairs with `is_closed` and with the fence in `leave_if_over`. Either this thread
        // finds the operation that a push adds, or the push sees that the engine is closed.
        self.attention.fetch_or(CLOSED, Ordering::SeqCst);
        self.space.ring();
        self.async_ops.wake_all();
        self.drivers.ring();
        self.end_what_is_ready();
        self.leave_if_over();
    }
}
