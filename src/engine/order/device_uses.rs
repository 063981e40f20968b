//! The uses of a variable by devices: the last write, and the reads since.

use std::sync::Arc;

use smallvec::SmallVec;

use super::access::Mode;
use super::device_use::{DeviceUse, Failure};
use crate::error::{Error, shielded};
use crate::sync::{Mutex, OnceLock, lock};

/// The last uses of a variable by devices. Empty for a variable that only hosts use.
pub(crate) struct DeviceUses(OnceLock<Box<Mutex<Uses>>>);

#[derive(Default)]
struct Uses {
    /// The last exclusive use. Kept after its end, until the host writes the variable.
    write: Option<Write>,
    /// The newest read on each lane.
    reads: SmallVec<[Arc<DeviceUse>; 2]>,
}

#[derive(Clone)]
struct Write {
    device_use: Arc<DeviceUse>,
    /// None if it leaves the variable unchanged.
    failure: Option<Failure>,
}

impl DeviceUses {
    pub(crate) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns true if a device has ever used the variable.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns the error of the last write, if it is known to have failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        let uses = lock(self.0.get()?);
        uses.write.as_ref()?.failure.as_ref()?.get().cloned()
    }

    /// Returns true if no write of a device is pending.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        !self.has_begun() || self.find(Mode::READ, |write, _| (!write.is_over()).then_some(())).is_none()
    }

    /// Calls `each` with the uses that a use of this mode comes after, until it returns something.
    pub(super) fn find<R>(&self, mode: Mode, mut each: impl FnMut(&Arc<DeviceUse>, Option<&Failure>) -> Option<R>) -> Option<R> {
        let uses = lock(self.0.get()?);
        let input = |write: &Write| if mode.is_read() { write.failure.clone() } else { None };
        let found = uses.write.as_ref().and_then(|write| each(&write.device_use, input(write).as_ref()));
        let reads = || uses.reads.iter().filter(|_| mode.is_exclusive()).find_map(|read| each(read, None));
        found.or_else(reads)
    }

    /// Adds a use by a device.
    pub(crate) fn add(&self, mode: Mode, device_use: &Arc<DeviceUse>, failure: &Failure) {
        let mut uses = lock(self.0.get_or_init(Box::default));
        let old = std::mem::take(&mut *uses);
        if mode.is_exclusive() {
            let failure = mode.changes().then(|| failure.clone());
            uses.write = Some(Write { device_use: device_use.clone(), failure });
        } else {
            // Reads that were granted together may be added in another order than they were submitted.
            let is_newer = |read: &&Arc<DeviceUse>| read.lane == device_use.lane && read.stamp.point > device_use.stamp.point;
            let newest = old.reads.iter().find(is_newer).unwrap_or(device_use);
            let others = old.reads.iter().filter(|read| read.lane != device_use.lane && !read.is_over());
            uses.reads = others.chain([newest]).cloned().collect();
            uses.write = old.write.clone();
        }
        drop(uses);
        // It may hold the last reference to a user's error.
        let _ = shielded(|| drop(old));
    }

    /// Removes all uses, because the host has written the variable after all of them.
    pub(crate) fn clear(&self) {
        if let Some(uses) = self.0.get() {
            let old = std::mem::take(&mut *lock(uses));
            let _ = shielded(|| drop(old));
        }
    }
}
