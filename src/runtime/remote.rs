//! A lane that a device moves: this program only reads its word, and the device may be lost.
//!
//! Every wait ends, with the point or with a fault. A fault is set before the waiters are rung, and a waiter
//! checks for it after it has registered. A fatal fault ends all waits on the device, now and later. Any
//! other fault ends the present waits of its lane; later waits end with the point, and
//! [`LaneFaults`](super::LaneFaults) says which work is in doubt.
//!
//! ```text
//!  fault    event                   next           then
//!  none     fail_waits             (unchanged)    waits up to the last awaited point end with the fault
//!  none     lose (fatal)            set            certain points are signalled before; all other waits end
//!  set      lose                    set            the first fault stays
//! ```

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Lane, WaiterKey};
use crate::device::queue::{Fault, Timeline};
use crate::sync::{Mutex, OnceLock, lock};

/// A stream's progress as the host knows it.
pub(crate) struct RemoteLane {
    pub(super) lane: Lane,
    pub(super) timeline: Arc<dyn Timeline>,
    /// Streams of one device are lost together.
    pub(super) device: u32,
    fault: OnceLock<Fault>,
    /// The last fault that was not fatal, and the last point that had a waiter then.
    failed: Mutex<Option<(u64, Fault)>>,
}

impl RemoteLane {
    pub(crate) fn new(timeline: Arc<dyn Timeline>, device: u32) -> Self {
        Self { lane: Lane::new(), timeline, device, fault: OnceLock::new(), failed: Mutex::new(None) }
    }

    /// Waits for point `n`, or for the loss of the device.
    pub(crate) fn poll(&self, n: u64, key: &mut WaiterKey, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.lane.poll(n, key, cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        // After the registration: a fault that was set before is seen here, and a later one rings this
        // waiter.
        let failed = || lock(&self.failed).as_ref().filter(|(up_to, _)| n <= *up_to).map(|(_, fault)| fault.clone());
        let Some(fault) = self.fault.get().cloned().or_else(failed) else { return Poll::Pending };
        self.lane.forget(key);
        // Points that were reached before the loss were signalled before the fault was set. So the point is
        // checked after the fault.
        Poll::Ready(if self.lane.has_reached(n) { Ok(()) } else { Err(fault) })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.fault.get().is_some()
    }

    /// Ends the present waits: those for points that are not signalled yet.
    pub(super) fn fail_waits(&self, fault: &Fault) {
        if let Some(last) = self.lane.last_awaited() {
            *lock(&self.failed) = Some((last, fault.clone()));
            self.lane.ring();
        }
    }

    /// Ends every wait, now and later.
    pub(super) fn lose(&self, fault: &Fault) {
        // Points that were certainly reached before the loss count as reached.
        self.lane.signal(self.timeline.certain());
        let _ = self.fault.set(fault.clone());
        self.lane.ring();
    }
}
