//! Events: a position of a stream, or a place in a graph that is captured.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use super::capture::{Capture, Member};
use super::clock::Kept;
use super::device::{self, Device};
use super::lock;
use super::queue::Work;
use super::stream::Stream;
use super::table::Handle;
use crate::code::{Code, Outcome};
use crate::wire::{Seen, Which};

#[derive(Clone, Default)]
enum Recorded {
    #[default]
    Never,
    At {
        stream: Arc<Stream>,
        position: u64,
        clock: Kept,
        /// When the device came to the position, if the event has times.
        time: Option<Arc<OnceLock<Instant>>>,
    },
    Captured {
        capture: Arc<Capture>,
        /// The nodes before the event.
        frontier: Vec<Handle>,
    },
}

/// An event. The last record counts. A wait uses the record at the time of its call.
pub(crate) struct Event {
    pub(crate) number: u32,
    device: &'static Device,
    has_times: bool,
    recorded: Mutex<Recorded>,
}

impl Event {
    pub(crate) fn new(device: &'static Device, number: u32, has_times: bool) -> Self {
        Self { number, device, has_times, recorded: Mutex::default() }
    }

    /// Records a position behind all issued work of the stream. An event without times queues no work: its
    /// position passes when the earlier work has ended.
    pub(crate) fn record(&self, stream: &Arc<Stream>) -> Outcome {
        if stream.device.ordinal != self.device.ordinal {
            return Err(Code::INVALID_HANDLE);
        }
        let recorded = {
            let mut issuing = lock(&stream.issuing);
            match issuing.capturing() {
                Some(member) => Recorded::Captured { capture: member.capture.clone(), frontier: member.frontier.clone() },
                None => {
                    let time = self.has_times.then(Arc::default);
                    if let Some(time) = &time {
                        let fault = stream.device.faults.for_operation(Which::TimedEvent);
                        stream.push(&mut issuing, Work::Stamp(Arc::clone(time), fault))?;
                    }
                    let (position, clock) = (issuing.position, stream.kept_clock(&mut issuing));
                    Recorded::At { stream: stream.clone(), position, clock, time }
                }
            }
        };
        *lock(&self.recorded) = recorded;
        Ok(())
    }

    /// Makes the stream wait for the recorded work.
    pub(crate) fn make_wait(&self, waiter: &Arc<Stream>) -> Outcome {
        let recorded = lock(&self.recorded).clone();
        let mut issuing = lock(&waiter.issuing);
        match recorded {
            Recorded::Never => Ok(()),
            Recorded::Captured { capture, frontier } => match issuing.capturing() {
                _ if capture.has_ended() => Err(Code::CAPTURED_EVENT),
                Some(member) => member.join(&capture, &frontier),
                None => {
                    issuing.capture = Some(Member { capture, frontier });
                    Ok(())
                }
            },
            Recorded::At { stream, position, clock, .. } => {
                if let Some(member) = issuing.capturing() {
                    member.invalidate();
                    return Err(Code::CAPTURE_ISOLATION);
                }
                if stream.device.ordinal != waiter.device.ordinal {
                    device::link(stream.device, waiter.device);
                }
                waiter.see_host(&mut issuing);
                waiter.wait_for(&mut issuing, &stream, position, &clock)
            }
        }
    }

    pub(crate) fn query(&self) -> Outcome {
        match self.at()? {
            None => Ok(()),
            Some((stream, position, clock)) => {
                let is_seen = match stream.device.faults.events.get() {
                    Seen::AtOnce => true,
                    Seen::AfterSync => stream.is_waited_for(position),
                    Seen::Never => false,
                };
                let has_passed = is_seen && stream.progress.has_passed(position);
                stream.device.context.check()?;
                stream.take_pending()?;
                if has_passed { stream.host_sees(&clock) } else { Err(Code::NOT_READY) }
            }
        }
    }

    pub(crate) fn synchronize(&self) -> Outcome {
        match self.at()? {
            None => Ok(()),
            Some((stream, position, clock)) => {
                stream.block_until(position)?;
                stream.take_pending()?;
                stream.host_sees(&clock)
            }
        }
    }

    /// Returns the time from another event to this one, in milliseconds.
    pub(crate) fn ms_since(&self, earlier: &Self) -> Outcome<f32> {
        let (from, to) = (earlier.time()?, self.time()?);
        let seconds = match to.checked_duration_since(from) {
            Some(later) => later.as_secs_f64(),
            None => -(from - to).as_secs_f64(),
        };
        Ok((seconds * 1e3) as f32)
    }

    fn time(&self) -> Outcome<Instant> {
        // Unlike a query it takes no pending error, which would be lost to the next query of the stream.
        self.device.context.check()?;
        match &*lock(&self.recorded) {
            Recorded::At { time: Some(time), .. } => time.get().copied().ok_or(Code::NOT_READY),
            // Never recorded, or without times.
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    fn at(&self) -> Outcome<Option<(Arc<Stream>, u64, Kept)>> {
        match lock(&self.recorded).clone() {
            Recorded::Never => Ok(None),
            Recorded::At { stream, position, clock, .. } => Ok(Some((stream, position, clock))),
            Recorded::Captured { .. } => Err(Code::CAPTURED_EVENT),
        }
    }
}
