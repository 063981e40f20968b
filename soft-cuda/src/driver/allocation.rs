//! One block of memory that the driver has allocated: its bytes, a guard behind them, and the accesses to it.

use std::alloc::{Layout, alloc, dealloc};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::device::Device;
use super::history::History;
use crate::code::{Code, Outcome};

/// The alignment of allocations in CUDA.
const ALIGN: usize = 256;
/// The number of bytes behind the allocation that no code may access.
const GUARD: usize = 64;

const FRESH: u8 = 0xCD;
const FREED: u8 = 0xDD;
const GUARDED: u8 = 0xFD;

/// The bytes. They stay mapped until the last operation that may access them has ended, even if they were
/// freed before.
pub(crate) struct Block {
    /// An address and no pointer, because the thread of any stream may write there, as on a device.
    start: usize,
    len: usize,
    layout: Layout,
}

impl Block {
    fn new(len: usize) -> Outcome<Self> {
        let padded = len.checked_add(GUARD).ok_or(Code::OUT_OF_MEMORY)?;
        let layout = Layout::from_size_align(padded, ALIGN).map_err(|_| Code::OUT_OF_MEMORY)?;
        // SAFETY: the guard makes the size greater than zero.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(Code::OUT_OF_MEMORY);
        }
        // SAFETY: the guard is within the layout.
        let guard = unsafe { start.add(len) };
        // SAFETY: the guard is within the layout, and the block is not shared yet.
        unsafe { guard.write_bytes(GUARDED, GUARD) };
        Ok(Self { start: start as usize, len, layout })
    }

    /// Returns true if no code wrote behind the block.
    fn is_guard_whole(&self) -> bool {
        let guard = (self.start + self.len) as *const u8;
        (0..GUARD).all(|at| {
            // SAFETY: the byte is within the guard, which `new` allocated and filled.
            let byte = unsafe { guard.wrapping_add(at).read_volatile() };
            byte == GUARDED
        })
    }

    fn fill(&self, byte: u8) {
        // SAFETY: the bytes are within the block. A stream that still works there races with this write. The
        // race was reported at issue, and the stream reads garbage, as on a device.
        unsafe { (self.start as *mut u8).write_bytes(byte, self.len) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout, and no other code has the block.
        unsafe { dealloc(self.start as *mut u8, self.layout) };
    }
}

/// The kind of memory that holds an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residence {
    Device,
    Pinned,
}

/// An allocation, live or freed.
pub(crate) struct Allocation {
    pub(crate) device: &'static Device,
    pub(crate) residence: Residence,
    pub(crate) history: Mutex<History>,
    block: Arc<Block>,
}

impl Allocation {
    pub(crate) fn new(device: &'static Device, residence: Residence, len: usize) -> Outcome<Self> {
        let block = Arc::new(Block::new(len)?);
        Ok(Self { device, residence, history: Mutex::new(History::default()), block })
    }

    pub(crate) fn start(&self) -> usize {
        self.block.start
    }

    pub(crate) fn len(&self) -> usize {
        self.block.len
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.block.start..self.block.start + self.block.len
    }

    /// Fills it with the pattern of fresh memory.
    pub(crate) fn poison_fresh(&self) {
        self.block.fill(FRESH);
    }

    /// Fills it with the pattern of freed memory. Returns false if some code wrote behind it.
    pub(crate) fn poison_freed(&self) -> bool {
        self.block.fill(FREED);
        self.block.is_guard_whole()
    }
}
