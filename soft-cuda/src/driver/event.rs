//! Events: a position of a stream, or a place in a graph that is captured.

use std::sync::{Arc, Mutex};

use super::capture::{Capture, Member};
use super::clock::Kept;
use super::device::{self, Device};
use super::lock;
use super::stream::Stream;
use super::table::Handle;
use crate::code::{Code, Outcome};
use crate::wire::Seen;

#[derive(Clone, Default)]
enum Recorded {
    #[default]
    Never,
    At {
        stream: Arc<Stream>,
        position: u64,
        clock: Kept,
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
    recorded: Mutex<Recorded>,
}

impl Event {
    pub(crate) fn new(device: &'static Device, number: u32) -> Self {
        Self { number, device, recorded: Mutex::default() }
    }

    /// Records a position behind all issued work of the stream. The event queues no work: its position passes
    /// when the earlier work has ended.
    pub(crate) fn record(&self, stream: &Arc<Stream>) -> Outcome {
        if stream.device.ordinal != self.device.ordinal {
            return Err(Code::INVALID_HANDLE);
        }
        let recorded = {
            let mut issuing = lock(&stream.issuing);
            match issuing.capturing() {
                Some(member) => Recorded::Captured { capture: member.capture.clone(), frontier: member.frontier.clone() },
                None => {
                    Recorded::At { stream: stream.clone(), position: issuing.position, clock: stream.kept_clock(&mut issuing) }
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
            Recorded::At { stream, position, clock } => {
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

    fn at(&self) -> Outcome<Option<(Arc<Stream>, u64, Kept)>> {
        match lock(&self.recorded).clone() {
            Recorded::Never => Ok(None),
            Recorded::At { stream, position, clock } => Ok(Some((stream, position, clock))),
            Recorded::Captured { .. } => Err(Code::CAPTURED_EVENT),
        }
    }
}
