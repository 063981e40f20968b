//! Memory of the device that a scope uses.

use crate::device::{Buffer, BufferView, BufferViewMut, DeviceStream, Element};
use crate::error::Result;

/// A block of the device's memory. It lives until all steps of its group have ended.
pub(super) struct DeviceMemory(Buffer<Line>);

/// A line of a host's cache: so memory is aligned for any element, on hosts too.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([u64; 8]);

// SAFETY: it has no padding, and any bytes are a value of it.
unsafe impl Element for Line {}

impl DeviceMemory {
    /// # Errors
    /// If the device has not so much memory.
    pub(super) fn new(s: &mut DeviceStream, bytes: u64) -> Result<Self> {
        let lines = usize::try_from(bytes).map_or(usize::MAX, |bytes| bytes.div_ceil(size_of::<Line>()));
        Ok(Self(s.alloc(lines)?))
    }

    /// Returns elements that are read, from a byte on.
    ///
    /// # Safety
    /// The memory has them. No batch that may run before this one has ended writes them.
    pub(super) unsafe fn read<T: Element>(&self, at: u64, len: usize) -> BufferView<'_, T> {
        // SAFETY: the caller promises it; all that is laid out in lines is aligned.
        unsafe { self.0.view(at as usize, len) }
    }

    /// Returns elements that are written, from a byte on.
    ///
    /// # Safety
    /// The memory has them. No other batch that may run before this one has ended uses them.
    pub(super) unsafe fn write<T: Element>(&self, at: u64, len: usize) -> BufferViewMut<'_, T> {
        // SAFETY: the caller promises it; all that is laid out in lines is aligned.
        unsafe { self.0.view_mut(at as usize, len) }
    }
}
