//! The CUDA stream behind a kernel's stream, for cuBLAS and other libraries that enqueue work on one.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::recording::Recording;
use crate::device::{BufferSlice, DeviceStream, Element};
use crate::error::{How, Result};

/// The CUDA stream of a kernel node, as libraries take it; made by [`DeviceStream::raw`].
///
/// Work that is enqueued on it belongs to the node: all readers of the node wait for it. Declare each buffer
/// as read or written before work that uses it is enqueued: that keeps its memory until the work is done.
/// Only this stream is ordered with the rest of the graph; work on other streams is not.
pub struct RawStream<'a> {
    recording: &'a mut Recording,
    stream: Option<Arc<CudaStream>>,
}

impl DeviceStream {
    /// Returns the CUDA stream behind this one, or None on a host. Its type is of the crate cudarc, version
    /// 0.19.10. The example `cublas` multiplies matrices with it.
    ///
    /// # Examples
    /// ```no_run
    /// use anabranch::{Buffer, DeviceStream, Graph};
    ///
    /// # fn sgemm(stream: &std::sync::Arc<cudarc::driver::CudaStream>, x: u64, y: u64) {}
    /// let mut g = Graph::new();
    /// let x = g.try_kernel("x", (), |s: &mut DeviceStream| Ok(s.upload(&[0.0_f32; 64])?));
    /// let y = g.try_kernel("square", &x, |s: &mut DeviceStream, x: &Buffer<f32>| {
    ///     let mut y = s.alloc::<f32>(x.len())?;
    ///     let mut raw = s.raw().ok_or("square runs on CUDA devices only")?;
    ///     let (x, y_address) = (raw.read(x)?, raw.write(&mut y)?);
    ///     sgemm(raw.stream(), x, y_address);
    ///     Ok(y)
    /// });
    /// # g.output("y", &y);
    /// ```
    pub fn raw(&mut self) -> Option<RawStream<'_>> {
        if self.is_host() {
            return None;
        }
        let recording = self.queue_mut().as_any_mut().downcast_mut()?;
        Some(RawStream { recording, stream: None })
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
    pub fn stream(&mut self) -> &Arc<CudaStream> {
        self.recording.flush();
        self.stream.get_or_insert_with(|| self.recording.stream().lend())
    }

    /// Records that the node reads a buffer, and returns its address on the device.
    ///
    /// # Errors
    /// If the buffer is of another device.
    pub fn read<T: Element>(&mut self, buffer: &BufferSlice<T>) -> Result<u64> {
        let memory = buffer.read_by(false).on_device().ok_or_else(|| self.recording.foreign(buffer.device_name()))?;
        self.recording.used(memory, How::Reads)
    }

    /// Records that the node writes a buffer, and returns its address on the device.
    ///
    /// # Errors
    /// As [`RawStream::read`].
    pub fn write<T: Element>(&mut self, buffer: &mut BufferSlice<T>) -> Result<u64> {
        let Some(memory) = buffer.written_by(false).on_device() else {
            return Err(self.recording.foreign(buffer.device_name()));
        };
        self.recording.used(memory, How::Writes)
    }
}

impl fmt::Debug for RawStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawStream").finish_non_exhaustive()
    }
}
