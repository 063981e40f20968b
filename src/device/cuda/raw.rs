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
/// unsafe ones. Work on another stream is ordered with the rest of the graph only if it uses views, and its
/// stream was made from `raw.stream().context()`.
///
/// ```no_run
/// use anabranch::{Buffer, DeviceStream};
///
/// /// Zeroes a buffer by a safe function of cudarc.
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
    /// Returns the CUDA stream behind this one, or None on a host. Its type is of the crate cudarc: depend on
    /// `cudarc = "=0.19.10"`, because other versions have other types. The example `cublas` multiplies
    /// matrices with it.
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
    /// If the driver refuses cudarc the context, or one more stream in it, at the first call for this stream.
    /// Then the node fails.
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

    /// Records that the node reads a buffer, and returns cudarc's view of it, for work on this stream.
    ///
    /// The view has events of cudarc, so it is as safe as a slice of cudarc: streams that were made from
    /// `raw.stream().context()` may use it too, and the rest of the graph waits for them. cudarc has one
    /// event for all reads of a slice, which has the last one: if two streams read one view, let the second
    /// wait for the first. Streams of another `CudaContext` are not ordered, even on the same GPU:
    /// synchronize them.
    ///
    /// A view costs several calls of the driver, for its events; [`RawStream::read`] costs none.
    ///
    /// # Errors
    /// If the buffer is of another device, if the driver has refused earlier work of the node, or if an
    /// earlier call of cudarc has left an error.
    ///
    /// # Panics
    /// As [`RawStream::stream`]; or if the driver makes no event. Then the node fails.
    pub fn view<'r, T: Element>(&'r self, buffer: &'r BufferSlice<T>) -> Result<CudaView<'r, T>> {
        let slice = self.share(self.read(buffer)?, buffer.len(), How::Reads)?;
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
        let mut slice = self.share(self.write(buffer)?, buffer.len(), How::Writes)?;
        // SAFETY: `slice` points to a slice that lives until this borrow of `self` is over. Only this view
        // refers to it.
        Ok(unsafe { slice.as_mut() }.as_view_mut())
    }

    /// Makes a slice of cudarc of some memory. The recording keeps it until the borrow of `self` is over.
    fn share<T: Element>(&self, address: u64, len: usize, how: How) -> Result<NonNull<CudaSlice<T>>> {
        let (stream, bytes) = (self.stream(), address..address + (len * size_of::<T>()) as u64);
        let mut recording = self.recording.borrow_mut();
        if let Some((_, error)) = &recording.refused {
            return Err(error.clone());
        }
        // Both the buffer and its views are borrowed by the rules of references. So no view is left of what
        // ends here: an earlier write of the memory, or an earlier use of memory that is to be written.
        recording.loans.retain(|earlier| !earlier.excludes(&bytes, how));
        // cudarc skips its next call, which may be a wait, if an earlier one has left an error.
        stream.context().check_err().or_else(|error| recording.device.context.check(error.0 as u32))?;
        // SAFETY: the memory has `len` elements, and any bytes are valid elements.
        let slice = unsafe { stream.upgrade_device_ptr(address, len) };
        let mut slice = NonNull::from(Box::leak(Box::new(slice)));
        recording.loans.push(Loan { bytes, how, _slice: Box::new(Shared(slice)) });
        // SAFETY: the slice lives as long as its loan, and no view refers to it yet.
        let unseen = unsafe { slice.as_mut() };
        // Records an event behind all earlier work of this stream: other streams wait for it first.
        drop(unseen.device_ptr_mut(stream).1);
        Ok(slice)
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

/// Memory that a library has as a slice of cudarc. At its end, the stream of its node waits for the uses on
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

/// A slice of cudarc over memory of a buffer.
struct Shared<T>(NonNull<CudaSlice<T>>);

// SAFETY: it owns the slice, which is Send.
unsafe impl<T> Send for Shared<T> {}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: `share` leaked a box, which this owns; the views of it are gone.
        let slice = unsafe { Box::from_raw(self.0.as_ptr()) };
        let context = slice.stream().context().clone();
        let earlier = context.check_err();
        // Lets the stream wait for the events of the slice. Dropping the slice would free the memory.
        slice.leak();
        let errors = [earlier, context.check_err()];
        if errors.iter().any(Result::is_err) {
            // A wait may have been skipped.
            let _ = context.synchronize();
        }
        errors.into_iter().for_each(|error| context.record_err(error));
    }
}
