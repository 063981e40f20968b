//! A stream of a GPU, and the record of its progress: a word in the host's memory, or events.

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

/// The device can access the memory, and the host sees its writes at once.
const PORTABLE_AND_MAPPED: u32 = 3;
/// Each word has a cache line of its own, because the reactor reads one while the device writes another.
const WORD_BYTES: usize = 128;

/// A stream, and its progress as known to the host.
pub(super) struct CudaLane {
    pub(super) stream: Stream,
    signal: Signal,
    word: NonNull<AtomicU64>,
    /// The address of the word on the device.
    address: CUdeviceptr,
    /// The last point that is marked for the host.
    marked: AtomicU64,
    /// A point that an event, a host function or a query has found passed, whatever the value of the word.
    known: AtomicU64,
    /// Points that events or host functions signal, in order, each with its event.
    marks: Mutex<VecDeque<(u64, CUevent)>>,
    /// Points up to which work has used other lanes of the device, with those lanes as bits.
    others: Mutex<Vec<(u64, u64)>>,
    /// The code that a query of an event returned. `check` will report it.
    heard: AtomicU32,
}

/// How the host learns that a point has passed. In the order in which a device's signals are tried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Signal {
    /// The device writes the point's number into the lane's word.
    Word64,
    /// The device writes the lower half.
    Word32,
    /// An event is recorded, and the driver is queried for it.
    Event,
    /// The driver calls a host function, which stores the number.
    HostFunction,
}

// SAFETY: the word is an atomic, any thread may use the driver's handles, and marks are behind a lock.
unsafe impl Send for CudaLane {}
// SAFETY: shared access uses atomics and locks. Any thread may use the driver's handles.
unsafe impl Sync for CudaLane {}

impl CudaLane {
    /// Makes a lane of a stream, whose context is current.
    pub(super) fn new(stream: Stream, signal: Signal) -> Result<Self> {
        let (context, mut address) = (stream.context.clone(), 0);
        let word = context.host_alloc(WORD_BYTES, WORD_BYTES, PORTABLE_AND_MAPPED)?.cast::<AtomicU64>();
        // SAFETY: the call writes one address, of the memory allocated above.
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

    /// Signals point `n` to the host when all work queued so far has ended. Points grow. The caller holds the
    /// device's path.
    pub(super) fn mark(&self, n: u64, events: &mut Events) -> Result<()> {
        // ORDERING: Relaxed: only threads that hold the path store it, and the path's lock orders them.
        if self.marked.load(Ordering::Relaxed) >= n {
            return Ok(());
        }
        let (context, driver, stream) = (&*self.stream.context, self.driver(), self.stream.handle());
        match self.signal {
            // SAFETY: `address` maps the lane's word, which lives as long as the stream.
            Signal::Word64 => context.check(unsafe { (driver.write_64)(stream, self.address, n, 0) })?,
            // SAFETY: `address` maps the lane's word, which lives as long as the stream.
            Signal::Word32 => context.check(unsafe { (driver.write_32)(stream, self.address, n as u32, 0) })?,
            Signal::Event => {
                self.passed_marks().for_each(|event| events.give_back(event));
                let event = events.take(context)?;
                // SAFETY: the event and the stream are of this context.
                let recorded = context.check(unsafe { (driver.event_record)(event, stream) });
                recorded.inspect_err(|_| events.give_back(event))?;
                lock(&self.marks).push_back((n, event));
            }
            Signal::HostFunction => {
                lock(&self.marks).push_back((n, std::ptr::null_mut()));
                let this = std::ptr::from_ref(self).cast_mut().cast();
                // SAFETY: the lane lives until its stream has come to its end, so `this` is valid in the
                // callback.
                let asked = context.check(unsafe { (driver.host_function)(stream, store_next, this) });
                asked.inspect_err(|_| _ = lock(&self.marks).pop_back())?;
            }
        }
        // ORDERING: Relaxed: it publishes no data. `check` may read an older point, and finds this one later.
        self.marked.store(n, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the marks that have passed. Returns their events.
    fn passed_marks(&self) -> std::vec::IntoIter<CUevent> {
        // ORDERING: Acquire pairs with the Release of `fetch_max`, by the thread that found the point passed:
        // its query of the event precedes the reuse of the event.
        let known = self.known.load(Ordering::Acquire);
        let mut marks = lock(&self.marks);
        let passed = marks.iter().take_while(|mark| mark.0 <= known).count();
        marks.drain(..passed).map(|mark| mark.1).collect::<Vec<_>>().into_iter()
    }

    /// Queries the events of marks, in order.
    fn ask_events(&self) {
        let marks = lock(&self.marks);
        // ORDERING: Relaxed: an older point costs one more query.
        let known = self.known.load(Ordering::Relaxed);
        for &(n, event) in marks.iter().skip_while(|mark| mark.0 <= known) {
            // SAFETY: the event was recorded in this context, and `marks` owns it.
            match unsafe { (self.driver().event_query)(event) } {
                // ORDERING: Release pairs with the Acquire in `reached`: a thread that reads the point sees
                // all writes of the device before the event.
                SUCCESS => _ = self.known.fetch_max(n, Ordering::Release),
                NOT_READY => break,
                // The driver may return the code only once.
                code => {
                    // ORDERING: Relaxed: a code that guards no other data.
                    self.heard.store(code, Ordering::Relaxed);
                    break;
                }
            }
        }
    }

    /// Queries the driver for the state of the stream. Returns its code, or the code that a query of an event
    /// returned.
    pub(super) fn query(&self) -> u32 {
        // ORDERING: Relaxed: a code that guards no other data.
        match self.heard.swap(SUCCESS, Ordering::Relaxed) {
            // SAFETY: `self` owns the stream.
            SUCCESS => unsafe { (self.driver().stream_query)(self.stream.handle()) },
            heard => heard,
        }
    }

    /// Records that the work up to a point has used other lanes, as bits. Must precede the mark of the point.
    pub(super) fn use_others(&self, n: u64, lanes: u64) {
        lock(&self.others).push((n, lanes));
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the word is allocated until the lane is dropped, which `self` excludes.
        unsafe { self.word.as_ref() }
    }
}

/// Returns the point whose lower half a device wrote: the one nearest to the known point, because a lane
/// never has 2³¹ points beyond that.
fn widen(known: u64, low: u32) -> u64 {
    let ahead = low.wrapping_sub(known as u32) as i32;
    // A point behind `known` adds nothing.
    known + ahead.max(0) as u64
}

/// Called by the driver when a stream comes to a mark.
unsafe extern "C" fn store_next(lane: *mut c_void) {
    // SAFETY: `mark` passed a pointer to the lane, which lives until its stream has come to its end.
    let lane = unsafe { &*lane.cast::<CudaLane>() };
    if let Some((n, _)) = lock(&lane.marks).pop_front() {
        // ORDERING: Release pairs with the Acquire in `reached`: a thread that reads the point sees all work
        // of the stream before it.
        lane.known.fetch_max(n, Ordering::Release);
    }
}

impl Timeline for CudaLane {
    fn reached(&self) -> u64 {
        if self.signal == Signal::Event {
            self.ask_events();
        }
        // ORDERING: the Acquire of the word pairs with the device's write, which comes after its other
        // writes. The Acquire of `known` pairs with the Release of the thread that found the point passed.
        let (word, known) = (self.word().load(Ordering::Acquire), self.known.load(Ordering::Acquire));
        match self.signal {
            Signal::Word64 => word.max(known),
            Signal::Word32 => {
                let reached = widen(known, word as u32);
                // ORDERING: Release publishes the writes that the load of the word made visible. Acquire is
                // for a larger point that another thread stored.
                self.known.fetch_max(reached, Ordering::AcqRel).max(reached)
            }
            Signal::Event | Signal::HostFunction => known,
        }
    }

    fn check(&self) -> std::result::Result<(), Fault> {
        // ORDERING: Acquire keeps the query after the load: work that is marked later may not have ended.
        let marked = self.marked.load(Ordering::Acquire);
        match self.query() {
            // All marked work has ended, even if a host function was not called or an event was not queried.
            SUCCESS => {
                // ORDERING: Release pairs with the Acquire in `reached`, and publishes the writes that the
                // query made visible. Acquire is for a larger point that another thread stored.
                self.known.fetch_max(marked, Ordering::AcqRel);
                Ok(())
            }
            NOT_READY => Ok(()),
            code => Err(self.driver().fault(code)),
        }
    }

    fn certain(&self) -> u64 {
        // The driver no longer reports passed events. A known event may come after an unknown one.
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
        // Memory and events are freed in the context, and this may be any thread.
        let _ = self.stream.context.set_current();
        for (_, event) in lock(&self.marks).drain(..).filter(|mark| !mark.1.is_null()) {
            // SAFETY: `marks` owns the event. The driver keeps what it still needs.
            unsafe { (self.driver().event_destroy)(event) };
        }
        // SAFETY: the end of the device has waited for its streams before it dropped the lanes. A lost device
        // writes no more.
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
