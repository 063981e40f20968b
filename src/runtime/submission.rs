//! Submission: work is recorded on a stream of a device, and submitted as one.

use crate::device::DeviceStream;
use crate::device::queue::{Event, Job, QueueDevice, Submitted};
use crate::error::Result;

pub(crate) struct Submission {
    /// The error of the device, if it refused all of the work.
    pub(crate) outcome: Result<Submitted>,
    /// The point at which all enqueued work is done. None if the device is lost.
    pub(crate) point: Option<u64>,
}

impl Submission {
    /// Records work on a stream of `lane` behind `waits`, and submits it with the job that `record` returns.
    pub(crate) fn new<'j>(
        device: &dyn QueueDevice,
        lane: u32,
        waits: &mut dyn Iterator<Item = Event>,
        record: impl FnOnce(&mut DeviceStream) -> Result<Job<'j>>,
    ) -> Self {
        let submit = |mut stream: DeviceStream| {
            let mut job = record(&mut stream)?;
            device.submit(stream, &mut job)
        };
        let outcome = device.begin(lane, waits).and_then(submit);
        // Work that was enqueued before a refusal needs a known end, too.
        let point = outcome.as_ref().map_or_else(|_| device.mark(lane).ok(), |submitted| Some(submitted.point));
        Self { outcome, point }
    }
}
