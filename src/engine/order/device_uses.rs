//! The uses of a variable by devices: the last write, and the reads since.

use std::sync::Arc;

use smallvec::SmallVec;

use super::access::Mode;
use super::device_use::{DeviceUse, Failure};
use super::operation::Granted;
use crate::error::{Error, shielded};
use crate::sync::{Mutex, OnceLock, lock};

/// The last uses of a variable by devices. Empty for a variable that only hosts use.
pub(crate) struct DeviceUses(OnceLock<Box<Mutex<Uses>>>);

#[derive(Default)]
struct Uses {
    /// Kept when it is over, too, until the host writes.
    write: Option<Write>,
    /// The newest on each lane.
    reads: SmallVec<[Arc<DeviceUse>; 2]>,
}

/// The last exclusive use.
#[derive(Clone)]
struct Write {
    device_use: Arc<DeviceUse>,
    /// None if it left the variable unchanged.
    failure: Option<Failure>,
}

/// The uses by devices that an operation comes after.
pub(crate) struct Predecessors(SmallVec<[Predecessor; 4]>);

pub(crate) struct Predecessor {
    pub(crate) device_use: Arc<DeviceUse>,
    /// It wrote what the operation reads: if it fails, the operation does.
    pub(crate) input: Option<Failure>,
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

    /// Returns why the device has not written the variable, if that is known.
    pub(crate) fn failure(&self) -> Option<Error> {
        let uses = lock(self.0.get()?);
        uses.write.as_ref()?.failure.as_ref()?.get().cloned()
    }

    /// Returns true if no device is about to write the variable.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        !self.has_begun() || self.find(Mode::READ, |write, _| (!write.is_over()).then_some(())).is_none()
    }

    /// Calls `each` with the uses that such a use comes after, until it returns something.
    fn find<R>(&self, mode: Mode, mut each: impl FnMut(&Arc<DeviceUse>, Option<&Failure>) -> Option<R>) -> Option<R> {
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
            // Readers that were granted together may be added in another order than submitted.
            let is_newer = |read: &&Arc<DeviceUse>| read.lane == device_use.lane && read.stamp.point > device_use.stamp.point;
            let newest = old.reads.iter().find(is_newer).unwrap_or(device_use);
            let others = old.reads.iter().filter(|read| read.lane != device_use.lane && !read.is_over());
            uses.reads = others.chain([newest]).cloned().collect();
            uses.write = old.write.clone();
        }
        drop(uses);
        // It may hold the last share of a user's error.
        let _ = shielded(|| drop(old));
    }

    /// Removes all uses: the host has written, after all of them.
    pub(crate) fn clear(&self) {
        if let Some(uses) = self.0.get() {
            let old = std::mem::take(&mut *lock(uses));
            let _ = shielded(|| drop(old));
        }
    }
}

impl Predecessors {
    /// Returns those of an operation that has been granted its variables.
    pub(crate) fn of(operation: &Granted<'_>) -> Self {
        let mut found: SmallVec<[Predecessor; 4]> = SmallVec::new();
        for (access, variable) in operation.variables() {
            let _ = variable.device_uses.find(access.mode(), |device_use, input| {
                match found.iter_mut().find(|known| Arc::ptr_eq(&known.device_use, device_use)) {
                    Some(known) => known.input = known.input.take().or(input.cloned()),
                    None => found.push(Predecessor { device_use: device_use.clone(), input: input.cloned() }),
                }
                None::<()>
            });
        }
        Self(found)
    }

    /// Returns one that is not over.
    pub(crate) fn pending(operation: &Granted<'_>) -> Option<Arc<DeviceUse>> {
        operation.variables().find_map(|(access, variable)| {
            let pending = |device_use: &Arc<DeviceUse>, _: Option<&Failure>| (!device_use.is_over()).then(|| device_use.clone());
            variable.device_uses.find(access.mode(), pending)
        })
    }

    pub(crate) fn list(&self) -> &[Predecessor] {
        &self.0
    }

    /// Returns those that the operation reads from and that may still fail.
    pub(crate) fn inputs(&self) -> SmallVec<[(Arc<DeviceUse>, Failure); 2]> {
        let may_fail = |known: &Predecessor| {
            let input = known.input.clone().filter(|input| !known.device_use.is_over() || input.get().is_some())?;
            Some((known.device_use.clone(), input))
        };
        self.0.iter().filter_map(may_fail).collect()
    }

    /// Drops each by itself: what it holds may be foreign.
    pub(crate) fn release(self) {
        self.0.into_iter().for_each(|known| _ = shielded(|| drop(known)));
    }
}
