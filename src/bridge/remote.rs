//! A lane that a device moves: its word is read, not written, by this program, and the device may be lost.
//!
//! Whoever waits ends, with the point or with the fault: a fault is set before the waiters are rung, and looked for after one has registered.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Lane, WaiterKey};
use crate::device::queue::{Fault, Timeline};
use crate::sync::OnceLock;

/// A stream's progress as the host knows it.
pub(crate) struct RemoteLane {
    lane: Lane,
    timeline: Arc<dyn Timeline>,
    /// Streams of one device are lost together.
    pub(super) device: u32,
    fault: OnceLock<Fault>,
}

impl RemoteLane {
    pub(crate) fn new(timeline: Arc<dyn Timeline>, device: u32) -> Self {
        Self { lane: Lane::new(), timeline, device, fault: OnceLock::new() }
    }

    /// Waits for point `n`, or for the loss of the device.
    pub(crate) fn poll(&self, n: u64, key: &mut WaiterKey, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.lane.poll(n, key, cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        // After the waiter is registered: who set a fault before rang for nobody, who sets it later rings for this one.
        if self.fault.get().is_none() {
            return Poll::Pending;
        }
        self.lane.forget(key);
        Poll::Ready(self.outcome(n))
    }

    /// Returns how the wait for point `n` ended, for who was woken. What was reached before the device was lost was signalled before the fault
    /// was set, so the point is looked for after it.
    pub(crate) fn outcome(&self, n: u64) -> Result<(), Fault> {
        match self.fault.get() {
            Some(fault) if !self.lane.has_reached(n) => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.lane.is_awaited()
    }

    /// Passes on what the device has reached.
    pub(super) fn update(&self) -> bool {
        let reached = self.timeline.reached();
        let has_moved = !self.lane.has_reached(reached);
        if has_moved {
            self.lane.signal(reached);
        }
        has_moved
    }

    /// Asks the driver whether all is well.
    pub(super) fn check(&self) -> Result<(), Fault> {
        self.timeline.check()
    }

    /// Ends every wait, now and later.
    pub(super) fn lose(&self, fault: &Fault) {
        // What was reached before the device was lost is reached.
        self.update();
        let _ = self.fault.set(fault.clone());
        self.lane.ring();
    }
}
