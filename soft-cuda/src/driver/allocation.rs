//! One piece of memory that the driver gave out: the bytes, a guard behind them, and who has touched them.

use std::alloc::{Layout, alloc, dealloc};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::device::Device;
use super::history::History;
use crate::code::{Code, Outcome};

/// What CUDA aligns allocations to.
const ALIGN: usize = 256;
/// Bytes behind the allocation that nobody may touch.
const GUARD: usize = 64;

const FRESH: u8 = 0xCD;
const FREED: u8 = 0xDD;
const GUARDED: u8 = 0xFD;

/// The bytes. They stay mapped until the last operation that may touch them is done, whoever has freed them
/// meanwhile.
pub(crate) struct Block {
    /// An address and no pointer, because every stream's thread may write there, as on a device.
    start: usize,
    len: usize,
    layout: Layout,
}

impl Block {
    fn new(len: usize) -> Outcome<Self> {
        let padded = len.checked_add(GUARD).ok_or(Code::OUT_OF_MEMORY)?;
        let layout = Layout::from_size_align(padded, ALIGN).map_err(|_| Code::OUT_OF_MEMORY)?;
        // SAFETY: the size is not zero, for there is a guard.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(Code::OUT_OF_MEMORY);
        }
        // SAFETY: the guard is within the layout.
        let guard = unsafe { start.add(len) };
        // SAFETY: the guard is within the layout, and nobody else knows the block yet.
        unsafe { guard.write_bytes(GUARDED, GUARD) };
        Ok(Self { start: start as usize, len, layout })
    }

    /// Returns true if nobody wrote behind the block.
    fn is_guard_whole(&self) -> bool {
        let guard = (self.start + self.len) as *const u8;
        (0..GUARD).all(|at| {
            // SAFETY: within the guard, which `new` allocated and filled.
            let byte = unsafe { guard.wrapping_add(at).read_volatile() };
            byte == GUARDED
        })
    }

    fn fill(&self, byte: u8) {
        // SAFETY: within the block. A stream that still works there races with this one, was reported when it
        // was issued, and finds rubbish, as it would on a device.
        unsafe { (self.start as *mut u8).write_bytes(byte, self.len) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout in `new`, and nobody else holds the block.
        unsafe { dealloc(self.start as *mut u8, self.layout) };
    }
}

/// Where an allocation lives.
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

    /// Fills it with what fresh memory holds.
    pub(crate) fn poison_fresh(&self) {
        self.block.fill(FRESH);
    }

    /// Fills it with what freed memory holds, and returns false if somebody wrote behind it.
    pub(crate) fn poison_freed(&self) -> bool {
        self.block.fill(FREED);
        self.block.is_guard_whole()
    }
}
