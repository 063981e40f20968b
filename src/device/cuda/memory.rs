//! Memory of a GPU, and blocks of the host that a GPU copies to. Each knows its last use on each stream. A
//! dropped block goes to the device's limbo, without a driver call. It is freed later: when work is submitted
//! or a point passes.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

use super::device::Device;
#[cfg(feature = "dlpack")]
use super::dropped::have_ended;
use super::dropped::{Dropped, Memories, Point, Visit};
use super::host_memory::HostBlock;
#[cfg(feature = "dlpack")]
use crate::device::queue::Export;
use crate::device::queue::{HostMemory, Memory};
use crate::device::sanitize::Shadow;
use crate::sync::{AtomicU32, Mutex, OnceLock, Ordering, lock};

/// Memory of a GPU. A buffer shares it with the recordings that use it.
pub(super) struct Allocation {
    pub(super) device: Arc<Device>,
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
    /// The last use on each lane; that of the allocation comes first.
    uses: Mutex<SmallVec<[Point; 2]>>,
    /// Uses by other devices.
    visits: Mutex<Vec<Visit>>,
    /// Its place among the memory of the last recording that used it.
    place: AtomicU32,
    /// The shadow, if there is a sanitizer.
    pub(super) shadow: Option<Arc<Shadow>>,
}

impl Allocation {
    pub(super) fn new(device: Arc<Device>, address: CUdeviceptr, bytes: usize, made: Point) -> Self {
        let (uses, visits) = (Mutex::new(SmallVec::from_slice(&[made])), Mutex::default());
        let shadow = device.sanitizer.as_ref().map(|checked| Shadow::new(&checked.sanitizer, bytes));
        Self { device, address, bytes, uses, visits, place: AtomicU32::new(0), shadow }
    }

    /// Records that the work queued as `used` uses the memory.
    pub(super) fn touch(&self, used: Point) {
        let mut uses = lock(&self.uses);
        match uses.iter_mut().find(|earlier| earlier.0 == used.0) {
            Some(earlier) => earlier.1 = used.1,
            None => uses.push(used),
        }
    }

    /// Returns true if no work used the memory before the recording.
    pub(super) fn is_new(&self) -> bool {
        lock(&self.uses).len() == 1
    }

    /// Returns true if all work that used the memory is done.
    #[cfg(feature = "dlpack")]
    fn is_unused(&self) -> bool {
        lock(&self.uses).iter().all(|&used| self.device.has_reached(used)) && have_ended(&lock(&self.visits))
    }

    /// Records that another device uses the memory.
    pub(super) fn visit(&self, visit: Visit) {
        let mut visits = lock(&self.visits);
        match visits.iter_mut().find(|earlier| Arc::ptr_eq(&earlier.lane, &visit.lane)) {
            Some(earlier) => earlier.point = visit.point,
            None => visits.push(visit),
        }
    }

    pub(super) fn place(&self) -> usize {
        // ORDERING: Relaxed: a hint, which the reader compares with the entry that it finds there.
        self.place.load(Ordering::Relaxed) as usize
    }

    pub(super) fn set_place(&self, place: usize) {
        // ORDERING: Relaxed: a hint, which the reader compares with the entry that it finds there.
        self.place.store(place as u32, Ordering::Relaxed);
    }
}

/// Some bytes of an allocation: the memory of a buffer, or of a part of one.
pub(super) struct Section {
    pub(super) allocation: Arc<Allocation>,
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
}

impl Section {
    /// Returns a section of all bytes of an allocation.
    pub(super) fn of(allocation: Arc<Allocation>) -> Self {
        Self { address: allocation.address, bytes: allocation.bytes, allocation }
    }
}

impl Memory for Section {
    fn device_name(&self) -> String {
        self.allocation.device.context.device_name()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn part(&self, bytes: Range<usize>) -> Box<dyn Memory> {
        assert!(bytes.end <= self.bytes, "a part is in its memory");
        let (allocation, address) = (self.allocation.clone(), self.address + bytes.start as CUdeviceptr);
        Box::new(Self { allocation, address, bytes: bytes.len() })
    }

    #[cfg(feature = "dlpack")]
    fn export(&self) -> Export {
        // Recordings that are not submitted yet share the allocation.
        match Arc::strong_count(&self.allocation) == 1 && self.allocation.is_unused() {
            true => Export::Gpu { address: self.address, ordinal: self.allocation.device.context.ordinal() },
            false => Export::InUse,
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (uses, visits) = (std::mem::take(&mut *lock(&self.uses)), std::mem::take(&mut *lock(&self.visits)));
        self.device.keep(Dropped { what: Memories::Device(self.address, self.bytes), uses, visits });
    }
}

/// Memory of the host that a device copies to. A buffer shares it with the recorded copy.
pub(super) struct Landed {
    device: Arc<Device>,
    /// None once it is dropped.
    block: Option<HostBlock>,
    /// The points that must pass, once they are known.
    written: OnceLock<SmallVec<[Point; 1]>>,
}

impl Landed {
    pub(super) fn new(device: Arc<Device>, block: HostBlock) -> Self {
        Self { device, block: Some(block), written: OnceLock::new() }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.block.as_ref().expect("it is not dropped yet").start.as_ptr()
    }

    pub(super) fn settle(&self, points: &[Point]) {
        let _ = self.written.set(SmallVec::from_slice(points));
    }
}

impl HostMemory for Arc<Landed> {
    fn is_written(&self) -> bool {
        self.written.get().is_some_and(|points| points.iter().all(|&point| self.device.has_reached(point)))
    }

    fn as_ptr(&self) -> *const u8 {
        self.start()
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        let block = self.block.take().expect("it is dropped once");
        let written = self.written.get().map_or(&[][..], |points| points);
        self.device.keep(Dropped::host(block, written));
    }
}
