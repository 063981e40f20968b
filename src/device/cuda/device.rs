//! The parts of a GPU that its memory needs and keeps alive: its lanes, its pools, its limbo, and the path,
//! on which one thread at a time submits work. Once nothing refers to the device, a thread of its own gives
//! it back to the driver, after its streams have come to their ends.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use cudarc::driver::sys::{CUdevice_attribute, CUevent, CUfunction};

use super::checked::Checked;
use super::context::{Context, Stream};
use super::driver::Driver;
use super::dropped::{Dropped, Memories, Point};
use super::events::Events;
use super::graphs::Graphs;
use super::host_memory::{HostBlock, HostPool};
use super::lane::CudaLane;
use super::modules::Modules;
use super::settings::GpuSettings;
use super::times::DeviceClock;
use super::trials;
use crate::device::code::Code;
use crate::device::queue::{Event, Timeline};
use crate::device::sanitize::POISON;
use crate::error::Result;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence, lock, spawn};

/// The most dropped blocks that wait without a mark for the host, while work is submitted.
const LIMBO_QUIET_MAX: usize = 64;

/// The points that are marked for the host so that memory can be freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Marking {
    All,
    /// Only if much memory waits, because each mark costs a call.
    IfMuch,
}

/// Streams of a device. More would only add work for the reactor: the hardware runs kernels of few streams at
/// once.
const LANES: usize = 8;

/// The pauses between two checks of the streams that libraries still hold. Each is twice the previous one, up
/// to the last.
const LENT_PAUSE_FIRST: Duration = Duration::from_millis(1);
const LENT_PAUSE_LAST: Duration = Duration::from_secs(10);

/// A GPU, as seen by its memory and its recordings. Dropping it does not wait for its streams.
pub(super) struct Device(ManuallyDrop<Opened>);

pub(super) struct Opened {
    pub(super) driver: &'static Driver,
    /// The architecture as the compiler names it, such as `compute_80`.
    arch: String,
    pub(super) lanes: Box<[Arc<CudaLane>]>,
    /// For each lane the last point that was assigned.
    issued: Box<[AtomicU64]>,
    events: Mutex<Events>,
    modules: Mutex<Modules>,
    host_pool: Mutex<HostPool>,
    limbo: Mutex<Vec<Dropped>>,
    /// Held by the one thread that submits work. A thread that releases it calls `collect_if_asked`.
    pub(super) path: Mutex<Graphs>,
    /// Whether a thread that must not wait for the path has requested a collection.
    is_full: AtomicBool,
    /// The number of memory blocks that a lost device may still access.
    pub(super) quarantined: AtomicU64,
    /// The sanitizer that checks the order of the lanes, if there is one.
    pub(super) sanitizer: Option<Checked>,
    /// The clock, if times are taken.
    pub(super) clock: Option<DeviceClock>,
    /// The last field, because it is dropped last: all others belong to it.
    pub(super) context: Arc<Context>,
}

impl Device {
    pub(super) fn open(driver: &'static Driver, ordinal: u32, settings: GpuSettings) -> Result<Self> {
        let GpuSettings { completion, has_graphs, takes_times, sanitizer } = settings;
        let context = Arc::new(Context::retain(driver, ordinal)?);
        use CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        let of = |attribute| driver.attribute(ordinal, attribute);
        let signal = trials::choose(&context, completion)?;
        let lane = |_| CudaLane::new(Stream::new(&context)?, signal).map(Arc::new);
        let lanes: Result<Vec<Arc<CudaLane>>> = (0..LANES).map(lane).collect();
        Ok(Self(ManuallyDrop::new(Opened {
            driver,
            arch: format!("compute_{}{}", of(MAJOR)?, of(MINOR)?),
            lanes: lanes?.into(),
            issued: (0..LANES).map(|_| AtomicU64::new(0)).collect(),
            events: Mutex::default(),
            modules: Mutex::default(),
            host_pool: Mutex::new(HostPool::new()),
            limbo: Mutex::default(),
            // The driver tells no times of a graph's nodes.
            path: Mutex::new(Graphs::new(has_graphs && !takes_times)),
            is_full: AtomicBool::new(false),
            quarantined: AtomicU64::new(0),
            sanitizer,
            clock: takes_times.then(|| DeviceClock::new(&context)).transpose()?,
            context,
        })))
    }

    pub(super) fn function(self: &Arc<Self>, code: &Arc<Code>) -> Result<CUfunction> {
        if let Some((device, function)) = code.first.get()
            && std::ptr::addr_eq(device.as_ptr(), Arc::as_ptr(self))
        {
            return Ok(std::ptr::with_exposed_provenance_mut(*function));
        }
        let function = lock(&self.modules).function(&self.context, &self.arch, code)?;
        let this: Arc<dyn Any + Send + Sync> = self.clone();
        // Other devices look the function up.
        let _ = code.first.set((Arc::downgrade(&this), function.expose_provenance()));
        Ok(function)
    }
}

impl Deref for Device {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        &self.0
    }
}

impl Opened {
    /// Returns the last point that was assigned on a lane.
    pub(super) fn issued(&self, lane: u32) -> u64 {
        // ORDERING: Relaxed: only the thread that holds `path` stores it. Other threads read it as a bound on
        // the lane's backlog, and synchronize by the lane.
        self.issued[lane as usize].load(Ordering::Relaxed)
    }

    /// Assigns the next points of a lane. Returns the last one. The caller holds `path`.
    pub(super) fn issue(&self, lane: u32, points: u64) -> u64 {
        // ORDERING: Relaxed: `path` orders all threads that store it.
        self.issued[lane as usize].fetch_add(points, Ordering::Relaxed) + points
    }

    pub(super) fn has_reached(&self, (lane, n): Point) -> bool {
        self.lanes[lane as usize].reached() >= n
    }

    /// Records an event behind all queued work.
    pub(super) fn record(&self, lane: u32) -> Result<Event> {
        let mut events = lock(&self.events);
        let event = events.take(&self.context)?;
        // SAFETY: the event and the stream belong to `context`, which `self` retains.
        let recorded = unsafe { (self.driver.event_record)(event, self.lanes[lane as usize].stream.handle()) };
        self.context.check(recorded).inspect_err(|_| events.give_back(event))?;
        Ok(Event(event.addr()))
    }

    pub(super) fn free_events(&self, events: &mut dyn Iterator<Item = Event>) {
        let mut all = lock(&self.events);
        events.for_each(|event| all.give_back(event.0 as CUevent));
    }

    /// Marks the last point of a lane for the host. The caller holds `path`.
    pub(super) fn mark(&self, lane: u32) -> Result<()> {
        self.lanes[lane as usize].mark(self.issued(lane), &mut lock(&self.events))
    }

    pub(super) fn take_host(&self, bytes: usize) -> Result<HostBlock> {
        lock(&self.host_pool).take(&self.context, bytes)
    }

    /// Keeps dropped memory until no work uses it. Makes no driver call.
    pub(super) fn keep(&self, dropped: Dropped) {
        lock(&self.limbo).push(dropped);
    }

    /// Requests a collection, and collects if the path is free. It never waits for the path.
    pub(super) fn request_collection(&self) -> Option<Point> {
        if lock(&self.limbo).is_empty() {
            return None;
        }
        // ORDERING: Relaxed: the fence in `collect_if_asked` orders the store before the attempt to take the
        // path.
        self.is_full.store(true, Ordering::Relaxed);
        self.collect_if_asked()
    }

    /// Collects if that was requested and the path is free. If the path is held, its holder calls this after
    /// it has released the path. It never waits.
    pub(super) fn collect_if_asked(&self) -> Option<Point> {
        let mut awaited = None;
        loop {
            // ORDERING: SeqCst pairs with the same fence of another thread. One thread stores the request and
            // tries the path; the other releases the path and loads the request. One of them sees the write
            // of the other.
            fence(Ordering::SeqCst);
            // ORDERING: Relaxed: the fence above orders the load.
            if !self.is_full.load(Ordering::Relaxed) {
                return awaited;
            }
            let _path = match self.path.try_lock() {
                Ok(path) => path,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return awaited,
            };
            // ORDERING: Relaxed: this thread holds the path, and the collection follows.
            self.is_full.store(false, Ordering::Relaxed);
            if self.context.make_current().is_err() {
                self.quarantine();
                return None;
            }
            awaited = self.collect(Marking::All);
        }
    }

    /// Frees the dropped memory that no work uses. If some remains, returns a point to wait for that is
    /// marked for the host. The caller holds `path`.
    pub(super) fn collect(&self, marking: Marking) -> Option<Point> {
        let limbo = std::mem::take(&mut *lock(&self.limbo));
        let is_marked = marking == Marking::All || limbo.len() > LIMBO_QUIET_MAX;
        let (mut left, mut awaited) = (Vec::new(), None);
        for dropped in limbo {
            if !dropped.is_left() {
                left.push(dropped);
                continue;
            }
            match self.still_used(&dropped) {
                Some(used) => {
                    // Without a mark the host might never learn that the point has passed.
                    if is_marked && self.mark(used.0).is_ok() {
                        awaited = Some(used);
                    }
                    left.push(dropped);
                }
                None => self.free(dropped),
            }
        }
        if !left.is_empty() {
            lock(&self.limbo).append(&mut left);
        }
        awaited
    }

    /// Returns a use that must end first. Memory of the device is freed in the order of the stream that
    /// allocated it, so its uses on that stream need not have ended.
    fn still_used(&self, dropped: &Dropped) -> Option<Point> {
        let own = usize::from(matches!(dropped.what, Memories::Device(..)));
        dropped.uses.iter().skip(own).copied().find(|&used| !self.has_reached(used))
    }

    fn free(&self, dropped: Dropped) {
        match dropped.what {
            Memories::Device(address, bytes) => {
                let stream = self.lanes[dropped.uses[0].0 as usize].stream.handle();
                if self.sanitizer.is_some() && bytes > 0 {
                    // SAFETY: `dropped` owns the memory, of `bytes` bytes. `still_used` found that all uses
                    // on other streams have ended. An error is the device's.
                    let _ = unsafe { (self.driver.fill_8)(address, POISON, bytes, stream) };
                }
                // SAFETY: `dropped` owns the memory. `still_used` found that all uses on other streams have
                // ended, and the uses on this stream precede the call.
                let code = unsafe { (self.driver.free)(address, stream) };
                // An error is the device's, not this memory's.
                let _ = self.context.check(code);
            }
            Memories::Host(block) => {
                let surplus = lock(&self.host_pool).give_back(block);
                surplus.into_iter().for_each(|block| block.free(self.driver));
            }
        }
    }

    /// Counts the memory that a lost device may still access, and never reuses it.
    pub(super) fn quarantine(&self) {
        let dropped = std::mem::take(&mut *lock(&self.limbo));
        // ORDERING: Relaxed: a count that guards no other data.
        self.quarantined.fetch_add(dropped.len() as u64, Ordering::Relaxed);
    }

    /// Returns all of the device to the driver. Waits for its streams, and until no library holds one.
    fn end(self) {
        // Only a lost device returns an error.
        let _ = self.context.set_current();
        self.lanes.iter().for_each(|lane| _ = lane.stream.synchronize());
        std::mem::take(&mut *lock(&self.limbo)).into_iter().for_each(|dropped| self.free(dropped));
        lock(&self.path).segments.clear();
        lock(&self.host_pool).drain().for_each(|block| block.free(self.driver));
        lock(&self.modules).unload(self.driver);
        lock(&self.events).destroy(self.driver);
        self.clock.iter().for_each(|clock| clock.end(self.driver));
        // There is no notice when a library drops its last clone of a stream.
        let (mut lent, mut pause) = (self.lanes.into_vec(), LENT_PAUSE_FIRST);
        loop {
            lent.retain(|lane| !lane.stream.regain());
            if lent.is_empty() && self.context.regain() {
                return;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LENT_PAUSE_LAST);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `self` is being dropped, so nothing uses the field after this.
        let opened = ManuallyDrop::new(unsafe { ManuallyDrop::take(&mut self.0) });
        // The end waits, so it gets a thread of its own. If none can be spawned, the driver keeps everything.
        let _ = spawn("anabranch-cuda-end".into(), move || ManuallyDrop::into_inner(opened).end());
    }
}
