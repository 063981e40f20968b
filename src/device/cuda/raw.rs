//! The CUDA stream behind a kernel's stream, for cuBLAS and other libraries that enqueue work on one.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtrMut};

use super::recording::Recording;
use crate::device::{BufferSlice, DeviceStream, Element};
use crate::error::{Error, How, Result};

/// The CUDA stream of a kernel node, as libraries take it; made by [`DeviceStream::raw`].
///
/// Work that is enqueued on it belongs to the node: all readers of the node wait for it. Declare each buffer
/// as read or written before work that uses it is enqueued: that keeps its memory until the work is done.
/// [`view`](RawStream::view) and [`view_mut`](RawStream::view_mut) declare it, and return cudarc's own types,
/// for its safe functions. [`read`](RawStream::read) and [`write`](RawStream::write) return addresses, for
/// unsafe ones. Only work on this stream, and work on views, is ordered with the rest of the graph.
///
/// ```no_run
/// use anabranch::{Buffer, DeviceStream};
///
/// /// Zeroes a buffer by a safe function of cudarc's.
/// fn zero(s: &mut DeviceStream, x: &mut Buffer<f32>) -> Result<(), anabranch::BoxError> {
///     let raw = s.raw().ok_or("this is no CUDA device")?;
///     raw.stream().memset_zeros(&mut raw.view_mut(x)?)?;
///     Ok(())
/// }
/// ```
pub struct RawStream<'a> {
    recording: RefCell<&'a mut Recording>,
    stream: OnceCell<Arc<CudaStream>>,
}

impl DeviceStream {
    /// Returns the CUDA stream behind this one, or None on a host. Its type is of the crate cudarc, version
    /// 0.19.10. The example `cublas` multiplies matrices with it.
    ///
    /// # Examples
    /// ```no_run
    /// use anabranch::{Buffer, DeviceStream, Graph};
    ///
    /// let mut g = Graph::new();
    /// let x = g.try_kernel("x", (), |s: &mut DeviceStream| Ok(s.upload(&[0.0_f32; 64])?));
    /// let y = g.try_kernel("copy", &x, |s: &mut DeviceStream, x: &Buffer<f32>| {
    ///     let mut y = s.alloc::<f32>(x.len())?;
    ///     let raw = s.raw().ok_or("copy runs on CUDA devices only")?;
    ///     raw.stream().memcpy_dtod(&raw.view(x)?, &mut raw.view_mut(&mut y)?)?;
    ///     Ok(y)
    /// });
    /// # g.output("y", &y);
    /// ```
    pub fn raw(&mut self) -> Option<RawStream<'_>> {
        if self.is_host() {
            return None;
        }
        let recording: &mut Recording = self.queue_mut().as_any_mut().downcast_mut()?;
        // Of a stream that was forgotten.
        recording.loans.clear();
        Some(RawStream { recording: RefCell::new(recording), stream: OnceCell::new() })
    }
}

impl RawStream<'_> {
    /// Returns the stream. Its context is current, and all earlier requests of the graph's nodes are enqueued
    /// on it.
    ///
    /// A clone keeps the stream and its context alive, even after the executor is gone.
    ///
    /// # Panics
    /// If the driver refuses cudarc the context at the first call for this stream. Then the node fails.
    pub fn stream(&self) -> &Arc<CudaStream> {
        self.recording.borrow_mut().flush();
        self.stream.get_or_init(|| self.recording.borrow().stream().lend())
    }

    /// Records that the node reads a buffer, and returns its address on the device.
    ///
    /// # Errors
    /// If the buffer is of another device.
    pub fn read<T: Element>(&self, buffer: &BufferSlice<T>) -> Result<u64> {
        let memory = buffer.read_by(false).on_device().ok_or_else(|| self.foreign(buffer))?;
        self.recording.borrow_mut().used(memory, How::Reads)
    }

    /// Records that the node writes a buffer, and returns its address on the device.
    ///
    /// # Errors
    /// As [`RawStream::read`].
    pub fn write<T: Element>(&self, buffer: &mut BufferSlice<T>) -> Result<u64> {
        let Some(memory) = buffer.written_by(false).on_device() else { return Err(self.foreign(buffer)) };
        self.recording.borrow_mut().used(memory, How::Writes)
    }

    /// Records that the node reads a buffer, and returns cudarc's view of it. The view has cudarc's events:
    /// other streams of this context may use it too, and the rest of the graph waits for them.
    ///
    /// A view costs about ten calls of the driver, and [`RawStream::read`] none.
    ///
    /// # Errors
    /// If the buffer is of another device.
    ///
    /// # Panics
    /// As [`RawStream::stream`]; or if the driver makes no event. Then the node fails.
    pub fn view<'r, T: Element>(&'r self, buffer: &'r BufferSlice<T>) -> Result<CudaView<'r, T>> {
        let slice = self.lend(self.read(buffer)?, buffer.len(), How::Reads);
        // SAFETY: `slice` points to a slice that lives until this borrow of `self` is over. Only this view
        // refers to it.
        Ok(unsafe { slice.as_ref() }.as_view())
    }

    /// Records that the node writes a buffer, and returns cudarc's view of it, as [`RawStream::view`] does.
    ///
    /// # Errors
    /// As [`RawStream::view`].
    ///
    /// # Panics
    /// As [`RawStream::view`].
    pub fn view_mut<'r, T: Element>(&'r self, buffer: &'r mut BufferSlice<T>) -> Result<CudaViewMut<'r, T>> {
        let mut slice = self.lend(self.write(buffer)?, buffer.len(), How::Writes);
        // SAFETY: `slice` points to a slice that lives until this borrow of `self` is over. Only this view
        // refers to it.
        Ok(unsafe { slice.as_mut() }.as_view_mut())
    }

    /// Makes cudarc's slice of some memory, which the recording keeps until the borrow of `self` is over.
    fn lend<T: Element>(&self, address: u64, len: usize, how: How) -> NonNull<CudaSlice<T>> {
        let bytes = address..address + (len * size_of::<T>()) as u64;
        // Both the buffer and its views are borrowed by the rules of references. So no view is left of what
        // ends here: an earlier write of the memory, or an earlier use of memory that is to be written.
        self.recording.borrow_mut().loans.retain(|earlier| !earlier.excludes(&bytes, how));
        // SAFETY: the memory has `len` elements, and any bytes are valid elements.
        let mut slice = unsafe { self.stream().upgrade_device_ptr(address, len) };
        // Records an event behind all earlier work of this stream: other streams wait for it first.
        drop(slice.device_ptr_mut(self.stream()).1);
        let slice = NonNull::from(Box::leak(Box::new(slice)));
        self.recording.borrow_mut().loans.push(Loan { bytes, how, _slice: Box::new(Lent(slice)) });
        slice
    }

    fn foreign<T: Element>(&self, buffer: &BufferSlice<T>) -> Error {
        self.recording.borrow().foreign(buffer.device_name())
    }
}

impl Drop for RawStream<'_> {
    /// If this is skipped, the recording ends the loans before its next part.
    fn drop(&mut self) {
        self.recording.get_mut().loans.clear();
    }
}

impl fmt::Debug for RawStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawStream").finish_non_exhaustive()
    }
}

/// Memory that a library got as a slice of cudarc's. At its end, the stream of its node waits for the uses on
/// other streams.
pub(super) struct Loan {
    bytes: Range<u64>,
    how: How,
    _slice: Box<dyn Send>,
}

impl Loan {
    /// Returns true if a later use of some memory must come after this one.
    fn excludes(&self, bytes: &Range<u64>, how: How) -> bool {
        let overlaps = self.bytes.start < bytes.end && bytes.start < self.bytes.end;
        overlaps && (matches!(self.how, How::Writes) || matches!(how, How::Writes))
    }
}

struct Lent<T>(NonNull<CudaSlice<T>>);

// SAFETY: it owns the slice, which is Send.
unsafe impl<T> Send for Lent<T> {}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        // SAFETY: `lend` leaked a box, which this owns; the views of it are gone.
        let slice = unsafe { Box::from_raw(self.0.as_ptr()) };
        // Dropping the slice would free the memory.
        slice.leak();
    }
}
