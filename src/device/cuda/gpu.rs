//! One GPU, as seen by an executor: it submits one segment at a time, on the device's path.

use std::sync::Arc;

use super::device::{Device, Marking};
use super::driver::Driver;
use super::dropped::Point;
use super::graphs::Graphs;
use super::issue::{self, Others};
use super::recording::Recording;
use super::settings::GpuSettings;
use crate::device::DeviceStream;
use crate::device::queue::{Event, Fault, Job, PartTimes, QueueDevice, Submitted, Timeline};
use crate::error::{Error, Result};
use crate::sync::{Mutex, Ordering, lock};

/// The most nodes on a lane that are not known to be done. If more work is enqueued than the driver has room
/// for, the driver blocks the thread.
const BACKLOG_MAX: u64 = 512;
/// The same with device times: each node has two more entries in the driver's queue.
const TIMED_BACKLOG_MAX: u64 = 340;
/// The most nodes that are submitted together. The end of each submission is marked.
const SEGMENT_MAX: u64 = 256;

/// A GPU that work is submitted to.
pub(crate) struct Gpu {
    device: Arc<Device>,
    /// Streams that can be reused.
    recordings: Mutex<Vec<DeviceStream>>,
}

impl Gpu {
    /// Opens the GPU with this ordinal.
    ///
    /// # Errors
    /// If there is no driver, it is too old, there is no such GPU, or the GPU does not answer.
    pub(crate) fn open(ordinal: u32, settings: GpuSettings) -> Result<Self> {
        let driver = Driver::with_device(ordinal)?;
        let device = Arc::new(Device::open(driver, ordinal, settings)?);
        Ok(Self { device, recordings: Mutex::default() })
    }

    fn submit_all(&self, recording: &mut Recording, job: &mut Job<'_>) -> Result<Submitted> {
        let (device, lane) = (&*self.device, recording.lane);
        let mut graphs = lock(&device.path);
        // Bodies have run since the recording began, and may have changed the thread's context.
        device.context.make_current()?;
        device.collect(Marking::IfMuch);
        let point = device.issue(lane, recording.parts.len() as u64);
        let mut others = Others::default();
        let end = recording.judge(job.judge, point);
        recording.begin_times();
        let launched = self.launch(&mut graphs, recording, job, &mut others);
        if others.used != 0 {
            device.lanes[lane as usize].use_others(point, others.used);
        }
        let strays = others.strays.into_iter().map(|lane| (lane, device.issue(lane, 1)));
        let points: Vec<Point> = std::iter::once((lane, point)).chain(strays).collect();
        recording.settle(&points);
        // Memory may wait for these points, so the host must be told of them.
        points[1..].iter().for_each(|&(stray, _)| _ = device.mark(stray));
        let is_graph = launched?;
        // Must precede the record: a thread that learns of the end through another stream relies on the mark.
        device.mark(lane)?;
        let event = if job.is_recorded { Some(device.record(lane)?) } else { None };
        if let (Some(checked), Some(event), Some(end)) = (&device.sanitizer, event, end) {
            checked.recorded(event, end);
        }
        let times = recording.times.take().map(|times| Arc::new(times) as Arc<dyn PartTimes>);
        Ok(Submitted { point, event, is_graph, times })
    }

    /// Launches a recording as one graph if possible; otherwise issues it call by call. Returns true for a
    /// graph.
    fn launch(&self, graphs: &mut Graphs, recording: &mut Recording, job: &mut Job<'_>, others: &mut Others) -> Result<bool> {
        issue::wait_first(recording)?;
        if let Some(key) = job.key
            && graphs.launch(recording, key)?
        {
            return Ok(true);
        }
        issue::issue(recording, job.judge, others)?;
        Ok(false)
    }
}

impl QueueDevice for Gpu {
    fn name(&self) -> String {
        self.device.context.device_name()
    }

    fn timelines(&self) -> Vec<Arc<dyn Timeline>> {
        self.device.lanes.iter().map(|lane| lane.clone() as Arc<dyn Timeline>).collect()
    }

    fn begin(&self, lane: u32, waits: &mut dyn Iterator<Item = Event>) -> Result<DeviceStream> {
        self.device.context.make_current()?;
        let kept = lock(&self.recordings).pop();
        let mut stream = kept.unwrap_or_else(|| DeviceStream::queue(Box::new(Recording::new(self.device.clone()))));
        recording(&mut stream).begin(lane, waits);
        Ok(stream)
    }

    fn submit(&self, mut stream: DeviceStream, job: &mut Job<'_>) -> Result<Submitted> {
        let recording = recording(&mut stream);
        recording.loans.clear();
        let submitted = self.submit_all(recording, job);
        recording.clear();
        lock(&self.recordings).push(stream);
        self.device.collect_if_asked();
        submitted
    }

    fn backlog(&self, lane: u32) -> Option<u64> {
        // A lost device makes no progress. The next submission returns the error.
        if self.device.context.is_lost() {
            return None;
        }
        let issued = self.device.issued(lane);
        let max = if self.device.clock.is_some() { TIMED_BACKLOG_MAX } else { BACKLOG_MAX };
        let point = issued.checked_sub(max - SEGMENT_MAX)?;
        (issued >= max && !self.device.has_reached((lane, issued - max + 1))).then_some(point)
    }

    fn mark(&self, lane: u32) -> Result<u64> {
        let mark = || {
            let _path = lock(&self.device.path);
            self.device.context.make_current()?;
            self.device.mark(lane)?;
            Ok(self.device.issued(lane))
        };
        let marked = mark();
        self.device.collect_if_asked();
        marked
    }

    fn free_events(&self, events: &mut dyn Iterator<Item = Event>) {
        self.device.free_events(events);
    }

    fn collect(&self) -> Option<Point> {
        self.device.request_collection()
    }

    fn quarantined(&self) -> usize {
        // ORDERING: Relaxed: a count that guards no other data.
        self.device.quarantined.load(Ordering::Relaxed) as usize
    }

    fn judge(&self, fault: &Fault) -> Error {
        self.device.context.error(fault)
    }
}

fn recording(stream: &mut DeviceStream) -> &mut Recording {
    stream.queue_mut().as_any_mut().downcast_mut().expect("the stream is from `begin`")
}
