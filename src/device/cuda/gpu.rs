//! One GPU: its streams, its memory, and the path on which one thread at a time submits work.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock, TryLockError};

use cudarc::driver::sys::{CUdevice_attribute, CUevent, CUfunction};

use super::Completion;
use super::context::{Context, Stream};
use super::driver::{Driver, SUCCESS};
use super::events::Events;
use super::graphs::Graphs;
use super::issue::{self, Others};
use super::lane::{CudaLane, Signal, WORD_BYTES};
use super::memory::{Dropped, HostBlock, HostPool, Memories, Use, refused};
use super::modules::Modules;
use super::recording::Recording;
use super::remains::Remains;
use crate::device::DeviceStream;
use crate::device::kernel::Code;
use crate::device::queue::{Event, Fault, Job, QueueDevice, Submitted, Timeline};
use crate::error::{Error, Kind, Result};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence, lock, spawn};

/// How many nodes may be on a lane that are not known to be done: a driver blocks the thread that enqueues
/// more than it has room for.
const BACKLOG_MAX: u64 = 512;
/// The most that are submitted as one: the end of each is marked.
const SEGMENT_MAX: u64 = 256;

/// How many dropped blocks may wait without the host's hearing of their points, while work is submitted.
const LIMBO_QUIET_MAX: usize = 64;

/// Of which points the host is to hear so that memory can be freed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heed {
    All,
    /// Each mark costs a call.
    IfMuch,
}

/// Streams of a device. More would only be more to watch: the hardware runs kernels of few streams at once.
const LANES: usize = 8;

/// A GPU that takes work.
pub(crate) struct Gpu {
    device: Arc<Device>,
    /// Those that nobody uses.
    recordings: Mutex<Vec<DeviceStream>>,
}

/// What who submits to a device needs: one thread at a time.
pub(super) struct Path {
    pub(super) graphs: Graphs,
}

/// What a GPU's memory needs to be freed, and so keeps alive.
pub(super) struct Device {
    pub(super) driver: &'static Driver,
    ordinal: u32,
    /// As the compiler takes it, as in `compute_80`.
    pub(super) arch: String,
    pub(super) lanes: Box<[Arc<CudaLane>]>,
    /// For each lane the last point that was given out.
    issued: Box<[AtomicU64]>,
    events: Mutex<Events>,
    modules: Mutex<Modules>,
    host_pool: Mutex<HostPool>,
    limbo: Mutex<Vec<Dropped>>,
    /// The length of `limbo`, so that a look at nothing takes no lock.
    limbo_len: AtomicU64,
    pub(super) path: Mutex<Path>,
    /// Whether someone who must not wait for the path asks for a collection.
    is_full: AtomicBool,
    /// Memory that a lost device may still touch.
    quarantined: AtomicU64,
    lost: OnceLock<Fault>,
    /// Last, because all others are of it.
    pub(super) context: Arc<Context>,
}

impl Gpu {
    /// Opens the GPU with this ordinal.
    ///
    /// # Errors
    /// If there is no driver or it is too old, no such GPU, or it does not answer.
    pub(crate) fn open(ordinal: u32, completion: Option<Completion>, has_graphs: bool) -> Result<Self> {
        let driver = Driver::get()?;
        let count = driver.devices()?;
        if ordinal >= count {
            return Err(Kind::NoDevice { ordinal, count }.into());
        }
        let device = Arc::new(Device::open(driver, ordinal, completion, has_graphs)?);
        Ok(Self { device, recordings: Mutex::default() })
    }

    fn submit_all(&self, recording: &mut Recording, job: &mut Job<'_>) -> Result<Submitted> {
        let (device, lane) = (&*self.device, recording.lane);
        let mut path = lock(&device.path);
        // Bodies have run since the recording began, and may have left another context behind.
        device.make_current()?;
        device.collect_quietly();
        let parts = recording.parts.len() as u64;
        let point = device.issued[lane as usize].fetch_add(parts, Ordering::Relaxed) + parts;
        let mut others = Others::default();
        let launched = self.launch(&mut path, recording, job, &mut others);
        if others.used != 0 {
            device.lanes[lane as usize].use_others(point, others.used);
        }
        let strays =
            others.strays.into_iter().map(|lane| (lane, device.issued[lane as usize].fetch_add(1, Ordering::Relaxed) + 1));
        let points: Vec<Use> = std::iter::once((lane, point)).chain(strays).collect();
        recording.settle(&points);
        // So that who waits for memory hears of them.
        points[1..].iter().for_each(|&(stray, _)| _ = device.mark(stray));
        let is_graph = launched?;
        // Before the record: who hears that this is reached through another stream is to find the mark in its
        // place.
        device.mark(lane)?;
        let event = if job.is_recorded { Some(device.record(lane)?) } else { None };
        Ok(Submitted { point, event, is_graph })
    }

    /// Launches a recording as one if it can, and issues it otherwise. Returns which.
    fn launch(&self, path: &mut Path, recording: &mut Recording, job: &mut Job<'_>, others: &mut Others) -> Result<bool> {
        issue::wait_first(recording)?;
        if let Some(key) = job.key
            && path.graphs.launch(recording, key)?
        {
            return Ok(true);
        }
        issue::issue(recording, job.judge, others)?;
        Ok(false)
    }

    /// Collects, if someone has asked for that and nobody has the path: who has it to submit does so when he
    /// lets go of it. Never waits.
    fn collect_if_asked(&self) -> Option<Use> {
        let mut awaited = None;
        loop {
            // ORDERING: pairs with itself: of "ask, try the path" and "let go of the path, look whether
            // someone asked" one side sees the other.
            fence(Ordering::SeqCst);
            if !self.device.is_full.load(Ordering::Relaxed) {
                return awaited;
            }
            let _path = match self.device.path.try_lock() {
                Ok(path) => path,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return awaited,
            };
            self.device.is_full.store(false, Ordering::Relaxed);
            if self.device.make_current().is_err() {
                self.device.quarantine();
                return None;
            }
            awaited = self.device.collect(Heed::All);
        }
    }
}

impl QueueDevice for Gpu {
    fn name(&self) -> String {
        self.device.name()
    }

    fn timelines(&self) -> Vec<Arc<dyn Timeline>> {
        self.device.lanes.iter().map(|lane| lane.clone() as Arc<dyn Timeline>).collect()
    }

    fn begin(&self, lane: u32, waits: &mut dyn Iterator<Item = Event>) -> Result<DeviceStream> {
        self.device.make_current()?;
        let kept = lock(&self.recordings).pop();
        let mut stream = kept.unwrap_or_else(|| DeviceStream::queue(Box::new(Recording::new(self.device.clone()))));
        recording(&mut stream).begin(lane, waits);
        Ok(stream)
    }

    fn submit(&self, mut stream: DeviceStream, job: &mut Job<'_>) -> Result<Submitted> {
        let recording = recording(&mut stream);
        let submitted = self.submit_all(recording, job);
        recording.clear();
        lock(&self.recordings).push(stream);
        self.collect_if_asked();
        submitted
    }

    fn backlog(&self, lane: u32) -> Option<u64> {
        // On a lost device nothing gets done: who submits next is told so.
        if self.device.lost.get().is_some() {
            return None;
        }
        let issued = self.device.issued(lane);
        let point = issued.checked_sub(BACKLOG_MAX - SEGMENT_MAX)?;
        (issued >= BACKLOG_MAX && !self.device.has_reached((lane, issued - BACKLOG_MAX + 1))).then_some(point)
    }

    fn mark(&self, lane: u32) -> Result<u64> {
        let _path = lock(&self.device.path);
        self.device.make_current()?;
        self.device.mark(lane)?;
        Ok(self.device.issued(lane))
    }

    fn free_events(&self, events: &mut dyn Iterator<Item = Event>) {
        self.device.free_events(events);
    }

    fn collect(&self) -> Option<Use> {
        if lock(&self.device.limbo).is_empty() {
            return None;
        }
        self.device.is_full.store(true, Ordering::Relaxed);
        self.collect_if_asked()
    }

    fn quarantined(&self) -> usize {
        self.device.quarantined.load(Ordering::Relaxed) as usize
    }

    fn judge(&self, fault: &Fault) -> Error {
        if !fault.is_fatal {
            return Kind::Driver { code: fault.code, name: fault.name.clone() }.into();
        }
        let _ = self.device.lost.set(fault.clone());
        self.device.lost_error(fault)
    }
}

fn recording(stream: &mut DeviceStream) -> &mut Recording {
    let recording = stream.as_queue_mut().and_then(|queue| queue.as_any_mut().downcast_mut());
    recording.expect("the stream is from `begin`")
}

/// Returns how a device tells the host of points, as was asked for or as it can.
fn signal(completion: Option<Completion>, has_words: bool, has_half_words: bool) -> Signal {
    match completion {
        Some(Completion::Event) => Signal::Event,
        Some(Completion::HostFunction) => Signal::HostFunction,
        Some(Completion::Lane) | None if has_words => Signal::Word64,
        Some(Completion::Lane) | None if has_half_words => Signal::Word32,
        Some(Completion::Lane) | None => Signal::Event,
    }
}

impl Device {
    fn open(driver: &'static Driver, ordinal: u32, completion: Option<Completion>, has_graphs: bool) -> Result<Self> {
        let context = Arc::new(Context::retain(driver, ordinal)?);
        use CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS as WORDS,
            CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1 as HALF_WORDS, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED as POOLS,
        };
        let of = |attribute| driver.attribute(ordinal, attribute);
        if of(POOLS)? == 0 {
            return Err(Kind::OldDevice { ordinal, lacks: "stream-ordered memory" }.into());
        }
        let signal = signal(completion, of(WORDS)? > 0, of(HALF_WORDS)? > 0);
        let lane = |_| {
            let lane = CudaLane::new(driver, Stream::new(&context)?, signal);
            Ok(Arc::new(lane.map_err(|error| refused(error, WORD_BYTES, || format!("CUDA device {ordinal}")))?))
        };
        let lanes: Result<Vec<Arc<CudaLane>>> = (0..LANES).map(lane).collect();
        Ok(Self {
            driver,
            ordinal,
            arch: format!("compute_{}{}", of(MAJOR)?, of(MINOR)?),
            lanes: lanes?.into(),
            issued: (0..LANES).map(|_| AtomicU64::new(0)).collect(),
            events: Mutex::default(),
            modules: Mutex::default(),
            host_pool: Mutex::new(HostPool::new()),
            limbo: Mutex::default(),
            limbo_len: AtomicU64::new(0),
            path: Mutex::new(Path { graphs: Graphs::new(has_graphs) }),
            is_full: AtomicBool::new(false),
            quarantined: AtomicU64::new(0),
            lost: OnceLock::new(),
            context,
        })
    }

    pub(super) fn name(&self) -> String {
        format!("CUDA device {}", self.ordinal)
    }

    /// Returns an error once the device is lost.
    pub(super) fn alive(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |fault| Err(self.lost_error(fault)))
    }

    fn lost_error(&self, fault: &Fault) -> Error {
        Kind::DeviceLost { device: self.name(), code: fault.code, name: fault.name.clone() }.into()
    }

    /// Turns the driver's answer into an error; a fatal one loses the device.
    pub(super) fn check(&self, code: u32) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        let fault = self.driver.fault(code);
        if fault.is_fatal {
            let _ = self.lost.set(fault.clone());
            return Err(self.lost_error(&fault));
        }
        Err(self.driver.error(code))
    }

    /// Looks at an error of the driver's: a fatal one loses the device.
    fn seen<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error.driver_code().map(|code| self.check(code)) {
            Some(Err(seen)) => seen,
            _ => error,
        })
    }

    /// Makes the device's context that of this thread, unless the device is lost.
    pub(super) fn make_current(&self) -> Result<()> {
        self.alive()?;
        self.check(self.context.make_current())
    }

    /// Returns the point of what is being submitted, or was last.
    pub(super) fn issued(&self, lane: u32) -> u64 {
        // ORDERING: Relaxed, here and below: written by who has the path.
        self.issued[lane as usize].load(Ordering::Relaxed)
    }

    pub(super) fn has_reached(&self, (lane, n): Use) -> bool {
        self.lanes[lane as usize].reached() >= n
    }

    /// Records an event behind all that is queued.
    pub(super) fn record(&self, lane: u32) -> Result<Event> {
        let mut events = lock(&self.events);
        let event = self.seen(events.take(self.driver))?;
        // SAFETY: both are of this context.
        let recorded = unsafe { (self.driver.event_record)(event, self.lanes[lane as usize].stream.handle()) };
        self.check(recorded).inspect_err(|_| events.give_back(event))?;
        Ok(Event(event.addr()))
    }

    pub(super) fn free_events(&self, events: &mut dyn Iterator<Item = Event>) {
        let mut all = lock(&self.events);
        events.for_each(|event| all.give_back(event.0 as CUevent));
    }

    pub(super) fn mark(&self, lane: u32) -> Result<()> {
        let marked = self.lanes[lane as usize].mark(self.issued(lane), &mut lock(&self.events));
        self.seen(marked)
    }

    pub(super) fn function(self: &Arc<Self>, code: &Arc<Code>) -> Result<CUfunction> {
        if let Some((device, function)) = code.first.get()
            && std::ptr::addr_eq(device.as_ptr(), Arc::as_ptr(self))
        {
            return Ok(std::ptr::with_exposed_provenance_mut(*function));
        }
        let function = lock(&self.modules).function(self, code)?;
        let this: Arc<dyn Any + Send + Sync> = self.clone();
        // A device that comes later looks it up.
        let _ = code.first.set((Arc::downgrade(&this), function.expose_provenance()));
        Ok(function)
    }

    pub(super) fn take_host(&self, bytes: usize) -> Result<HostBlock> {
        let taken = lock(&self.host_pool).take(self.driver, bytes);
        self.seen(taken.map_err(|error| refused(error, bytes, || self.name())))
    }

    /// Keeps dropped memory until nothing works on it. Asks nothing of the driver.
    pub(super) fn keep(&self, dropped: Dropped) {
        let mut limbo = lock(&self.limbo);
        limbo.push(dropped);
        // ORDERING: Relaxed: who sees an old length collects at the next occasion.
        self.limbo_len.store(limbo.len() as u64, Ordering::Relaxed);
    }

    /// Frees what it can without letting the host hear of more than it must.
    pub(super) fn collect_quietly(&self) {
        self.collect(Heed::IfMuch);
    }

    /// Frees what it can. Returns a point to wait for, if something is left that the host is to hear of.
    fn collect(&self, heed: Heed) -> Option<Use> {
        if self.limbo_len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let limbo = {
            let mut limbo = lock(&self.limbo);
            self.limbo_len.store(0, Ordering::Relaxed);
            std::mem::take(&mut *limbo)
        };
        let is_heard = heed == Heed::All || limbo.len() > LIMBO_QUIET_MAX;
        let (mut left, mut awaited) = (Vec::new(), None);
        for dropped in limbo {
            if !dropped.is_left() {
                left.push(dropped);
                continue;
            }
            match self.still_used(&dropped) {
                Some(used) => {
                    // So that the point will be heard of.
                    if is_heard && self.mark(used.0).is_ok() {
                        awaited = Some(used);
                    }
                    left.push(dropped);
                }
                None => self.free(dropped),
            }
        }
        left.into_iter().for_each(|dropped| self.keep(dropped));
        awaited
    }

    /// Returns a use that must pass first. Memory of the device is freed in the order of the stream that made
    /// it, so its own uses need not.
    fn still_used(&self, dropped: &Dropped) -> Option<Use> {
        let own = usize::from(matches!(dropped.what, Memories::Device(_)));
        dropped.uses.iter().skip(own).copied().find(|&used| !self.has_reached(used))
    }

    fn free(&self, dropped: Dropped) {
        match dropped.what {
            Memories::Device(address) => {
                let stream = self.lanes[dropped.uses[0].0 as usize].stream.handle();
                // SAFETY: all use on other streams is over, and on this one it comes before. An error is the
                // device's, not this memory's.
                let code = unsafe { (self.driver.free)(address, stream) };
                let _ = self.check(code);
            }
            Memories::Host(block) => {
                let surplus = lock(&self.host_pool).give_back(block);
                surplus.into_iter().for_each(|block| block.free(self.driver));
            }
        }
    }

    /// Counts the memory that a lost device may still touch, and never uses it again.
    fn quarantine(&self) {
        let dropped = std::mem::take(&mut *lock(&self.limbo));
        self.quarantined.fetch_add(dropped.len() as u64, Ordering::Relaxed);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let take = |lanes: &mut Box<[Arc<CudaLane>]>| std::mem::take(lanes);
        let remains = Remains {
            driver: self.driver,
            lanes: take(&mut self.lanes),
            limbo: std::mem::take(&mut *lock(&self.limbo)),
            graphs: std::mem::replace(&mut lock(&self.path).graphs, Graphs::new(false)),
            host_pool: std::mem::replace(&mut *lock(&self.host_pool), HostPool::new()),
            modules: std::mem::take(&mut *lock(&self.modules)),
            events: std::mem::take(&mut *lock(&self.events)),
            context: self.context.clone(),
        };
        // The end of a device waits for its streams, and this may be anybody's drop. Without a thread for it
        // the driver keeps all.
        let remains = ManuallyDrop::new(remains);
        let _ = spawn("anabranch-cuda-end".into(), move || ManuallyDrop::into_inner(remains).end());
    }
}
