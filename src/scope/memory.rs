//! Where the elements of stores are. A store is whole, or a ring of tiles: batch b has place b modulo their
//! number.
//!
//! Tiles of whole rows lie one behind the other. So a tile and its halo are one slice, but for the end of the
//! ring. There the rows that a halo could need stand twice:
//!
//! ```text
//!  │ last rows of the last tile │ tile 0 │ tile 1 │ … │ tile n - 1 │ first rows of tile 0 │
//!       for the halo of tile 0                             for that of tile n - 1
//! ```
//! The batch that writes such rows writes them twice ([`Storage::copies`]). All other tiles are blocks, each
//! of its own. Elements that are no slice are gathered.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::convert::Infallible;
use std::ptr::NonNull;

use super::AXES_MAX;
use crate::device::Element;

/// A block of zeroed memory, aligned for any element.
pub(super) struct Block {
    base: NonNull<u8>,
    bytes: usize,
    /// Where it was allocated, and how.
    allocated: (NonNull<u8>, Layout),
}

// SAFETY: a block is plain memory.
unsafe impl Send for Block {}
// SAFETY: a shared block gives out addresses only.
unsafe impl Sync for Block {}

/// The alignment of blocks, and of all that is laid out in them: a line of the cache.
pub(super) const ALIGN: u64 = 64;
/// A line of the cache.
#[repr(align(64))]
struct Line;

const _: () = assert!(align_of::<Line>() as u64 == ALIGN);

/// The most bytes of a store, and of a scope: more than can be addressed.
pub(super) const BYTES_MAX: u64 = 1 << 47;

/// Returns so many bytes and the rest of a line.
pub(super) fn aligned(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)
}

/// Memory of this alignment is zeroed by the system when it is touched: the rest costs nothing.
const LAZY_ALIGN: usize = 16;

impl Block {
    /// Returns a block; None if there is not so much memory.
    pub(super) fn new(bytes: u64, align: u64) -> Option<Self> {
        let (bytes, align) = (usize::try_from(bytes).ok()?, align as usize);
        let more = align.saturating_sub(LAZY_ALIGN);
        let layout = Layout::from_size_align(bytes.checked_add(more)?, align.min(LAZY_ALIGN)).ok()?;
        if bytes == 0 {
            let base = NonNull::<Line>::dangling().cast();
            return Some(Self { base, bytes, allocated: (base, Layout::new::<()>()) });
        }
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: there are so many bytes more.
        let base = unsafe { start.add(start.align_offset(align)) };
        Some(Self { base, bytes, allocated: (start, layout) })
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns a copy of the elements of a block that was made for them. No thread writes them.
    pub(super) fn to_vec<T: Element>(&self) -> Vec<T> {
        let len = self.bytes / size_of::<T>();
        // SAFETY: the block is initialised, aligned for the elements, and any bytes are elements.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast::<T>(), len) }.to_vec()
    }

    /// Returns the elements of a block that was made for them: with their alignment.
    pub(super) fn into_vec<T: Element>(self) -> Vec<T> {
        let (len, layout) = (self.bytes / size_of::<T>(), self.allocated.1);
        if len == 0 || Layout::array::<T>(len) != Ok(layout) {
            return self.to_vec();
        }
        let base = std::mem::ManuallyDrop::new(self).base.as_ptr();
        // SAFETY: the block was allocated as a vector allocates so many elements; any bytes are elements.
        unsafe { Vec::from_raw_parts(base.cast(), len, len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let (start, layout) = self.allocated;
        if layout.size() > 0 {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }
}

/// The elements of a tile along each axis: the first, and one behind the last.
pub(super) type Range = (u64, u64);

/// Returns the number of elements of a tile.
#[inline]
pub(super) fn len(ranges: &[Range]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).product()
}

/// Where the elements of a store are.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    /// Where its first byte is in the memory of its group; or none, and it has memory of its own.
    pub(super) at: Option<u64>,
    /// How many bytes it is further in each memory of tiles, if a batch may have any of them.
    pub(super) apart: u64,
    /// The store.
    pub(super) store: u32,
    pub(super) is_on_device: bool,
    pub(super) extents: Vec<u64>,
    pub(super) element_bytes: u64,
    pub(super) form: Form,
}

#[derive(Clone, Debug)]
pub(super) enum Form {
    Whole,
    /// A ring of tiles of so many rows, with rows that stand twice before and behind.
    Rows {
        tile: u64,
        ring: u64,
        before: u64,
        behind: u64,
    },
    /// A ring of blocks, each a tile of this shape.
    Blocks {
        tile: Vec<u64>,
        ring: Ring,
    },
}

/// A ring of blocks, each so many bytes behind the one before. Block b has place `b + shift` there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) blocks: u64,
    pub(super) stride: u64,
    pub(super) shift: u64,
}

impl Ring {
    /// Returns where a block begins; in bytes.
    #[inline]
    pub(super) fn block(&self, number: u64) -> u64 {
        if self.blocks == 1 { 0 } else { (number + self.shift) % self.blocks * self.stride }
    }
}

impl Storage {
    /// Returns the number of elements of a row.
    fn width(&self) -> u64 {
        self.extents[1..].iter().product()
    }

    /// Returns the bytes that it takes in the memory of its group.
    pub(super) fn bytes(&self) -> u64 {
        match &self.form {
            Form::Whole => self.extents.iter().product::<u64>().saturating_mul(self.element_bytes),
            Form::Rows { tile, ring, before, behind } => {
                let rows = ring.saturating_mul(*tile).saturating_add(before + behind);
                rows.saturating_mul(self.width()).saturating_mul(self.element_bytes)
            }
            Form::Blocks { ring, .. } => ring.blocks.saturating_mul(ring.stride),
        }
    }

    /// Returns where elements begin that are one slice; in bytes from its first.
    pub(super) fn slice(&self, ranges: &[Range]) -> Option<u64> {
        if ranges.iter().any(|(start, end)| start == end) {
            return Some(0);
        }
        match &self.form {
            Form::Whole => is_slice(ranges, &self.extents).then(|| self.position(ranges).0),
            &Form::Rows { tile, ring, before, behind } => {
                let is_of_rows = ranges[1..].iter().zip(&self.extents[1..]).all(|(&range, &extent)| range == (0, extent));
                let (start, end) = ranges[0];
                let first = start / tile;
                let at = before + first % ring * tile + (start - first * tile);
                // Or the copies before the ring, if it is the end of the last tile.
                let next_ring = (first / ring + 1) * ring * tile;
                let copy = before.checked_sub(next_ring - start);
                let fits = |at: u64| at + (end - start) <= before + ring * tile + behind;
                let row = Some(at).filter(|&at| fits(at)).or(copy.filter(|&at| fits(at)))?;
                is_of_rows.then(|| row * self.width() * self.element_bytes)
            }
            Form::Blocks { tile, .. } => {
                let is_in_one = ranges.iter().zip(tile).all(|((start, end), tile)| start / tile == (end - 1) / tile);
                let mut is_long = false;
                // Of each axis behind one with several elements it has all of the block.
                let is_slice = is_in_one
                    && ranges.iter().zip(self.block_shape(ranges)).all(|((start, end), shape)| {
                        let is_whole = end - start == shape;
                        let fits = is_whole || !is_long;
                        is_long |= end - start > 1;
                        fits
                    });
                is_slice.then(|| self.position(ranges).0)
            }
        }
    }

    /// Returns the shape of the block that has the first elements of these ranges.
    fn block_shape<'s>(&'s self, ranges: &'s [Range]) -> impl Iterator<Item = u64> + 's {
        let Form::Blocks { tile, .. } = &self.form else { unreachable!("only blocks have a shape") };
        let pairs = ranges.iter().zip(tile).zip(&self.extents);
        pairs.map(|(((start, _), &tile), &extent)| tile.min(extent - start / tile * tile))
    }

    /// Returns where the first of these elements is, in bytes, and how many elements of its row follow each
    /// other from there.
    fn position(&self, ranges: &[Range]) -> (u64, u64) {
        let last = ranges.len() - 1;
        let along = |shape: u64, at: u64, offset: u64| offset * shape + at;
        match &self.form {
            Form::Whole => {
                let offset = ranges.iter().zip(&self.extents).fold(0, |offset, (&(at, _), &extent)| along(extent, at, offset));
                (offset * self.element_bytes, self.extents[last] - ranges[last].0)
            }
            &Form::Rows { tile, ring, before, .. } => {
                let row = before + ranges[0].0 / tile % ring * tile + ranges[0].0 % tile;
                let rest = ranges[1..].iter().zip(&self.extents[1..]);
                let offset = rest.fold(row, |offset, (&(at, _), &extent)| along(extent, at, offset));
                let run = if last == 0 { tile - ranges[0].0 % tile } else { self.extents[last] - ranges[last].0 };
                (offset * self.element_bytes, run)
            }
            Form::Blocks { tile, ring } => {
                let (mut block, mut offset, mut run) = (0, 0, 0);
                for (axis, shape) in self.block_shape(ranges).enumerate() {
                    let (at, tile) = (ranges[axis].0, tile[axis]);
                    block = along(self.extents[axis].div_ceil(tile).max(1), at / tile, block);
                    offset = along(shape, at % tile, offset);
                    run = shape - at % tile;
                }
                (ring.block(block) + offset * self.element_bytes, run)
            }
        }
    }

    /// Calls `each` for all pieces of these elements that follow each other: where a piece is, where it goes
    /// in a slice of them all, and its length; in bytes.
    pub(super) fn pieces(&self, ranges: &[Range], mut each: impl FnMut(u64, u64, u64)) {
        let Ok(()) = self.try_pieces(ranges, |from, to, bytes| {
            each(from, to, bytes);
            Ok::<(), Infallible>(())
        });
    }

    /// Does so until the first error of `each`, which it returns.
    pub(super) fn try_pieces<E>(&self, ranges: &[Range], mut each: impl FnMut(u64, u64, u64) -> Result<(), E>) -> Result<(), E> {
        let last = ranges.len() - 1;
        let (mut at, mut done) = ([(0, 1); AXES_MAX], 0);
        let at = &mut at[..=last];
        at.copy_from_slice(ranges);
        if len(ranges) == 0 {
            return Ok(());
        }
        loop {
            at[last].0 = ranges[last].0;
            while at[last].0 < ranges[last].1 {
                let (from, run) = self.position(at);
                let count = run.min(ranges[last].1 - at[last].0);
                each(from, done, count * self.element_bytes)?;
                done += count * self.element_bytes;
                at[last].0 += count;
            }
            // The next row: the last of the other axes that has one.
            let Some(axis) = (0..last).rev().find(|&axis| at[axis].0 + 1 < ranges[axis].1) else { return Ok(()) };
            at[axis].0 += 1;
            (axis + 1..last).for_each(|axis| at[axis].0 = ranges[axis].0);
        }
    }

    /// Returns whether some of its rows stand twice.
    pub(super) fn has_copies(&self) -> bool {
        matches!(self.form, Form::Rows { before, behind, .. } if before + behind > 0)
    }

    /// Returns what of a tile stands twice: from where, to where and how many bytes.
    pub(super) fn copies(&self, ranges: &[Range]) -> [Option<(u64, u64, u64)>; 2] {
        let &Form::Rows { tile, ring, before, behind } = &self.form else { return [None; 2] };
        let (start, end) = ranges[0];
        let row = self.width() * self.element_bytes;
        let (place, rows) = (start / tile % ring, end - start);
        // A short tile is the last one: no halo comes behind it.
        let is_last = place == ring - 1 && before > 0 && rows == tile;
        let ahead = is_last.then(|| (before + ring * tile - before, 0, before));
        let first = behind.min(rows);
        let back = (place == 0 && first > 0).then_some((before, before + ring * tile, first));
        [ahead, back].map(|copy| copy.map(|(from, to, rows)| (from * row, to * row, rows * row)))
    }
}

/// Returns whether a box of an array is one slice of it.
fn is_slice(ranges: &[Range], extents: &[u64]) -> bool {
    let is_long = |(start, end): &Range| end - start > 1;
    let first = ranges.iter().position(is_long).unwrap_or(ranges.len());
    ranges.iter().zip(extents).skip(first + 1).all(|(&range, &extent)| range == (0, extent))
}
