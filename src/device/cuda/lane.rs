//! A stream of a GPU, and what says how far it is: a word in the host's memory, or events.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;

use cudarc::driver::sys::{CUdeviceptr, CUevent};

use super::context::Stream;
use super::driver::{Driver, NOT_READY, SUCCESS};
use super::events::Events;
use crate::device::queue::{Fault, Timeline};
use crate::error::Result;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// Memory that the device reaches, and its writes are seen at once.
const PORTABLE_AND_MAPPED: u32 = 3;
/// Each word on a line of its own, because the reactor reads one while the device writes another.
const WORD_BYTES: usize = 128;

/// A stream, and what the host can know of it.
pub(super) struct CudaLane {
    pub(super) stream: Stream,
    signal: Signal,
    word: NonNull<AtomicU64>,
    /// The word as the device knows it.
    address: CUdeviceptr,
    /// The last point that the host is to hear of.
    marked: AtomicU64,
    /// A point that has passed whatever the word says: what events, and the driver when asked, have told.
    known: AtomicU64,
    /// Points that the word will not tell of, in order, with the events that do.
    marks: Mutex<VecDeque<(u64, CUevent)>>,
    /// Points up to which work has used other lanes of the device, and which, as bits.
    others: Mutex<Vec<(u64, u64)>>,
    /// The code that a query of an event returned, for `check` to report.
    heard: AtomicU32,
}

/// How the host learns that a point has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// The device writes the point's number into the lane's word.
    Word64,
    /// It writes the lower half.
    Word32,
    /// An event is recorded, and asked for.
    Event,
    /// The driver calls a function of the host's, which stores the number.
    HostFunction,
}

// SAFETY: the word is an atomic, the driver's handles may be used by any thread, and marks are behind a lock.
unsafe impl Send for CudaLane {}
// SAFETY: as above.
unsafe impl Sync for CudaLane {}

impl CudaLane {
    /// Makes a lane of a stream whose context is current.
    pub(super) fn new(stream: Stream, signal: Signal) -> Result<Self> {
        let (context, mut address) = (stream.context.clone(), 0);
        let word = context.host_alloc(WORD_BYTES, WORD_BYTES, PORTABLE_AND_MAPPED)?.cast::<AtomicU64>();
        // SAFETY: it writes one address, of the memory allocated just now.
        let mapped = unsafe { (context.driver.host_address)(&mut address, word.as_ptr().cast(), 0) };
        // SAFETY: the memory is new, large enough, and aligned to a page.
        unsafe { word.write(AtomicU64::new(0)) };
        let (marked, known, marks) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::default());
        let (others, heard) = (Mutex::default(), AtomicU32::new(SUCCESS));
        let lane = Self { stream, signal, word, address, marked, known, marks, others, heard };
        context.check(mapped)?;
        Ok(lane)
    }

    fn driver(&self) -> &'static Driver {
        self.stream.context.driver
    }

    /// Lets the host hear when all that is queued now is done, as point `n`. Points grow. Only who has the
    /// device's path calls this.
    pub(super) fn mark(&self, n: u64, events: &mut Events) -> Result<()> {
        // ORDERING: Relaxed, as the store below: who has the path writes it, and `check` may see an older
        // one.
        if self.marked.load(Ordering::Relaxed) >= n {
            return Ok(());
        }
        let (context, driver, stream) = (&*self.stream.context, self.driver(), self.stream.handle());
        match self.signal {
            // SAFETY: the word lives as long as the stream.
            Signal::Word64 => context.check(unsafe { (driver.write_64)(stream, self.address, n, 0) })?,
            // SAFETY: as above.
            Signal::Word32 => context.check(unsafe { (driver.write_32)(stream, self.address, n as u32, 0) })?,
            Signal::Event => {
                self.passed_marks().for_each(|event| events.give_back(event));
                let event = events.take(context)?;
                // SAFETY: both are of this context.
                let recorded = context.check(unsafe { (driver.event_record)(event, stream) });
                recorded.inspect_err(|_| events.give_back(event))?;
                lock(&self.marks).push_back((n, event));
            }
            Signal::HostFunction => {
                lock(&self.marks).push_back((n, std::ptr::null_mut()));
                let this = std::ptr::from_ref(self).cast_mut().cast();
                // SAFETY: the lane lives until its stream has come to its end.
                let asked = context.check(unsafe { (driver.host_function)(stream, store_next, this) });
                asked.inspect_err(|_| _ = lock(&self.marks).pop_back())?;
            }
        }
        self.marked.store(n, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the events of marks that have passed.
    fn passed_marks(&self) -> std::vec::IntoIter<CUevent> {
        let known = self.known.load(Ordering::Acquire);
        let mut marks = lock(&self.marks);
        let passed = marks.iter().take_while(|mark| mark.0 <= known).count();
        marks.drain(..passed).map(|mark| mark.1).collect::<Vec<_>>().into_iter()
    }

    /// Asks for the events of marks, in order.
    fn ask_events(&self) {
        let marks = lock(&self.marks);
        // ORDERING: Relaxed: the lock is held by all who store it here.
        let known = self.known.load(Ordering::Relaxed);
        for &(n, event) in marks.iter().skip_while(|mark| mark.0 <= known) {
            // SAFETY: a recorded event of this context.
            match unsafe { (self.driver().event_query)(event) } {
                SUCCESS => _ = self.known.fetch_max(n, Ordering::Release),
                NOT_READY => break,
                // The driver may return the code only once.
                code => {
                    self.heard.store(code, Ordering::Relaxed);
                    break;
                }
            }
        }
    }

    /// Records that the work up to a point has used other lanes, as bits. Must precede the mark of the point.
    pub(super) fn use_others(&self, n: u64, lanes: u64) {
        lock(&self.others).push((n, lanes));
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: it is freed with the lane.
        unsafe { self.word.as_ref() }
    }
}

/// Returns the point whose lower half a device wrote: one near to what was known, because a lane never has
/// 2³¹ points that nobody heard of.
fn widen(known: u64, low: u32) -> u64 {
    let ahead = low.wrapping_sub(known as u32) as i32;
    // Behind, it was known already.
    known + ahead.max(0) as u64
}

/// What the driver calls when a stream comes to a mark.
unsafe extern "C" fn store_next(lane: *mut c_void) {
    // SAFETY: `mark` gave it; the lane lives until its stream has come to its end.
    let lane = unsafe { &*lane.cast::<CudaLane>() };
    if let Some((n, _)) = lock(&lane.marks).pop_front() {
        lane.known.fetch_max(n, Ordering::Release);
    }
}

impl Timeline for CudaLane {
    fn reached(&self) -> u64 {
        if self.signal == Signal::Event {
            self.ask_events();
        }
        // ORDERING: Acquire: what the device wrote before the word, the driver made visible with it.
        let (word, known) = (self.word().load(Ordering::Acquire), self.known.load(Ordering::Acquire));
        match self.signal {
            Signal::Word64 => word.max(known),
            Signal::Word32 => {
                let reached = widen(known, word as u32);
                self.known.fetch_max(reached, Ordering::AcqRel).max(reached)
            }
            Signal::Event | Signal::HostFunction => known,
        }
    }

    fn check(&self) -> std::result::Result<(), Fault> {
        // Before the question: what is marked later may not be done yet.
        let marked = self.marked.load(Ordering::Acquire);
        let code = match self.heard.swap(SUCCESS, Ordering::Relaxed) {
            // SAFETY: a stream of this context.
            SUCCESS => unsafe { (self.driver().stream_query)(self.stream.handle()) },
            heard => heard,
        };
        match code {
            // Whatever became of a host function that was never called, or of an event that nobody asked for.
            SUCCESS => {
                self.known.fetch_max(marked, Ordering::AcqRel);
                Ok(())
            }
            NOT_READY => Ok(()),
            code => Err(self.driver().fault(code)),
        }
    }

    fn certain(&self) -> u64 {
        // The driver no longer reports that events have passed. A known event may come after an unknown one.
        if self.signal == Signal::Event { 0 } else { self.reached() }
    }

    fn others(&self, reached: u64) -> u64 {
        let mut others = lock(&self.others);
        let passed = others.partition_point(|&(n, _)| n <= reached);
        others.drain(..passed).fold(0, |all, (_, lanes)| all | lanes)
    }
}

impl Drop for CudaLane {
    fn drop(&mut self) {
        // Memory and events are freed in it, and this may be any thread.
        let _ = self.stream.context.set_current();
        for (_, event) in lock(&self.marks).drain(..).filter(|mark| !mark.1.is_null()) {
            // SAFETY: nobody else has it. The driver keeps what it still needs.
            unsafe { (self.driver().event_destroy)(event) };
        }
        // SAFETY: who drops a device's lanes has waited for its streams, unless the device is lost: then
        // nothing is written any more.
        unsafe { (self.driver().host_free)(self.word.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::widen;

    // Seen to fail with a plain maximum.
    #[test]
    fn half_a_number_is_the_nearest_that_is_not_behind() {
        assert_eq!(widen(0, 0), 0);
        assert_eq!(widen(5, 7), 7);
        assert_eq!(widen(7, 5), 7, "an older look");
        assert_eq!(widen(u64::from(u32::MAX), 0), 1 << 32);
        assert_eq!(widen((1 << 32) - 2, 3), (1 << 32) + 3);
        assert_eq!(widen((7 << 32) + 3, u32::MAX), (7 << 32) + 3, "an older look");
    }
}
