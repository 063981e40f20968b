//! Memory of a simulated device: the host's memory, with a shadow. It is poisoned when it is freed.

use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::POISON;
use super::here::touch;
use super::shadow::Shadow;
use crate::device::queue::Memory;
use crate::error::How;

pub(super) struct Block {
    first: NonNull<u8>,
    layout: Layout,
    shadow: Arc<Shadow>,
}

// SAFETY: the block owns plain bytes. The borrows of the buffers that refer to it order all uses of them.
unsafe impl Send for Block {}
// SAFETY: a shared block gives out only its address. The borrows of the buffers that refer to it order all
// uses of the bytes.
unsafe impl Sync for Block {}

impl Block {
    /// Returns a section of all bytes of a new block, which are `0xCD`, or None if there is not that much
    /// memory.
    pub(super) fn allocate(bytes: usize, align: usize, shadow: Arc<Shadow>) -> Option<Box<dyn Memory>> {
        let layout = Layout::from_size_align(bytes.max(1), align).ok()?;
        // SAFETY: the layout has at least one byte.
        let first = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: the memory was allocated above with this size.
        unsafe { first.write_bytes(0xCD, layout.size()) };
        Some(Box::new(Section { block: Arc::new(Self { first, layout, shadow }), bytes: 0..bytes }))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block owns the memory, and no buffer refers to it any more.
        unsafe { self.first.write_bytes(POISON, self.layout.size()) };
        // SAFETY: `allocate` allocated the memory with this layout.
        unsafe { dealloc(self.first.as_ptr(), self.layout) };
    }
}

/// Some bytes of a block.
struct Section {
    block: Arc<Block>,
    bytes: Range<usize>,
}

impl Memory for Section {
    fn device_name(&self) -> String {
        "the host device".into()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn part(&self, bytes: Range<usize>) -> Box<dyn Memory> {
        assert!(bytes.end <= self.bytes.len(), "a part is in its memory");
        let start = self.bytes.start + bytes.start;
        Box::new(Self { block: self.block.clone(), bytes: start..start + bytes.len() })
    }

    fn on_host(&self, how: How) -> Option<NonNull<u8>> {
        touch(&self.block.shadow, self.bytes.clone(), how);
        // SAFETY: the bytes of a section are within its block.
        Some(unsafe { self.block.first.add(self.bytes.start) })
    }
}
