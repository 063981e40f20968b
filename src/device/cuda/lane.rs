//! A stream of a GPU, and the word in the host's memory that says how far it is.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUdeviceptr, CUevent};

use super::driver::{Driver, NOT_READY, SUCCESS};
use crate::device::queue::{Fault, Timeline};
use crate::error::Result;

/// Memory that the device reaches, and its writes are seen at once.
const PORTABLE_AND_MAPPED: u32 = 3;
/// Each word on a line of its own, because the reactor reads one while the device writes another.
const WORD_BYTES: usize = 128;

/// A stream, and what the host can know of it without asking the driver.
pub(super) struct CudaLane {
    pub(super) driver: &'static Driver,
    pub(super) stream: Arc<CudaStream>,
    word: NonNull<AtomicU64>,
    /// The word as the device knows it.
    address: CUdeviceptr,
    pub(super) signal: Signal,
    /// The event that was recorded last for the host, where it is told by events.
    marks: std::sync::Mutex<std::collections::VecDeque<(u64, CUevent)>>,
}

/// How the host learns that a point has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// The device writes the point's number, of 64 bits, into the lane's word.
    Word64,
    /// An event is recorded, and asked for.
    Event,
}

// SAFETY: the word is an atomic, the driver's handles may be used by any thread, and events are behind a lock.
unsafe impl Send for CudaLane {}
// SAFETY: as above.
unsafe impl Sync for CudaLane {}

impl CudaLane {
    /// Makes a stream. The context is current.
    pub(super) fn new(driver: &'static Driver, stream: Arc<CudaStream>, signal: Signal) -> Result<Self> {
        let mut memory: *mut c_void = std::ptr::null_mut();
        // SAFETY: it writes one pointer.
        driver.check(unsafe { (driver.host_alloc)(&mut memory, WORD_BYTES, PORTABLE_AND_MAPPED) })?;
        let mut address = 0;
        // SAFETY: it writes one address, of the memory allocated just now.
        let mapped = unsafe { (driver.host_address)(&mut address, memory, 0) };
        let word = NonNull::new(memory.cast::<AtomicU64>()).expect("a successful allocation is not null");
        // SAFETY: the memory is new, large enough, and aligned to a page.
        unsafe { word.write(AtomicU64::new(0)) };
        let lane = Self { driver, stream, word, address, signal, marks: Default::default() };
        driver.check(mapped)?;
        Ok(lane)
    }

    /// Lets the host know when all that is queued now is done, as point `n`. Points grow.
    pub(super) fn mark(&self, n: u64, event: impl FnOnce() -> Result<CUevent>) -> Result<()> {
        match self.signal {
            Signal::Word64 => {
                // SAFETY: the word lives as long as the stream.
                self.driver.check(unsafe { (self.driver.write_64)(self.stream.cu_stream(), self.address, n, 0) })
            }
            Signal::Event => {
                let event = event()?;
                // SAFETY: both are of this context.
                let recorded = self.driver.check(unsafe { (self.driver.event_record)(event, self.stream.cu_stream()) });
                crate::sync::lock(&self.marks).push_back((n, event));
                recorded
            }
        }
    }

    /// Takes the events of marks that have passed.
    pub(super) fn passed_marks(&self) -> Vec<CUevent> {
        let reached = self.word().load(Ordering::Acquire);
        let mut marks = crate::sync::lock(&self.marks);
        let passed = marks.iter().take_while(|mark| mark.0 <= reached).count();
        marks.drain(..passed).map(|mark| mark.1).collect()
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: it is freed with the lane.
        unsafe { self.word.as_ref() }
    }
}

impl Timeline for CudaLane {
    fn reached(&self) -> u64 {
        if self.signal == Signal::Event {
            let marks = crate::sync::lock(&self.marks);
            // Those that the word has not yet been told of. Errors are for the watchdog.
            let known = self.word().load(Ordering::Relaxed);
            for &(n, event) in marks.iter().skip_while(|mark| mark.0 <= known) {
                // SAFETY: a recorded event of this context.
                if unsafe { (self.driver.event_query)(event) } != SUCCESS {
                    break;
                }
                self.word().store(n, Ordering::Release);
            }
        }
        // ORDERING: Acquire: what the device wrote before the word, the driver made visible with it.
        self.word().load(Ordering::Acquire)
    }

    fn check(&self) -> std::result::Result<(), Fault> {
        // SAFETY: a stream of this context.
        match unsafe { (self.driver.stream_query)(self.stream.cu_stream()) } {
            SUCCESS | NOT_READY => Ok(()),
            code => Err(self.driver.fault(code)),
        }
    }
}

impl Drop for CudaLane {
    fn drop(&mut self) {
        for (_, event) in crate::sync::lock(&self.marks).drain(..) {
            // SAFETY: nobody else has it. The driver keeps what it still needs.
            unsafe { (self.driver.event_destroy)(event) };
        }
        // SAFETY: the lane's device waits for its streams before it lets go of lanes, unless it is lost: then it forgets them.
        unsafe { (self.driver.host_free)(self.word.as_ptr().cast()) };
    }
}
