//! The progress of a stream of a device, as the host learns it.

use std::sync::Arc;

/// The progress of a stream, for waits of the host.
pub(crate) trait Timeline: Send + Sync + 'static {
    /// Returns the last point that has passed. Everything done before it is visible.
    fn reached(&self) -> u64;
    /// Returns the last certain point once the device is lost: all work before it, and all work on any lane
    /// that this depends on, is known to have ended.
    fn certain(&self) -> u64 {
        self.reached()
    }
    /// Asks the driver for a fault, which may take a microsecond. Returns a fault that is not fatal once.
    fn check(&self) -> Result<(), Fault>;
    /// Returns the other lanes of the device, as bits, that the work up to a point has used. Reports each
    /// piece of work once.
    fn others(&self, _reached: u64) -> u64 {
        0
    }
}

/// A driver's report that a stream has failed.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) code: u32,
    pub(crate) name: Arc<str>,
    /// Whether the fault is fatal: nothing will run on the device again.
    pub(crate) is_fatal: bool,
}
