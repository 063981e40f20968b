//! A group of operations that stream together: where their stores are, and one run of it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use smallvec::SmallVec;

use super::AXES_MAX;
use super::batch::{Batch, Step};
use super::body::{Body, FoldState, PartMaker};
#[cfg(debug_assertions)]
use super::claims::Claims;
use super::device_memory::DeviceMemory;
#[cfg(debug_assertions)]
use super::memory::len;
use super::memory::{ALIGN, Block, Range, Ring, Storage, aligned};
use crate::Pipeline;
use crate::error::{BoxError, Result};
use crate::graph::{Made, Shared};
use crate::name::Name;
use crate::sync::{AtomicBool, Mutex, OnceLock, Ordering, lock};
use crate::tiles::Along;

/// An operation of the scope.
pub(super) struct Op {
    pub(super) name: Name,
    pub(super) body: Body,
}

pub(super) struct Group {
    pub(super) ops: Vec<GroupOp>,
    pub(super) storages: Vec<Storage>,
    pub(super) in_flight: u64,
    /// Whether no batch needs one of another round. A step may then have any memory of tiles.
    pub(super) is_apart: bool,
    /// How many batches of each operation a step has, one after the other.
    pub(super) chunk: u64,
    pub(super) host: Region,
    pub(super) device: Region,
    /// The stores that get memory of their own before the group, and those that lose it behind the group.
    pub(super) begins: Vec<u32>,
    pub(super) ends: Vec<u32>,
}

/// The memory of a group on the host, or on the device: rings, and gathered elements.
#[derive(Default)]
pub(super) struct Region {
    pub(super) bytes: u64,
    /// Where the memory of gathered elements begins, and its bytes for each batch in flight.
    pub(super) gathered_at: u64,
    pub(super) gathered_bytes: u64,
}

impl Group {
    pub(super) fn region(&mut self, is_on_device: bool) -> &mut Region {
        if is_on_device { &mut self.device } else { &mut self.host }
    }
}

impl Region {
    /// Makes room for elements of each batch in flight. Returns where it is among that of the batch.
    pub(super) fn gather(&mut self, bytes: u64) -> u64 {
        let at = self.gathered_bytes;
        self.gathered_bytes = self.gathered_bytes.saturating_add(aligned(bytes));
        at
    }

    /// Returns where gathered elements of a batch are.
    pub(super) fn gathered(&self, own: u64, slot: usize) -> u64 {
        self.gathered_at + slot as u64 * self.gathered_bytes + own
    }
}

/// The pipelines of a group, each with its number of steps: one before the batches, and that of the
/// batches.
pub(super) type Stages = Vec<(Pipeline<Step, ()>, u64)>;

/// An operation of a group.
pub(super) struct GroupOp {
    /// Its number among all operations.
    pub(super) number: usize,
    pub(super) skew: u64,
    pub(super) batches: u64,
    pub(super) launch: Vec<u64>,
    /// By use; none for values that are made once.
    pub(super) accesses: Vec<Option<Access>>,
    /// The use that has the leaves of a reduction, and how many rows a leaf has.
    pub(super) driver: u32,
    pub(super) leaf_rows: u64,
    /// Where a kernel makes the parts of a reduction.
    pub(super) parts: Option<u64>,
}

/// How an operation uses a store.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The place of its storage.
    pub(super) storage: u32,
    /// Which elements a batch uses along each axis of the store. Here and not elsewhere in memory, because
    /// each batch asks for them.
    pub(super) axes: SmallVec<[Along; 2]>,
    pub(super) is_written: bool,
    /// Whether what it writes was there before.
    pub(super) is_updated: bool,
    /// The use that has the elements to update, if they are of another store.
    pub(super) copies_from: Option<u32>,
    /// The ring whose blocks are the tiles of the operation: block b is that of batch b.
    pub(super) blocks: Option<Ring>,
    /// Where its elements are gathered, if they are not always a slice.
    pub(super) gathered: Option<u64>,
    /// Whether the leaves of a reduction select its rows; and how far these lie before, and behind, a leaf's.
    pub(super) follows_leaves: bool,
    pub(super) around: (i64, i64),
}

impl GroupOp {
    /// Returns the point of a batch in the launch.
    #[inline]
    pub(super) fn point(&self, batch: u64) -> [u64; AXES_MAX] {
        let (mut point, mut rest) = ([0; AXES_MAX], batch);
        for (axis, &along) in self.launch.iter().enumerate().skip(1).rev() {
            (point[axis], rest) = if along == 1 { (0, rest) } else { (rest % along, rest / along) };
        }
        point[0] = rest;
        point
    }

    /// Returns the elements of a batch along the axes of the store that drives the operation, if one does.
    pub(super) fn tile(&self, batch: u64) -> Option<Vec<std::ops::Range<u64>>> {
        let access = self.accesses.get(self.driver as usize)?.as_ref().filter(|_| !self.launch.is_empty())?;
        let point = self.point(batch);
        let along = |along: &Along| along.elements(&point);
        Some(access.axes.iter().map(along).map(|(start, end)| start..end).collect())
    }
}

impl Access {
    /// Returns the rows for those of a leaf.
    #[inline]
    pub(super) fn around(&self, start: u64, end: u64) -> (u64, u64) {
        if self.around == (0, 0) {
            return (start, end);
        }
        let extent = self.axes[0].extent as i64;
        let start = (start as i64 + self.around.0).clamp(0, extent);
        (start as u64, (end as i64 + self.around.1).clamp(start, extent) as u64)
    }
}

/// What all groups of a run of a scope share.
pub(super) struct State {
    pub(super) scalars: Box<[OnceLock<Made>]>,
    pub(super) given: Vec<Shared>,
}

/// The memory of a store that has its own. That of a device is made by a kernel.
#[derive(Clone)]
pub(super) enum Own {
    Host(Arc<Block>),
    Device(Arc<OnceLock<DeviceMemory>>),
}

/// One run of a group.
pub(super) struct GroupRun {
    pub(super) program: Arc<[Op]>,
    pub(super) group: Arc<Group>,
    pub(super) state: Arc<State>,
    memory: Block,
    /// The memories of tiles that no batch has, each with the thread that used it last: its cache has it.
    /// The last one that was used is at the end.
    free: Mutex<Vec<(usize, Option<ThreadId>)>>,
    pub(super) device: OnceLock<DeviceMemory>,
    /// The memory of stores that have their own.
    pub(super) wholes: Vec<Option<Own>>,
    /// The state of each operation that is a reduction.
    folds: Vec<Option<Box<FoldState>>>,
    /// By operation of the scope.
    pub(super) buffers: Vec<Mutex<Vec<Box<dyn Any + Send>>>>,
    has_failed: AtomicBool,
    /// The batches that have failed: of which step, of which operation of the group, and their numbers.
    failed: Mutex<Vec<(u64, usize, u64)>>,
    #[cfg(debug_assertions)]
    pub(super) claims: Claims,
}

impl GroupRun {
    pub(super) fn new(program: Arc<[Op]>, group: Arc<Group>, state: Arc<State>, wholes: Vec<Option<Own>>) -> Option<Self> {
        let memory = Block::new(group.host.bytes, ALIGN)?;
        let free = Mutex::new((0..group.in_flight as usize).map(|at| (at, None)).collect());
        let fold = |op: &GroupOp| match &program[op.number].body {
            Body::Fold(fold, _) => Some(fold.state(group.in_flight as usize)),
            _ => None,
        };
        let folds = group.ops.iter().map(fold).collect();
        let buffers = program.iter().map(|_| Mutex::default()).collect();
        let (has_failed, failed) = (AtomicBool::new(false), Mutex::default());
        Some(Self {
            program,
            group,
            state,
            memory,
            free,
            device: OnceLock::new(),
            wholes,
            folds,
            buffers,
            has_failed,
            failed,
            #[cfg(debug_assertions)]
            claims: Claims::default(),
        })
    }

    /// Marks the group as failed, unless the batch that begins here passes.
    pub(super) fn failing(&self, step: u64, op: usize, batch: u64) -> Failing<'_> {
        Failing { run: self, batch: (step, op, batch) }
    }

    /// Returns which operation has failed at a step, by its place in the group, and its batch.
    pub(super) fn failed_at(&self, step: u64) -> Option<(usize, u64)> {
        lock(&self.failed).iter().find(|failed| failed.0 == step).map(|&(_, op, batch)| (op, batch))
    }

    pub(super) fn has_failed(&self) -> bool {
        // ORDERING: Relaxed: it only spares work. The pipeline orders all that an operation relies on.
        self.has_failed.load(Ordering::Relaxed)
    }

    pub(super) fn base(&self, storage: &Storage, memory: usize) -> *mut u8 {
        match storage.at {
            // SAFETY: storages lie in the memory of their group.
            Some(at) => unsafe { self.memory.base().add(at as usize + memory * storage.apart as usize) },
            None => match &self.wholes[storage.store as usize] {
                Some(Own::Host(block)) => block.base(),
                _ => unreachable!("it begins before its first group"),
            },
        }
    }

    /// Returns the memory where elements are gathered that are no slice.
    fn gathered(&self, access: &Access, memory: usize) -> *mut u8 {
        let own = access.gathered.expect("what is not always a slice has memory to be gathered in");
        let at = self.group.host.gathered(own, memory);
        // SAFETY: each batch in flight has its part of the group's memory, and each access its part of that.
        unsafe { self.memory.base().add(at as usize) }
    }

    /// Returns the memory of elements that are read, of which a slice begins at so many bytes.
    pub(super) fn read(&self, access: &Access, ranges: &[Range], slice: Option<u64>, memory: usize) -> *const u8 {
        let storage = &self.group.storages[access.storage as usize];
        match slice {
            // SAFETY: the slice lies in its storage.
            Some(at) => unsafe { self.base(storage, memory).add(at as usize) },
            None => self.gather(storage, access, ranges, memory),
        }
    }

    /// Returns the memory of elements that are written, as [`read`](Self::read).
    pub(super) fn write(&self, access: &Access, ranges: &[Range], slice: Option<u64>, memory: usize) -> *mut u8 {
        let storage = &self.group.storages[access.storage as usize];
        match slice {
            // SAFETY: the slice lies in its storage.
            Some(at) => unsafe { self.base(storage, memory).add(at as usize) },
            None if access.is_updated => self.gather(storage, access, ranges, memory),
            None => self.gathered(access, memory),
        }
    }

    fn gather(&self, storage: &Storage, access: &Access, ranges: &[Range], memory: usize) -> *mut u8 {
        let (base, to) = (self.base(storage, memory), self.gathered(access, memory));
        storage.pieces(ranges, |from, at, bytes| {
            // SAFETY: both lie in memory that this batch may use, and do not overlap.
            unsafe { copy((base, from), (to, at), bytes) }
        });
        to
    }

    /// Returns whether a tile is where it belongs once it is written.
    pub(super) fn is_in_place(&self, access: &Access) -> bool {
        access.gathered.is_none() && !self.group.storages[access.storage as usize].has_copies()
    }

    /// Brings what was written to where it belongs.
    pub(super) fn publish(&self, access: &Access, ranges: &[Range], memory: usize) {
        let storage = &self.group.storages[access.storage as usize];
        let base = self.base(storage, memory);
        if storage.slice(ranges).is_some() {
            for (from, to, bytes) in storage.copies(ranges).into_iter().flatten() {
                // SAFETY: both lie in the storage, and do not overlap. The copy belongs to the tile that this
                // batch writes.
                unsafe { copy((base, from), (base, to), bytes) }
            }
            return;
        }
        let written = self.gathered(access, memory);
        storage.pieces(ranges, |to, at, bytes| {
            // SAFETY: both lie in memory that this batch may use, and do not overlap.
            unsafe { copy((written, at), (base, to), bytes) }
        });
    }
}

/// Copies bytes between places in memory.
///
/// # Safety
/// Both are memory of so many bytes that no other thread uses, and they do not overlap.
unsafe fn copy((from, at): (*mut u8, u64), (to, place): (*mut u8, u64), bytes: u64) {
    let (from, to) = (from.wrapping_add(at as usize), to.wrapping_add(place as usize));
    // SAFETY: the caller promises it.
    unsafe { from.copy_to_nonoverlapping(to, bytes as usize) }
}

impl Step {
    /// Runs the batches that operations have at this step, unless something has failed: one after the other
    /// in each operation, and all operations in each of them.
    pub(super) fn perform(&self, ops: &[usize]) -> Result<(), BoxError> {
        let memory = self.run.group.is_apart.then(|| Borrowed::take(&self.run));
        let at = memory.as_ref().map_or(self.slot(), |lent| lent.at);
        self.rounds().try_for_each(|round| ops.iter().try_for_each(|&op| self.perform_one(op, round, at)))
    }

    fn perform_one(&self, op: usize, round: u64, memory: usize) -> Result<(), BoxError> {
        let run = self.run();
        let Some(mut batch) = self.batch(op, round).filter(|_| !run.has_failed()) else { return Ok(()) };
        batch.memory = memory;
        let failing = run.failing(self.number, op, batch.number());
        #[cfg(debug_assertions)]
        let _claimed = batch.claim();
        match &run.program[run.group.ops[op].number].body {
            Body::Task(task) => task.run(batch)?,
            Body::Fold(_, PartMaker::Closure(parts)) => parts.make(batch, run.fold_state(op)),
            Body::Fold(_, PartMaker::Kernel(_)) | Body::Kernel(_) | Body::Transfer(..) => unreachable!("they are other nodes"),
        }
        batch.publish_all();
        failing.pass();
        Ok(())
    }

    /// Combines what the batches of a reduction made, in their order. The last one ends it.
    pub(super) fn combine(&self, op: usize) {
        let run = self.run();
        let last = self.rounds().filter_map(|round| self.batch(op, round)).next_back();
        let Some(batch) = last.filter(|_| !run.has_failed()) else { return };
        let failing = run.failing(self.number, op, batch.number());
        if let Body::Fold(fold, _) = &run.program[run.group.ops[op].number].body {
            fold.combine(batch.slot, run.fold_state(op));
            if batch.is_last() {
                batch.set_scalar(fold.scalar(), fold.result(run.fold_state(op)));
            }
        }
        failing.pass();
    }

    /// Returns what a transfer does at this step.
    pub(super) fn start(self: Arc<Self>, op: usize) -> super::body::Transferring {
        let number = self.batch(op, self.number).map(|batch| batch.number());
        let Some(number) = number.filter(|_| !self.run().has_failed()) else { return Box::pin(std::future::ready(Ok(()))) };
        let step = self.clone();
        let failing = self.run().failing(self.number, op, number);
        let Body::Transfer(transfer, _) = &self.run().program[self.run().group.ops[op].number].body else {
            unreachable!("only transfers are async")
        };
        let started = transfer.start(step, op);
        failing.pass();
        started
    }
}

impl GroupRun {
    pub(super) fn fold_state(&self, op: usize) -> &FoldState {
        &**self.folds[op].as_ref().expect("reductions have states")
    }
}

/// A memory of tiles that batches of a step have, one after the other. No other step has it until this is
/// dropped.
struct Borrowed<'r> {
    run: &'r GroupRun,
    at: usize,
}

impl<'r> Borrowed<'r> {
    fn take(run: &'r GroupRun) -> Self {
        let (mut free, own) = (lock(&run.free), Some(thread::current().id()));
        let at = free.iter().rposition(|&(_, last)| last == own).unwrap_or(0);
        let (at, _) = free.remove(at);
        drop(free);
        Self { run, at }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        lock(&self.run.free).push((self.at, Some(thread::current().id())));
    }
}

/// Marks a group as failed when it is dropped.
pub(super) struct Failing<'r> {
    run: &'r GroupRun,
    batch: (u64, usize, u64),
}

impl Failing<'_> {
    pub(super) fn pass(self) {
        std::mem::forget(self);
    }
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        lock(&self.run.failed).push(self.batch);
        // ORDERING: Relaxed: see `has_failed`.
        self.run.has_failed.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Batch<'_> {
    fn is_last(&self) -> bool {
        self.number() + 1 == self.batches()
    }
}

#[cfg(debug_assertions)]
impl<'a> Batch<'a> {
    /// Claims all memory that the batch uses.
    pub(super) fn claim(&self) -> super::claims::Claimed<'a> {
        let mut memory = Vec::new();
        self.each_access(|run: &GroupRun, access: &Access, ranges: &[Range]| {
            if !run.group.storages[access.storage as usize].is_on_device {
                run.each_piece(access, ranges, self.memory, |addresses| memory.push((addresses, access.is_written)));
            }
        });
        self.run().claims.claim(memory)
    }
}

#[cfg(debug_assertions)]
impl GroupRun {
    /// Calls `each` for all memory of some elements.
    fn each_piece(&self, access: &Access, ranges: &[Range], memory: usize, mut each: impl FnMut(std::ops::Range<usize>)) {
        if len(ranges) == 0 {
            return;
        }
        let storage = &self.group.storages[access.storage as usize];
        let base = self.base(storage, memory).addr();
        let mut add = |at: u64, bytes: u64| each(base + at as usize..base + (at + bytes) as usize);
        match storage.slice(ranges) {
            Some(at) => add(at, len(ranges) * storage.element_bytes),
            None => storage.pieces(ranges, |at, _, bytes| add(at, bytes)),
        }
        if access.is_written {
            storage.copies(ranges).into_iter().flatten().for_each(|(_, to, bytes)| add(to, bytes));
        }
    }
}
