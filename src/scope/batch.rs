//! One batch of one operation: what its closure reaches. The items of the pipeline of a scope are steps; at
//! step s, an operation that runs k batches behind has batch s - k. If no batch needs another, a step has
//! several *rounds*, each with a batch of each operation, in the same memory.
//!
//! Two batches that use the same element, one of them to write it, never run at the same time: the exact rule
//! has found all of them, and the pipeline keeps their order. So memory needs no locks.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use super::AXES_MAX;
use super::group::{Access, GroupOp, GroupRun};
use super::memory::{Range, len};
use super::tile::{Tile, TileMut, TilePlace};
use crate::device::Element;
use crate::graph::Made;
use crate::sync::lock;

/// An item of the pipeline of a group.
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) run: Arc<GroupRun>,
}

/// One batch of an operation: the right to use its tiles. Closures get what they read through it.
///
/// A program does not name it: closures get tiles.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    run: &'a GroupRun,
    op: &'a GroupOp,
    number: u64,
    /// The place of its step among those in flight.
    pub(super) slot: usize,
    /// Which memory of tiles it has.
    pub(super) memory: usize,
    /// The leaf, if it is one of a reduction.
    leaf: Option<Leaf<'a>>,
}

/// Some rows of a batch.
#[derive(Clone, Copy)]
struct Leaf<'a> {
    /// The tiles of the batch, by use.
    tiles: &'a [Option<Found>],
    start: u64,
    end: u64,
}

/// A tile that was found.
struct Found {
    ranges: [Range; AXES_MAX],
    memory: *const u8,
    row_bytes: u64,
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Step {
    pub(super) fn run(&self) -> &GroupRun {
        &self.run
    }

    /// Returns its place among the steps in flight.
    pub(super) fn slot(&self) -> usize {
        (self.number % self.run.group.in_flight) as usize
    }

    /// Returns the rounds of this step. An operation has a batch in each, or none.
    pub(super) fn rounds(&self) -> std::ops::Range<u64> {
        let chunk = self.run.group.chunk;
        self.number * chunk..(self.number + 1) * chunk
    }

    /// Returns the batch that an operation of the group has in a round, if it has one.
    pub(super) fn batch(&self, op: usize, round: u64) -> Option<Batch<'_>> {
        let run = &*self.run;
        let op = &run.group.ops[op];
        let number = round.checked_sub(op.skew).filter(|&number| number < op.batches)?;
        let slot = self.slot();
        Some(Batch { run, op, number, slot, memory: slot, leaf: None })
    }
}

/// The bytes of elements that a closure has not written, in debug builds.
const POISON: u8 = 0xA5;

/// Lets elements that a closure forgets to write be found.
fn poison<T: Element>(elements: &mut [T]) {
    let bytes = elements.as_mut_ptr().cast::<u8>();
    // SAFETY: these are the bytes of the elements, and any bytes are elements.
    unsafe { bytes.write_bytes(POISON, size_of_val(elements)) }
}

impl<'a> Batch<'a> {
    /// Calls `each` with the leaves of a reduction: batches of some rows each. They are the same for tiles of
    /// any size. The tiles are found once.
    pub(super) fn each_leaf(self, mut each: impl FnMut(Batch<'_>)) {
        let found = |(access, at): (&Option<Access>, u32)| {
            let access = access.as_ref().filter(|access| access.follows_leaves)?;
            let (ranges, axes) = (self.ranges::<AXES_MAX>(at), access.axes.len());
            let row_bytes = len(&ranges[1..axes]) * self.run.group.storages[access.storage as usize].element_bytes;
            let slice = self.slice(access, &ranges[..axes]);
            Some(Found { memory: self.run.read(access, &ranges[..axes], slice, self.memory), ranges, row_bytes })
        };
        let tiles: SmallVec<[Option<Found>; 4]> = self.op.accesses.iter().zip(0..).map(found).collect();
        let driver = tiles[self.op.driver as usize].as_ref().expect("it reads its own tiles");
        let (mut start, last) = driver.ranges[0];
        let rows = self.op.leaf_rows.max(1);
        while start < last {
            let end = (start + rows).min(last);
            each(Batch { leaf: Some(Leaf { tiles: &tiles, start, end }), ..self });
            start = end;
        }
    }

    pub(super) fn run(&self) -> &'a GroupRun {
        self.run
    }

    pub(super) fn accesses(&self) -> &'a [Option<Access>] {
        &self.op.accesses
    }

    /// Returns where a kernel makes the parts of a reduction.
    pub(super) fn parts_at(&self) -> Option<u64> {
        self.op.parts
    }

    /// Returns how many rows a leaf of a reduction has, and how many leaves the batch has.
    pub(super) fn leaves(&self) -> (u64, u64) {
        let [(first, last)] = self.ranges::<1>(self.op.driver);
        (self.op.leaf_rows, (last - first).div_ceil(self.op.leaf_rows))
    }

    /// Calls `each` for all stores that the operation uses.
    #[cfg(debug_assertions)]
    pub(super) fn each_access(&self, mut each: impl FnMut(&GroupRun, &Access, &[Range])) {
        for (access, at) in self.op.accesses.iter().zip(0..) {
            if let Some(access) = access {
                each(self.run, access, &self.ranges::<AXES_MAX>(at)[..access.axes.len()]);
            }
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn batches(&self) -> u64 {
        self.op.batches
    }

    #[inline]
    pub(super) fn access(&self, at: u32) -> &'a Access {
        self.op.accesses[at as usize].as_ref().expect("it is the use of a store")
    }

    /// Returns the elements of a use along its first axes. Axes that it does not have, have none.
    #[inline]
    pub(super) fn ranges<const N: usize>(&self, at: u32) -> [Range; N] {
        let access = self.access(at);
        let point = self.op.point(self.number);
        std::array::from_fn(|axis| access.axes.get(axis).map_or((0, 0), |along| along.elements(&point)))
    }

    pub(super) fn place<const N: usize>(&self, at: u32) -> TilePlace<N> {
        self.place_of(self.ranges(at))
    }

    #[inline]
    fn place_of<const N: usize>(&self, ranges: [Range; N]) -> TilePlace<N> {
        let (start, shape) = (ranges.map(|range| range.0 as usize), ranges.map(|range| (range.1 - range.0) as usize));
        TilePlace { batch: self.number, start, shape }
    }

    /// Returns the shape of the store of a use.
    #[inline]
    fn store_shape<const N: usize>(&self, at: u32) -> [usize; N] {
        let axes = &self.access(at).axes;
        std::array::from_fn(|axis| axes[axis].extent as usize)
    }

    /// Returns where elements begin that are one slice of their store; in bytes.
    #[inline]
    fn slice(&self, access: &Access, ranges: &[Range]) -> Option<u64> {
        match &access.blocks {
            Some(blocks) => Some(blocks.block(self.number)),
            None => self.run.group.storages[access.storage as usize].slice(ranges),
        }
    }

    /// Returns the elements of a use that reads, and where they are.
    #[inline]
    fn find<const N: usize>(&self, at: u32) -> (*const u8, [Range; N]) {
        let access = self.access(at);
        let of_leaf = self.leaf.and_then(|leaf| Some((leaf, leaf.tiles[at as usize].as_ref()?)));
        let Some((leaf, found)) = of_leaf else {
            let ranges = self.ranges(at);
            return (self.run.read(access, &ranges, self.slice(access, &ranges), self.memory), ranges);
        };
        let rows = access.around(leaf.start, leaf.end);
        let offset = (rows.0 - found.ranges[0].0) * found.row_bytes;
        let ranges = std::array::from_fn(|axis| if axis == 0 { rows } else { found.ranges[axis] });
        (found.memory.wrapping_add(offset as usize), ranges)
    }

    /// Returns the tile of a use that reads.
    pub(super) fn tile<T: Element, const N: usize>(&self, at: u32) -> Tile<'a, T, N> {
        let (memory, ranges) = self.find::<N>(at);
        // SAFETY: the use is of a store of `T`, and the memory has the elements of these ranges. No batch
        // that writes one of them runs before this one has ended.
        let elements = unsafe { std::slice::from_raw_parts(memory.cast::<T>(), len(&ranges) as usize) };
        Tile::new(elements, self.place_of(ranges), self.store_shape(at))
    }

    /// Returns the tile of the use that writes. It is called once for each batch.
    pub(super) fn target<T: Element, const N: usize>(&self, at: u32) -> TileMut<'a, T, N> {
        let (access, ranges) = (self.access(at), self.ranges::<N>(at));
        let memory = self.run.write(access, &ranges, self.slice(access, &ranges), self.memory);
        // SAFETY: the use is of a store of `T`, and the memory has the elements of these ranges. No other
        // batch that uses one of them runs before this one has ended; and this one uses the store only here.
        let elements = unsafe { std::slice::from_raw_parts_mut(memory.cast::<T>(), len(&ranges) as usize) };
        match access.copies_from {
            Some(from) => elements.copy_from_slice(self.tile::<T, N>(from).as_slice()),
            None if cfg!(debug_assertions) && !access.is_updated => poison(elements),
            None => {}
        }
        TileMut::new(elements, self.place_of(ranges), self.store_shape(at))
    }

    /// Reads the tile of a use at once.
    pub(super) fn tile_of<T: Element, const N: usize>(&self, at: u32, read: impl FnOnce(Tile<'_, T, N>)) {
        #[cfg(debug_assertions)]
        let _claimed = self.claim();
        read(self.tile(at));
    }

    /// Writes the tile of a use at once.
    pub(super) fn target_of<T: Element, const N: usize>(&self, at: u32, write: impl FnOnce(TileMut<'_, T, N>)) {
        #[cfg(debug_assertions)]
        let _claimed = self.claim();
        write(self.target(at));
        self.publish(at);
    }

    /// Completes what was written: brings it to where it belongs, if it stands elsewhere too.
    pub(super) fn publish(&self, at: u32) {
        let access = self.access(at);
        if !self.run.is_in_place(access) {
            let ranges = self.ranges::<AXES_MAX>(at);
            self.run.publish(access, &ranges[..access.axes.len()], self.memory);
        }
    }

    /// Completes all that the operation writes.
    pub(super) fn publish_all(&self) {
        let is_here = |access: &Access| access.is_written && !self.run.group.storages[access.storage as usize].is_on_device;
        let written = self.op.accesses.iter().zip(0..).filter(|(access, _)| access.as_ref().is_some_and(is_here));
        written.for_each(|(_, at)| self.publish(at));
    }

    pub(super) fn scalar<T: 'static>(&self, index: u32) -> &'a T {
        let made = self.run.state.scalars[index as usize].get().expect("it is made before it is read");
        made.downcast_ref().expect("its type was checked")
    }

    pub(super) fn set_scalar(&self, index: u32, value: Made) {
        let _ = self.run.state.scalars[index as usize].set(value);
    }

    pub(super) fn given<T: 'static>(&self, index: u32) -> &'a T {
        self.run.state.given[index as usize].downcast_ref().expect("its type was checked")
    }

    /// Returns a buffer of so many elements, which an earlier batch kept.
    pub(super) fn buffer<T: Element>(&self, len: usize) -> Vec<T> {
        let kept = lock(&self.run.buffers[self.op.number]).pop();
        let mut buffer: Vec<T> = kept.and_then(|kept| kept.downcast().ok()).map_or_else(Vec::new, |kept| *kept);
        buffer.resize(len, zero());
        buffer
    }

    pub(super) fn keep_buffer<T: Element>(&self, buffer: Vec<T>) {
        let kept: Box<dyn Any + Send> = Box::new(buffer);
        lock(&self.run.buffers[self.op.number]).push(kept);
    }
}

/// Returns the element of zero bytes.
fn zero<T: Element>() -> T {
    // SAFETY: any bytes are a value of an `Element`.
    unsafe { std::mem::zeroed() }
}
