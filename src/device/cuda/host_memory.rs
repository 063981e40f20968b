//! Memory of the host that a GPU accesses: page-locked blocks, pooled by size.

use std::ptr::NonNull;

use super::context::Context;
use super::driver::Driver;
use crate::error::Result;

/// Memory of the host that the device copies from and to, of a power of two bytes.
pub(super) struct HostBlock {
    pub(super) start: NonNull<u8>,
    class: u32,
}

// SAFETY: the block owns plain memory, which any thread may free.
unsafe impl Send for HostBlock {}
// SAFETY: a shared block gives out only its address, and each use of `start` has a contract of its own.
unsafe impl Sync for HostBlock {}

/// The size of the smallest block, a page, as a power of two.
const CLASS_MIN: u32 = 12;
const CLASSES: usize = 64;
/// The most free blocks of a class that are kept.
const KEPT: usize = 16;
/// Every context may use it.
const PORTABLE: u32 = 1;

/// Free blocks of the host's memory, by their power of two.
pub(super) struct HostPool {
    free: [Vec<HostBlock>; CLASSES],
}

impl HostPool {
    pub(super) fn new() -> Self {
        Self { free: std::array::from_fn(|_| Vec::new()) }
    }

    /// Returns a block of at least `bytes`.
    pub(super) fn take(&mut self, context: &Context, bytes: usize) -> Result<HostBlock> {
        let class = bytes.next_power_of_two().trailing_zeros().max(CLASS_MIN);
        if let Some(block) = self.free[class as usize].pop() {
            return Ok(block);
        }
        Ok(HostBlock { start: context.host_alloc(bytes, 1 << class, PORTABLE)?, class })
    }

    /// Takes an unused block back. Returns it if there are enough free blocks.
    pub(super) fn give_back(&mut self, block: HostBlock) -> Option<HostBlock> {
        let free = &mut self.free[block.class as usize];
        if free.len() == KEPT {
            return Some(block);
        }
        free.push(block);
        None
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = HostBlock> + '_ {
        self.free.iter_mut().flat_map(|free| free.drain(..))
    }
}

impl HostBlock {
    /// Frees a block that no work uses.
    pub(super) fn free(self, driver: &Driver) {
        // SAFETY: `self` owns the block, and the caller has seen the end of all work that uses it: the
        // contract of this function.
        unsafe { (driver.host_free)(self.start.as_ptr().cast()) };
    }
}
