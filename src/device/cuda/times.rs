//! When the device worked on parts: two events with times around each, measured from an anchor.
//!
//! An anchor is an event of an idle stream, recorded while the host waits, so that its time on the host's
//! clock is known. The driver's distances between events are 32-bit floats of milliseconds, and the two
//! clocks drift apart. So there is a new anchor every second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUevent, CUstream};

use super::context::{Context, Stream};
use super::device::Device;
use super::driver::{Driver, NOT_READY, SUCCESS};
use super::events::Events;
use crate::device::queue::{PartTimes, Ran};
use crate::error::Result;
use crate::sync::{Mutex, lock, spin_loop};

const ANCHOR_AGE_MAX: Duration = Duration::from_secs(1);
/// The best of this many tries is taken, because a thread may lose its core meanwhile.
const ANCHOR_TRIES: u32 = 3;
/// The longest that a try waits. An idle stream takes some microseconds, but a thread of the driver may have
/// to start for the first.
const ANCHOR_WAIT_MAX: Duration = Duration::from_millis(1);
const FIRST_WAIT_MAX: Duration = Duration::from_millis(100);

/// A device's clock beside the host's.
pub(super) struct DeviceClock {
    /// Has no other work than anchors.
    stream: Stream,
    state: Mutex<ClockState>,
}

struct ClockState {
    events: Events,
    anchor: Option<Arc<Anchor>>,
}

impl DeviceClock {
    /// Makes the clock of a device without other work. The context is current.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let (stream, mut events) = (Stream::new(context)?, Events::with_times());
        let anchor = best(&stream, &mut events, FIRST_WAIT_MAX);
        Ok(Self { stream, state: Mutex::new(ClockState { events, anchor }) })
    }

    /// Returns an anchor; None if the device has never come to one. The context is current.
    fn anchor(&self) -> Option<Arc<Anchor>> {
        let mut state = lock(&self.state);
        if state.anchor.as_ref().is_none_or(|anchor| anchor.at.elapsed() > ANCHOR_AGE_MAX) {
            // If the device is too busy for a new one, the old one is better than none.
            let new = best(&self.stream, &mut state.events, ANCHOR_WAIT_MAX);
            state.anchor = new.or(state.anchor.take());
        }
        state.anchor.clone()
    }

    /// Destroys the unused events.
    pub(super) fn end(&self, driver: &Driver) {
        let mut state = lock(&self.state);
        state.anchor = None;
        state.events.destroy(driver);
    }
}

fn best(stream: &Stream, events: &mut Events, wait_max: Duration) -> Option<Arc<Anchor>> {
    let tries = (0..ANCHOR_TRIES).filter_map(|_| Anchor::new(stream, events, wait_max));
    tries.min_by_key(|anchor| anchor.took).map(Arc::new)
}

/// An event, and the host's time when the device came to it.
struct Anchor {
    driver: &'static Driver,
    event: CUevent,
    at: Instant,
    /// How long the host waited for it.
    took: Duration,
}

// SAFETY: any thread may use the driver's handles.
unsafe impl Send for Anchor {}
// SAFETY: any thread may use the driver's handles.
unsafe impl Sync for Anchor {}

impl Anchor {
    fn new(stream: &Stream, events: &mut Events, wait_max: Duration) -> Option<Self> {
        let (context, driver) = (&*stream.context, stream.context.driver);
        let mut anchor = Self { driver, event: events.take(context).ok()?, at: Instant::now(), took: Duration::ZERO };
        record(context, anchor.event, stream.handle()).ok()?;
        loop {
            // SAFETY: the event was recorded in this context, and `anchor` owns it.
            let queried = unsafe { (driver.event_query)(anchor.event) };
            anchor.took = anchor.at.elapsed();
            match queried {
                SUCCESS => break,
                NOT_READY if anchor.took < wait_max => spin_loop(),
                _ => return None,
            }
        }
        anchor.at += anchor.took / 2;
        Some(anchor)
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        // SAFETY: `self` owns the event.
        unsafe { (self.driver.event_destroy)(self.event) };
    }
}

fn record(context: &Context, event: CUevent, stream: CUstream) -> Result<()> {
    // SAFETY: the event and the stream are of this context.
    context.check(unsafe { (context.driver.event_record)(event, stream) })
}

/// The events around the parts of a recording. If a call fails, a part has no times, and no error: the calls
/// that do work report the state of the device.
pub(super) struct PartEvents {
    device: Arc<Device>,
    anchor: Arc<Anchor>,
    /// When the first of the work was issued.
    issued: Instant,
    /// In the order of parts.
    parts: Vec<PartEvent>,
}

struct PartEvent {
    part: u32,
    lane: u32,
    start: CUevent,
    end: Option<CUevent>,
}

// SAFETY: any thread may use the driver's handles.
unsafe impl Send for PartEvents {}
// SAFETY: any thread may use the driver's handles.
unsafe impl Sync for PartEvents {}

impl PartEvents {
    /// Returns None if the device takes no times. The context is current.
    pub(super) fn begin(device: &Arc<Device>) -> Option<Self> {
        let anchor = device.clock.as_ref()?.anchor()?;
        Some(Self { device: device.clone(), anchor, issued: Instant::now(), parts: Vec::new() })
    }

    /// Records that the next work on the lane is the part's, unless earlier work was. Ends the part before,
    /// which may have had work of a library.
    pub(super) fn enter(&mut self, part: usize, lane: u32) {
        let part = part as u32;
        if self.parts.last().is_some_and(|last| last.part == part) {
            return;
        }
        self.leave();
        if let Some(start) = self.record(lane) {
            self.parts.push(PartEvent { part, lane, start, end: None });
        }
    }

    /// Records that the last part has no more work, unless that is recorded.
    pub(super) fn leave(&mut self) {
        if let Some(&PartEvent { lane, end: None, .. }) = self.parts.last() {
            let end = self.record(lane);
            self.parts.last_mut().expect("it has a last one").end = end;
        }
    }

    fn record(&self, lane: u32) -> Option<CUevent> {
        let (clock, context) = (self.device.clock.as_ref()?, &*self.device.context);
        let mut state = lock(&clock.state);
        let event = state.events.take(context).ok()?;
        let recorded = record(context, event, self.device.lanes[lane as usize].stream.handle());
        recorded.inspect_err(|_| state.events.give_back(event)).ok().map(|()| event)
    }

    fn part(&self, part: u32) -> Option<&PartEvent> {
        let at = self.parts.binary_search_by_key(&part, |part| part.part).ok()?;
        Some(&self.parts[at])
    }

    /// Returns the host's time when the device came to an event; None if it has not.
    fn time(&self, event: CUevent) -> Option<Instant> {
        let mut ms = 0.0_f32;
        // SAFETY: the call writes one number. Both events were recorded in the device's context, and `self`
        // keeps them.
        let code = unsafe { (self.device.driver.event_elapsed)(&mut ms, self.anchor.event, event) };
        (code == SUCCESS).then(|| self.anchor.at + Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }
}

impl PartTimes for PartEvents {
    fn has(&self, part: u32) -> bool {
        self.part(part).is_some()
    }

    fn of(&self, part: u32) -> Option<Ran> {
        let &PartEvent { lane, start, end, .. } = self.part(part)?;
        self.device.context.make_current().ok()?;
        let (start, end) = (self.time(start)?, self.time(end?)?);
        // The clocks agree to some microseconds: never before the call, and never later than now.
        let end = end.min(Instant::now()).max(self.issued);
        Some(Ran { lane, start: start.max(self.issued).min(end), end })
    }
}

impl Drop for PartEvents {
    fn drop(&mut self) {
        if let Some(clock) = &self.device.clock {
            let mut state = lock(&clock.state);
            let events = self.parts.drain(..).flat_map(|part| [Some(part.start), part.end]);
            events.flatten().for_each(|event| state.events.give_back(event));
        }
    }
}
