//! Issues recorded operations as calls of the driver: all on the recording's lane, or spread over as many
//! lanes as the plan has streams for them.
//!
//! ```text
//! lane 0   waits · fork ─▶ a · record a ───────────▶ d · join ─▶ mark, record
//! lane 1           └─────▶ wait a · b ──▶ record ────────┘
//! ```
//! Because of the fork and the join, the work belongs to one lane for all other work: everything earlier on
//! that lane is before all of it, and its end is the end of that lane.

use std::ffi::c_void;

use cudarc::driver::sys::{CUevent, CUstream};
use smallvec::SmallVec;

use super::device::Device;
use super::ops::{Op, Ops, Pattern, Way};
use super::recording::Recording;
use super::times::PartEvents;
use crate::device::queue::{Event, Judge};
use crate::error::{Error, Result};
use crate::sync::lock;

/// Makes the lane wait for the events that the recording waits for.
pub(super) fn wait_first(recording: &mut Recording) -> Result<()> {
    let (device, stream) = (&recording.device, recording.stream().handle());
    recording.waits.iter().try_for_each(|event| wait(device, stream, event.0 as CUevent))?;
    recording.waits.clear();
    Ok(())
}

/// The lanes besides a recording's own.
#[derive(Default)]
pub(super) struct Others {
    /// The lanes that parts were assigned to, as bits.
    pub(super) used: u64,
    /// The lanes that the recording's own lane has not waited for.
    pub(super) strays: Vec<u32>,
}

/// Issues the operations that are not issued yet. The caller holds the device's path.
///
/// # Errors
/// If the device is lost, or refuses a wait or a record. Then the end of the recording's own lane does not
/// cover the strays. The judge is told of refused operations.
pub(super) fn issue(recording: &mut Recording, judge: &mut dyn Judge, others: &mut Others) -> Result<()> {
    let mut times = recording.times.take();
    let issued = issue_parts(recording, judge, others, times.as_mut());
    recording.times = times;
    issued
}

fn issue_parts(
    recording: &Recording,
    judge: &mut dyn Judge,
    others: &mut Others,
    mut times: Option<&mut PartEvents>,
) -> Result<()> {
    if let Some((first, error)) = &recording.refused {
        // The library continued behind a refused operation, so later parts have no valid input.
        judge.refused(*first, error.clone());
        for part in first + 1..recording.parts.len() as u32 {
            if judge.goes_on(part) {
                judge.refused(part, error.clone())
            }
        }
        return Ok(());
    }
    let issued = recording.flushed.unwrap_or(0);
    let mut has_refused = false;
    let mut lanes = Lanes::new(recording, others)?;
    for part in 0..recording.parts.len() {
        let ops = recording.ops_of(part);
        if ops.end <= issued && recording.flushed.is_some() {
            continue;
        }
        let is_empty = ops.is_empty();
        let stream = lanes.arrive(part)?;
        let is_on = !has_refused || judge.goes_on(part as u32);
        let mut ops = (ops.start.max(issued)..ops.end).filter(|_| is_on);
        if let Some(times) = times.as_mut().filter(|_| is_on && !is_empty) {
            times.open(part, lanes.lane(part));
        }
        if let Err(error) = ops.try_for_each(|op| enqueue(&recording.device, stream, &recording.ops, op)) {
            recording.device.context.alive()?;
            judge.refused(part as u32, error);
            has_refused = true;
        }
        times.iter_mut().for_each(|times| times.close());
        lanes.leave(part)?;
    }
    times.into_iter().for_each(PartEvents::close);
    lanes.join()
}

impl Recording {
    /// Issues the recorded operations on the lane alone, so that a library can enqueue work behind them. A
    /// refusal is reported at submission.
    pub(super) fn flush(&mut self) {
        let device = self.device.clone();
        let path = lock(&device.path);
        let first = self.flushed.replace(self.ops.len()).unwrap_or(0);
        if self.refused.is_none() {
            let current = device.context.make_current().inspect(|()| self.begin_times());
            let begun = current.and_then(|()| wait_first(self)).map_err(|error| (0, error));
            let mut times = self.times.take();
            let (stream, mut ops) = (self.stream().handle(), first..self.ops.len());
            let part_of = |op: usize| self.parts.partition_point(|part| part.ops as usize <= op) as u32 - 1;
            let mut open = |part| times.iter_mut().for_each(|times| times.open(part, self.lane));
            let mut enqueue = |op| {
                let part = part_of(op);
                open(part as usize);
                enqueue(&device, stream, &self.ops, op).map_err(|error| (part, error))
            };
            let refused = begun.and_then(|()| ops.try_for_each(&mut enqueue)).err();
            // The library's work belongs to the last part.
            open(self.parts.len().saturating_sub(1));
            (self.refused, self.times) = (refused, times);
        }
        drop(path);
        device.collect_if_asked();
        // The library may change the thread's context. The next driver call restores it.
        self.is_lent = true;
    }
}

impl Recording {
    /// Ends the times of a part whose library has had the stream: what follows is of the next part.
    pub(super) fn end_library_part(&mut self) {
        if let Some(times) = self.times.as_mut().filter(|times| times.is_open()) {
            let path = lock(&self.device.path);
            let current = self.device.context.make_current();
            // On a lost device the part has no times.
            let _ = current.map(|()| times.close());
            drop(path);
            self.device.collect_if_asked();
        }
    }
}

/// The lanes that parts are spread over.
struct Lanes<'a> {
    recording: &'a Recording,
    is_spread: bool,
    /// The event that a lane waits for first, if its first part waits for none.
    fork: Option<Event>,
    /// The lanes that have a part.
    begun: u64,
    /// For each lane besides the recording's own: its last part, unless the recording's own lane has waited
    /// for that part.
    ahead: [Option<u32>; u64::BITS as usize],
    /// For each part that others wait for: its event.
    events: Vec<CUevent>,
    taken: SmallVec<[Event; 8]>,
    others: &'a mut Others,
}

impl<'a> Lanes<'a> {
    fn new(recording: &'a Recording, others: &'a mut Others) -> Result<Self> {
        let first = recording.parts.first().map(|part| part.stream);
        let is_spread = recording.flushed.is_none() && recording.parts.iter().any(|part| Some(part.stream) != first);
        let ahead = [None; u64::BITS as usize];
        let mut lanes = Self {
            recording,
            is_spread,
            fork: None,
            begun: 1 << recording.lane,
            ahead,
            events: Vec::new(),
            taken: SmallVec::new(),
            others,
        };
        if is_spread {
            lanes.events.resize(recording.parts.len(), std::ptr::null_mut());
            // The fork is recorded before any other work on the lane, so that the other lanes need not wait
            // for that work.
            if (0..recording.parts.len()).any(|part| lanes.is_loose(part)) {
                lanes.fork = Some(lanes.record(recording.lane)?);
            }
            lanes.begun = 1 << recording.lane;
        }
        Ok(lanes)
    }

    /// Returns true if nothing orders a part behind the fork: it is the first part of a lane, and waits for
    /// none. Called once for each part, in order.
    fn is_loose(&mut self, part: usize) -> bool {
        let lane = 1 << self.lane(part);
        let is_first = self.begun & lane == 0;
        self.begun |= lane;
        is_first && self.recording.waits_of(part).is_empty()
    }

    fn device(&self) -> &'a Device {
        &self.recording.device
    }

    fn lane(&self, part: usize) -> u32 {
        if !self.is_spread {
            return self.recording.lane;
        }
        let parts = &self.recording.parts;
        let apart = parts[part].stream.wrapping_sub(parts[0].stream);
        self.recording.lane.wrapping_add(apart) % self.device().lanes.len() as u32
    }

    fn stream(&self, lane: u32) -> CUstream {
        self.device().lanes[lane as usize].stream.handle()
    }

    fn record(&mut self, lane: u32) -> Result<Event> {
        let event = self.device().record(lane)?;
        self.taken.push(event);
        Ok(event)
    }

    /// Makes the part's lane wait for the predecessors of the part. Returns its stream.
    fn arrive(&mut self, part: usize) -> Result<CUstream> {
        let lane = self.lane(part);
        let stream = self.stream(lane);
        if !self.is_spread {
            return Ok(stream);
        }
        if let (true, Some(fork)) = (self.is_loose(part), self.fork) {
            wait(self.device(), stream, fork.0 as CUevent)?;
        }
        for &other in self.recording.waits_of(part) {
            let from = self.lane(other as usize);
            if from == lane {
                continue;
            }
            wait(self.device(), stream, self.events[other as usize])?;
            if lane == self.recording.lane && self.ahead[from as usize] == Some(other) {
                self.ahead[from as usize] = None;
            }
        }
        if lane != self.recording.lane {
            self.ahead[lane as usize] = Some(part as u32);
        }
        Ok(stream)
    }

    fn leave(&mut self, part: usize) -> Result<()> {
        if self.is_spread && self.recording.parts[part].is_awaited {
            self.events[part] = self.record(self.lane(part))?.0 as CUevent;
        }
        Ok(())
    }

    /// Makes the recording's own lane wait for all others.
    fn join(&mut self) -> Result<()> {
        for lane in 0..self.device().lanes.len() {
            if self.ahead[lane].is_some() {
                let end = self.record(lane as u32)?;
                wait(self.device(), self.stream(self.recording.lane), end.0 as CUevent)?;
                self.ahead[lane] = None;
            }
        }
        Ok(())
    }
}

impl Drop for Lanes<'_> {
    fn drop(&mut self) {
        let ahead = self.ahead.iter().enumerate().filter(|(_, part)| part.is_some());
        self.others.strays.extend(ahead.map(|(lane, _)| lane as u32));
        self.others.used |= self.begun & !(1 << self.recording.lane);
        self.device().free_events(&mut self.taken.drain(..));
    }
}

fn wait(device: &Device, stream: CUstream, event: CUevent) -> Result<()> {
    // SAFETY: the stream is of this context, and the event was recorded before this work could be submitted.
    device.context.check(unsafe { (device.driver.stream_wait)(stream, event, 0) })
}

fn enqueue(device: &Device, stream: CUstream, ops: &Ops, at: usize) -> Result<(), Error> {
    let driver = device.driver;
    let host = std::ptr::with_exposed_provenance_mut::<c_void>;
    device.context.check(match ops.list()[at] {
        Op::Copy { way, from, to, bytes } => match way {
            // SAFETY: both ends have `bytes` bytes, as checked when the copy was recorded, and are kept until
            // its end.
            Way::Up => unsafe { (driver.copy_up)(to, host(from as usize), bytes, stream) },
            // SAFETY: both ends have `bytes` bytes, as checked when the copy was recorded, and are kept until
            // its end.
            Way::Down => unsafe { (driver.copy_down)(host(to as usize), from, bytes, stream) },
            // SAFETY: both ends have `bytes` bytes, as checked when the copy was recorded, and are kept until
            // its end.
            Way::Within => unsafe { (driver.copy)(to, from, bytes, stream) },
        },
        // SAFETY: the memory has `count` elements, and is kept until the end of the fill.
        Op::Fill { to, pattern: Pattern::Byte(byte), count } => unsafe { (driver.fill_8)(to, byte, count, stream) },
        // SAFETY: the memory has `count` elements, and is kept until the end of the fill.
        Op::Fill { to, pattern: Pattern::Word(word), count } => unsafe { (driver.fill_32)(to, word, count, stream) },
        Op::Fetch { from: (from, there), to, bytes } => {
            let here = device.context.handle();
            // SAFETY: both ends have `bytes` bytes. This one is kept until the end; the other device keeps
            // its memory, and its context, until the visit is over.
            unsafe { (driver.copy_peer)(to, here, from, there, bytes, stream) }
        }
        Op::Launch { function, launch, .. } => {
            let ([x, y, z], [i, j, k]) = (launch.grid, launch.block);
            let mut words = ops.pointers(at);
            let (words, none) = (words.as_mut_ptr(), std::ptr::null_mut());
            // SAFETY: `words` are parameters of the types that the kernel was declared with, and the driver
            // copies them. The promise of `Kernel::cuda_c` or `Kernel::ptx` covers the effects of the code.
            unsafe { (driver.launch)(function, x, y, z, i, j, k, launch.shared_bytes, stream, words, none) }
        }
    })
}
