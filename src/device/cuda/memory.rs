//! Memory of a GPU, and of the host where the GPU reaches it. It knows which work uses it last on each
//! stream; dropped, it goes to the device's limbo, and nothing is asked of the driver until someone submits
//! or a point passes.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

use super::driver::{Driver, OUT_OF_MEMORY};
use super::gpu::Device;
use super::lane::CudaLane;
use crate::device::queue::{HostMemory, Memory, Timeline};
use crate::error::{Error, Kind, Result};
use crate::sync::{AtomicU32, Mutex, OnceLock, Ordering, lock};

/// A point on a stream, by the stream's lane.
pub(super) type Use = (u32, u64);

/// A buffer's memory.
pub(crate) struct Block(pub(super) Arc<Allocation>);

/// Memory of a GPU, had by a buffer and by what is noted down to work on it.
pub(super) struct Allocation {
    pub(super) device: Arc<Device>,
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
    /// The last use on each lane, that of the allocation first.
    uses: Mutex<SmallVec<[Use; 2]>>,
    /// Uses by other devices.
    visits: Mutex<Vec<Visit>>,
    /// Where who noted it down last is to look for it first.
    place: AtomicU32,
}

impl Allocation {
    pub(super) fn new(device: Arc<Device>, address: CUdeviceptr, bytes: usize, made: Use) -> Self {
        let (uses, visits) = (Mutex::new(SmallVec::from_slice(&[made])), Mutex::default());
        Self { device, address, bytes, uses, visits, place: AtomicU32::new(0) }
    }

    /// Notes that what is queued as `used` works on it.
    pub(super) fn touch(&self, used: Use) {
        let mut uses = lock(&self.uses);
        match uses.iter_mut().find(|earlier| earlier.0 == used.0) {
            Some(earlier) => earlier.1 = used.1,
            None => uses.push(used),
        }
    }

    /// Whether nothing worked on it before what is being noted down.
    pub(super) fn is_new(&self) -> bool {
        lock(&self.uses).len() == 1
    }

    /// Notes that another device works on it.
    pub(super) fn visit(&self, visit: Visit) {
        let mut visits = lock(&self.visits);
        match visits.iter_mut().find(|earlier| Arc::ptr_eq(&earlier.lane, &visit.lane)) {
            Some(earlier) => earlier.point = visit.point,
            None => visits.push(visit),
        }
    }

    // ORDERING: Relaxed, here and below: only a hint.
    pub(super) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed) as usize
    }

    pub(super) fn set_place(&self, place: usize) {
        self.place.store(place as u32, Ordering::Relaxed);
    }
}

/// A point on a lane of another device, of which the host will hear.
pub(super) struct Visit {
    pub(super) lane: Arc<CudaLane>,
    pub(super) point: u64,
}

impl Memory for Block {
    fn device_name(&self) -> String {
        self.0.device.name()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (uses, visits) = (std::mem::take(&mut *lock(&self.uses)), std::mem::take(&mut *lock(&self.visits)));
        self.device.keep(Dropped { what: Memories::Device(self.address), uses, visits });
    }
}

/// Memory that was dropped, until nothing that is queued works on it.
pub(super) struct Dropped {
    pub(super) what: Memories,
    pub(super) uses: SmallVec<[Use; 2]>,
    pub(super) visits: Vec<Visit>,
}

impl Dropped {
    /// Returns memory of the host.
    pub(super) fn host(block: HostBlock, uses: &[Use]) -> Self {
        Self { what: Memories::Host(block), uses: SmallVec::from_slice(uses), visits: Vec::new() }
    }

    /// Whether no other device works on it.
    pub(super) fn is_left(&self) -> bool {
        self.visits.iter().all(|visit| visit.lane.reached() >= visit.point)
    }
}

pub(super) enum Memories {
    Device(CUdeviceptr),
    Host(HostBlock),
}

/// Memory of the host that the device copies from and to, of a power of two bytes.
pub(super) struct HostBlock {
    pub(super) start: NonNull<u8>,
    class: u32,
}

// SAFETY: it is plain memory, which one owner at a time uses.
unsafe impl Send for HostBlock {}
// SAFETY: as above.
unsafe impl Sync for HostBlock {}

/// The smallest block is a page.
const CLASS_MIN: u32 = 12;
const CLASSES: usize = 64;
/// How many free blocks of a class are kept.
const KEPT: usize = 16;
/// Every context may use it.
const PORTABLE: u32 = 1;

/// Names the size of a refused request for page-locked memory.
pub(super) fn refused(error: Error, bytes: usize, device: impl FnOnce() -> String) -> Error {
    match error.driver_code() {
        Some(OUT_OF_MEMORY) => Kind::NoPinnedMemory { bytes, device: device() }.into(),
        _ => error,
    }
}

/// Free blocks of the host's memory, by the power of two.
pub(super) struct HostPool {
    free: [Vec<HostBlock>; CLASSES],
}

impl HostPool {
    pub(super) fn new() -> Self {
        Self { free: std::array::from_fn(|_| Vec::new()) }
    }

    /// Returns a block of at least `bytes`.
    pub(super) fn take(&mut self, driver: &Driver, bytes: usize) -> Result<HostBlock> {
        let class = bytes.next_power_of_two().trailing_zeros().max(CLASS_MIN);
        if let Some(block) = self.free[class as usize].pop() {
            return Ok(block);
        }
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: it writes one pointer; the context is current.
        driver.check(unsafe { (driver.host_alloc)(&mut start, 1 << class, PORTABLE) })?;
        let start = NonNull::new(start.cast()).expect("a successful allocation is not null");
        Ok(HostBlock { start, class })
    }

    /// Takes a block back that nobody uses. Returns it if there are enough.
    pub(super) fn give_back(&mut self, block: HostBlock) -> Option<HostBlock> {
        let free = &mut self.free[block.class as usize];
        if free.len() == KEPT {
            return Some(block);
        }
        free.push(block);
        None
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = HostBlock> + '_ {
        self.free.iter_mut().flat_map(|free| free.drain(..))
    }
}

impl HostBlock {
    pub(super) fn free(self, driver: &Driver) {
        // SAFETY: nobody uses it.
        unsafe { (driver.host_free)(self.start.as_ptr().cast()) };
    }
}

/// What a device copies to: elements in the host's memory.
pub(super) struct Landing(pub(super) Arc<Landed>);

/// The memory itself, had by a buffer and by the copy that is noted down.
pub(super) struct Landed {
    device: Arc<Device>,
    /// None once it is dropped.
    block: Option<HostBlock>,
    /// What must have passed, once it is known.
    written: OnceLock<SmallVec<[Use; 1]>>,
}

impl Landed {
    pub(super) fn new(device: Arc<Device>, block: HostBlock) -> Self {
        Self { device, block: Some(block), written: OnceLock::new() }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.block.as_ref().expect("it is not dropped yet").start.as_ptr()
    }

    pub(super) fn settle(&self, points: &[Use]) {
        let _ = self.written.set(SmallVec::from_slice(points));
    }
}

impl HostMemory for Landing {
    fn is_written(&self) -> bool {
        self.0.written.get().is_some_and(|points| points.iter().all(|&point| self.0.device.has_reached(point)))
    }

    fn as_ptr(&self) -> *const u8 {
        self.0.start()
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        let block = self.block.take().expect("it is dropped once");
        let written = self.written.get().map_or(&[][..], |points| points);
        self.device.keep(Dropped::host(block, written));
    }
}
