//! The requests of kernels to their stream, on a GPU. They are recorded part by part, and submitted together.
//! Only memory is allocated at once.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;

use super::checks::Checks;
use super::context::Stream;
use super::device::{Device, Marking};
use super::driver::OUT_OF_MEMORY;
use super::dropped::{Dropped, Point, Visit};
use super::host_memory::HostBlock;
use super::memory::{Allocation, Landed, Section};
use super::ops::{Op, Ops, Pattern, Way};
use super::raw::Loan;
use super::times::PartEvents;
use crate::device::code::{Code, Launch};
use crate::device::queue::{Arg, Event, HostMemory, Memory, MemoryArg, Part, Queue};
use crate::error::{Error, How, Kind, Result};
use crate::sync::lock;

/// The next work of a lane.
pub(super) struct Recording {
    pub(super) device: Arc<Device>,
    pub(super) lane: u32,
    /// The events that the lane waits for first.
    pub(super) waits: Vec<Event>,
    pub(super) parts: Vec<RecordedPart>,
    /// The parts that parts wait for.
    pub(super) part_waits: Vec<u32>,
    pub(super) ops: Ops,
    /// The memory that the operations use, kept until all of them are submitted.
    held: Vec<Held>,
    /// The same for memory of other devices.
    visited: Vec<Arc<Allocation>>,
    staged: Vec<HostBlock>,
    /// Blocks that copies write, each with the place of its copy among the operations.
    landings: Vec<(usize, Arc<Landed>)>,
    /// The number of operations that were issued early, because a library requested the stream itself.
    pub(super) flushed: Option<usize>,
    /// The first of these operations that the driver refused: its part, and the error.
    pub(super) refused: Option<(u32, Error)>,
    /// Whether a library had the stream, and so may have changed the thread's context.
    pub(super) is_lent: bool,
    /// Slices that a library got, until its node ends.
    pub(super) loans: Vec<Loan>,
    /// The uses of memory, for the sanitizer.
    pub(super) checks: Option<Box<Checks>>,
    /// The events around the parts, from the first issued work on, if times are taken.
    pub(super) times: Option<PartEvents>,
}

/// A part and its order.
#[derive(Clone, Copy)]
pub(super) struct RecordedPart {
    pub(super) stream: u32,
    pub(super) is_awaited: bool,
    /// The first of its operations, and the first of its waits.
    pub(super) ops: u32,
    pub(super) waits: u32,
}

struct Held {
    allocation: Arc<Allocation>,
    /// The plan's stream of all parts that use the memory, if this recording allocated it and there is one
    /// such stream. A later part of that stream may reuse the memory once no buffer refers to it.
    stream: Option<u32>,
}

// SAFETY: any thread may use the driver's handles.
unsafe impl Send for Recording {}

impl Recording {
    pub(super) fn new(device: Arc<Device>) -> Self {
        let checks = device.sanitizer.as_ref().map(Checks::new);
        Self {
            device,
            lane: 0,
            waits: Vec::new(),
            parts: Vec::new(),
            part_waits: Vec::new(),
            ops: Ops::default(),
            held: Vec::new(),
            visited: Vec::new(),
            staged: Vec::new(),
            landings: Vec::new(),
            flushed: None,
            refused: None,
            is_lent: false,
            loans: Vec::new(),
            checks,
            times: None,
        }
    }

    /// Prepares the events around the parts, before the first work is issued. The context is current.
    pub(super) fn begin_times(&mut self) {
        if self.times.is_none() {
            self.times = PartEvents::begin(&self.device);
        }
    }

    pub(super) fn begin(&mut self, lane: u32, waits: &mut dyn Iterator<Item = Event>) {
        self.lane = lane;
        self.waits.extend(waits);
        if let Some(checks) = &mut self.checks {
            checks.begin(&self.waits);
        }
    }

    /// Returns the range of a part's operations.
    pub(super) fn ops_of(&self, part: usize) -> std::ops::Range<usize> {
        let end = self.parts.get(part + 1).map_or(self.ops.len(), |next| next.ops as usize);
        self.parts[part].ops as usize..end
    }

    /// Returns the parts that a part waits for.
    pub(super) fn waits_of(&self, part: usize) -> &[u32] {
        let end = self.parts.get(part + 1).map_or(self.part_waits.len(), |next| next.waits as usize);
        &self.part_waits[self.parts[part].waits as usize..end]
    }

    /// Records that all of this work has ended once these points have passed. The lane's own point comes
    /// first.
    pub(super) fn settle(&mut self, points: &[Point]) {
        for held in self.held.drain(..) {
            points.iter().for_each(|&point| held.allocation.touch(point));
        }
        for visited in self.visited.drain(..) {
            let visit = |&(lane, point): &Point| visited.visit(Visit { lane: self.device.lanes[lane as usize].clone(), point });
            points.iter().for_each(visit);
        }
        self.staged.drain(..).for_each(|block| self.device.keep(Dropped::host(block, points)));
        self.landings.drain(..).for_each(|(_, landed)| landed.settle(points));
    }

    /// Discards the operations from `ops` on, and the memory that they would have copied to.
    fn truncate(&mut self, ops: usize) {
        self.ops.truncate(ops);
        if let Some(checks) = self.checks.as_mut().filter(|_| self.flushed.is_none()) {
            checks.truncate(ops);
        }
        self.landings.retain(|&(place, _)| place < ops);
    }

    /// Empties the recording for reuse.
    pub(super) fn clear(&mut self) {
        self.waits.clear();
        self.parts.clear();
        self.part_waits.clear();
        self.ops.clear();
        self.held.clear();
        self.visited.clear();
        self.landings.clear();
        self.loans.clear();
        self.staged.drain(..).for_each(|block| self.device.keep(Dropped::host(block, &[])));
        (self.flushed, self.refused, self.is_lent, self.times) = (None, None, false, None);
    }

    /// Returns the address of memory on this device, and records its use.
    pub(super) fn used(&mut self, memory: &dyn Memory, how: How) -> Result<CUdeviceptr> {
        match section_of(memory) {
            Some(section) if Arc::ptr_eq(&section.allocation.device, &self.device) => {
                self.hold(&section.allocation, false);
                self.check(section, how);
                Ok(section.address)
            }
            _ => Err(self.foreign(memory.device_name())),
        }
    }

    /// Records a use for the sanitizer.
    fn check(&mut self, section: &Section, how: How) {
        if let Some(checks) = &mut self.checks {
            checks.note(self.parts.len(), self.ops.len(), section, how);
        }
    }

    fn hold(&mut self, allocation: &Arc<Allocation>, is_new: bool) {
        let stream = self.parts.last().map(|part| part.stream);
        match self.held.get_mut(allocation.place()) {
            Some(held) if Arc::ptr_eq(&held.allocation, allocation) => {
                held.stream = held.stream.filter(|&own| Some(own) == stream)
            }
            _ => {
                allocation.set_place(self.held.len());
                self.held.push(Held { allocation: allocation.clone(), stream: stream.filter(|_| is_new) });
            }
        }
    }

    /// Returns memory that this recording allocated and that no buffer refers to. All work that uses it
    /// precedes the next operation on the same stream.
    fn reuse(&mut self, bytes: usize) -> Option<Arc<Allocation>> {
        // The sanitizer distinguishes memory by its allocation.
        let stream = self.parts.last().filter(|_| self.checks.is_none())?.stream;
        let is_free = |held: &&Held| {
            held.allocation.bytes == bytes
                && held.stream == Some(stream)
                && Arc::strong_count(&held.allocation) == 1
                && held.allocation.is_new()
        };
        self.held.iter().find(is_free).map(|held| held.allocation.clone())
    }

    fn alloc_on_path(&self, bytes: usize) -> Result<Arc<Allocation>> {
        let (device, mut address) = (&self.device, 0);
        let _path = lock(&device.path);
        device.collect(Marking::IfMuch);
        // SAFETY: the call writes one address, and `address` outlives it. An empty buffer has an address,
        // too.
        let code = unsafe { (device.driver.alloc)(&mut address, bytes.max(1), self.stream().handle()) };
        if code == OUT_OF_MEMORY {
            return Err(Kind::OutOfMemory { bytes, device: device.context.device_name() }.into());
        }
        device.context.check(code)?;
        let made = (self.lane, device.issued(self.lane));
        Ok(Arc::new(Allocation::new(device.clone(), address, bytes, made)))
    }

    pub(super) fn foreign(&self, buffer: String) -> Error {
        Kind::ForeignBuffer { buffer, stream: self.device.context.device_name() }.into()
    }

    /// Makes the device's context current on this thread again, after a library has had the stream.
    fn regain(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_lent) { self.device.context.make_current() } else { Ok(()) }
    }

    fn note(&mut self, op: Op, bytes: usize) {
        // Graphs of the driver have no copies of zero bytes.
        if bytes > 0 {
            self.ops.push(op);
        }
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.device.lanes[self.lane as usize].stream
    }
}

/// Halves a pattern as long as both halves are the same.
fn shortest(pattern: &[u8]) -> &[u8] {
    match pattern.split_at(pattern.len() / 2) {
        (half, other) if half == other && !half.is_empty() => shortest(half),
        _ => pattern,
    }
}

impl Queue for Recording {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn device_name(&self) -> String {
        self.device.context.device_name()
    }

    fn begin_part(&mut self, part: Part<'_>) {
        self.loans.clear();
        self.end_library_part();
        let (ops, waits) = (self.ops.len() as u32, self.part_waits.len() as u32);
        self.part_waits.extend(part.waits);
        self.parts.push(RecordedPart { stream: part.stream, is_awaited: part.is_awaited, ops, waits });
    }

    fn abandon_part(&mut self) {
        let first = self.parts.last().map_or(0, |part| part.ops as usize);
        self.truncate(first.max(self.flushed.unwrap_or(0)));
    }

    fn abandon_all(&mut self) {
        let issued = self.flushed.unwrap_or(0);
        self.truncate(issued);
        self.parts.iter_mut().for_each(|part| part.ops = part.ops.min(issued as u32));
    }

    fn alloc(&mut self, bytes: usize) -> Result<Box<dyn Memory>> {
        if let Some(allocation) = self.reuse(bytes) {
            return Ok(Box::new(Section::of(allocation)));
        }
        self.regain()?;
        let allocated = self.alloc_on_path(bytes);
        self.device.collect_if_asked();
        let allocation = allocated?;
        self.hold(&allocation, true);
        let section = Section::of(allocation);
        self.check(&section, How::Allocates);
        Ok(Box::new(section))
    }

    fn upload(&mut self, from: &[u8], to: &dyn Memory) -> Result<()> {
        let to = self.used(to, How::Writes)?;
        if from.is_empty() {
            return Ok(());
        }
        self.regain()?;
        let staged = self.device.take_host(from.len())?;
        // SAFETY: the block has at least as many bytes, and was taken from the pool above.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), staged.start.as_ptr(), from.len()) };
        self.note(
            Op::Copy { way: Way::Up, from: staged.start.as_ptr().expose_provenance() as u64, to, bytes: from.len() },
            from.len(),
        );
        self.staged.push(staged);
        Ok(())
    }

    fn download(&mut self, from: &dyn Memory) -> Result<Box<dyn HostMemory>> {
        let bytes = bytes_of(from);
        let from = self.used(from, How::Reads)?;
        self.regain()?;
        let landed = Arc::new(Landed::new(self.device.clone(), self.device.take_host(bytes)?));
        if bytes == 0 {
            // No operation writes it, so discarding operations does not discard it.
            landed.settle(&[]);
        } else {
            self.landings.push((self.ops.len(), landed.clone()));
        }
        self.note(Op::Copy { way: Way::Down, from, to: landed.start().expose_provenance() as u64, bytes }, bytes);
        Ok(Box::new(landed))
    }

    fn fetch(&mut self, from: &dyn Memory) -> Result<Box<dyn Memory>> {
        let Some(there) = section_of(from) else { return Err(self.foreign(from.device_name())) };
        let (device, bytes) = (&there.allocation.device, there.bytes);
        let to = self.alloc(bytes)?;
        if Arc::ptr_eq(device, &self.device) {
            self.copy(from, &*to)?;
            return Ok(to);
        }
        let op = Op::Fetch { from: (there.address, device.context.handle()), to: self.used(&*to, How::Writes)?, bytes };
        self.check(there, How::Reads);
        self.note(op, bytes);
        self.visited.push(there.allocation.clone());
        Ok(to)
    }

    fn copy(&mut self, from: &dyn Memory, to: &dyn Memory) -> Result<()> {
        let bytes = bytes_of(from);
        let op = Op::Copy { way: Way::Within, from: self.used(from, How::Reads)?, to: self.used(to, How::Writes)?, bytes };
        self.note(op, bytes);
        Ok(())
    }

    fn fill(&mut self, pattern: &[u8], to: &dyn Memory) -> Result<()> {
        let (bytes, pattern) = (bytes_of(to), shortest(pattern));
        let count = bytes / pattern.len();
        let pattern = match *pattern {
            [byte] => Pattern::Byte(byte),
            [a, b, c, d] => Pattern::Word(u32::from_ne_bytes([a, b, c, d])),
            _ => {
                let mut all: Vec<u8> = Vec::new();
                let no_memory = |_| Kind::OutOfMemory { bytes, device: "the host".into() }.into();
                all.try_reserve_exact(bytes).map_err(no_memory)?;
                all.extend(pattern.iter().copied().cycle().take(bytes));
                return self.upload(&all, to);
            }
        };
        let op = Op::Fill { to: self.used(to, How::Writes)?, pattern, count };
        self.note(op, count);
        Ok(())
    }

    fn launch(&mut self, code: &Arc<Code>, launch: &Launch, args: &[Arg<'_>]) -> Result<()> {
        self.regain()?;
        let function = self.device.function(code)?;
        for arg in args {
            let word = match arg {
                Arg::Number(bytes) => u64::from_ne_bytes(*bytes),
                Arg::Memory(MemoryArg(Some(memory), how)) => self.used(*memory, *how)?,
                Arg::Memory(MemoryArg(None, _)) => return Err(self.foreign("the host device".into())),
            };
            self.ops.push_word(word);
        }
        self.ops.push_launch(function, launch, args.len());
        Ok(())
    }
}

fn section_of(memory: &dyn Memory) -> Option<&Section> {
    memory.as_any().downcast_ref()
}

/// Returns the size of memory, or 0 if it is not a GPU's.
fn bytes_of(memory: &dyn Memory) -> usize {
    section_of(memory).map_or(0, |section| section.bytes)
}
