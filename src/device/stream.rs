//! A stream of the device that runs the graph, whichever that is. A kernel that uses it works on all of them:
//! a GPU queues launches and copies, and a host executes them at once.

use std::fmt;

use super::buffer::{Buffer, Element, HostBuffer};
use super::code::Launch;
use super::kernel::{Kernel, Params};
use super::queue::Queue;
use super::slice::{BufferSlice, Place};
use crate::error::{Error, Kind, Result};

/// A stream of the device that runs the graph, given to a kernel node.
///
/// Work is done in the stream's order. A GPU queues it: the kernel returns before its work is done, and nodes
/// of the same device that read its buffers are called before that, too; nodes of the host start when it is
/// done. A kernel must not wait for other work of the device: nodes without a host node between them are
/// submitted together, when the bodies of all of them have returned. The host device and the simulated device
/// do work at once.
///
/// # Examples
/// ```
/// use anabranch::device::{In, Kernel, Launch, Out};
/// use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, inputs};
///
/// const SOURCE: &str = r#"extern "C" __global__ void twice(const float* x, float* y, unsigned n) {
///     unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
///     if (i < n) y[i] = 2.0f * x[i];
/// }"#;
/// // SAFETY: these are its parameters. A thread reads x[i] and writes y[i]; both are below n, their length.
/// let twice = unsafe { Kernel::<(In<f32>, Out<f32>, u32)>::cuda_c("twice", SOURCE) }
///     .twin(|_, (x, y, n)| (0..n as usize).for_each(|i| y[i] = 2.0 * x[i]));
///
/// let mut g = Graph::new();
/// let x = g.input::<Vec<f32>>("x");
/// let y = g.try_kernel("double", &x, move |s: &mut DeviceStream, x: &Vec<f32>| {
///     let x = s.upload(x)?;
///     let mut y = s.alloc::<f32>(x.len())?;
///     s.launch(&twice, Launch::for_len(x.len()), (&x, &mut y, x.len() as u32))?;
///     Ok(y)
/// });
/// let y = g.try_kernel("fetch", &y, |s: &mut DeviceStream, y: &Buffer<f32>| Ok(s.download(y)?));
/// let sum = g.task("sum", &y, |y: &HostBuffer<f32>| y.iter().sum::<f32>());
/// g.output("sum", &sum);
///
/// let exec = Executor::inline(); // or Executor::cuda(0)?
/// let run = exec.run(&g.compile()?, inputs! { "x" => vec![1.0_f32, 2.0, 3.0] });
/// assert_eq!(*futures::executor::block_on(run)?.take::<f32>("sum")?, 12.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct DeviceStream(Option<Box<dyn Queue>>);

impl DeviceStream {
    /// Returns a stream of a host, which does work at once.
    pub(super) fn host() -> Self {
        Self(None)
    }

    /// Returns a stream of a device that queues work.
    #[cfg(any(feature = "cuda", test))]
    pub(crate) fn queue(queue: Box<dyn Queue>) -> Self {
        Self(Some(queue))
    }

    /// Returns the recording of a device that queues work. A stream of a host has none.
    pub(crate) fn queue_mut(&mut self) -> &mut (dyn Queue + 'static) {
        self.0.as_deref_mut().expect("a device that queues work made the stream")
    }

    /// Returns true if the host does the work at once.
    pub fn is_host(&self) -> bool {
        self.0.is_none()
    }

    /// Allocates a buffer of `len` elements on the device, in the stream's order. Its contents are not
    /// specified.
    ///
    /// # Errors
    /// If the device does not have that much memory; the error says how much was requested.
    pub fn alloc<T: Element>(&mut self, len: usize) -> Result<Buffer<T>> {
        let bytes = size_of::<T>().checked_mul(len).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| Kind::OutOfMemory { bytes: usize::MAX, device: self.device_name() }.into())?;
        match &mut self.0 {
            None => Buffer::on_host(len).ok_or_else(|| Kind::OutOfMemory { bytes, device: self.device_name() }.into()),
            Some(queue) => Ok(Buffer::on_device(queue.alloc(bytes)?, len)),
        }
    }

    /// Copies `elements` into a new buffer on the device. They are copied before this returns, and may change
    /// afterwards.
    ///
    /// # Errors
    /// As [`DeviceStream::alloc`].
    pub fn upload<T: Element>(&mut self, elements: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(elements.len())?;
        self.upload_to(elements, &mut buffer)?;
        Ok(buffer)
    }

    /// Copies `elements` into `to`, which must be of the same length. They are copied before this returns,
    /// and may change afterwards.
    ///
    /// # Errors
    /// If the lengths differ, or the buffer is of another device.
    pub fn upload_to<T: Element>(&mut self, elements: &[T], to: &mut BufferSlice<T>) -> Result<()> {
        if elements.len() != to.len() {
            let (got, wanted) = (to.len(), elements.len());
            return Err(Kind::BufferLength { what: "the target of an upload", got, wanted }.into());
        }
        let is_host = self.is_host();
        match (&mut self.0, to.written_by(is_host)) {
            (Some(queue), Place::Device(memory)) => queue.upload(bytes_of(elements), memory),
            (None, Place::Host(to)) => {
                to.copy_from_slice(elements);
                Ok(())
            }
            _ => Err(self.foreign(to)),
        }
    }

    /// Copies a buffer into the host's memory. Nodes that read it start when the copy is done.
    ///
    /// # Errors
    /// As [`DeviceStream::alloc`], for memory of the host that the device can reach; or the buffer is of
    /// another device.
    pub fn download<T: Element>(&mut self, buffer: &BufferSlice<T>) -> Result<HostBuffer<T>> {
        let is_host = self.is_host();
        match (&mut self.0, buffer.read_by(is_host)) {
            (None, Place::Host(elements)) => HostBuffer::copy_of(elements)
                .ok_or_else(|| Kind::OutOfMemory { bytes: buffer.size_bytes(), device: self.device_name() }.into()),
            (Some(queue), Place::Device(memory)) => Ok(HostBuffer::of(queue.download(memory)?, buffer.len())),
            _ => Err(self.foreign(buffer)),
        }
    }

    /// Copies a buffer of any device, including this one, into a new buffer on this one.
    ///
    /// # Errors
    /// As [`DeviceStream::alloc`]; or one of the two is on the host: upload or download it there.
    pub fn fetch<T: Element>(&mut self, buffer: &BufferSlice<T>) -> Result<Buffer<T>> {
        let is_host = self.is_host();
        match (&mut self.0, buffer.read_by(is_host)) {
            (None, Place::Host(elements)) => self.upload(elements),
            (Some(queue), Place::Device(memory)) => Ok(Buffer::on_device(queue.fetch(memory)?, buffer.len())),
            _ => Err(self.foreign(buffer)),
        }
    }

    /// Copies `from` into `to`, which must be of the same length.
    ///
    /// # Errors
    /// If the lengths differ, or a buffer is of another device.
    pub fn copy<T: Element>(&mut self, from: &BufferSlice<T>, to: &mut BufferSlice<T>) -> Result<()> {
        if from.len() != to.len() {
            return Err(Kind::BufferLength { what: "the target of a copy", got: to.len(), wanted: from.len() }.into());
        }
        let is_host = self.is_host();
        match (&mut self.0, from.read_by(is_host), to.written_by(is_host)) {
            (None, Place::Host(from), Place::Host(to)) => to.copy_from_slice(from),
            (Some(queue), Place::Device(from), Place::Device(to)) => queue.copy(from, to)?,
            (None, Place::Host(_), _) | (Some(_), Place::Device(_), _) => return Err(self.foreign(to)),
            _ => return Err(self.foreign(from)),
        }
        Ok(())
    }

    /// Sets every element to `value`.
    ///
    /// # Errors
    /// If the buffer is of another device.
    pub fn fill<T: Element>(&mut self, buffer: &mut BufferSlice<T>, value: T) -> Result<()> {
        let is_host = self.is_host();
        match (&mut self.0, buffer.written_by(is_host)) {
            (None, Place::Host(elements)) => elements.fill(value),
            (Some(queue), Place::Device(memory)) => queue.fill(bytes_of(&[value]), memory)?,
            _ => return Err(self.foreign(buffer)),
        }
        Ok(())
    }

    /// Launches a kernel: on a GPU its CUDA code, on a host its twin.
    ///
    /// # Errors
    /// If the kernel has no code for this device, its code does not compile, a buffer is of another device,
    /// or the launch has no thread.
    pub fn launch<P: Params>(&mut self, kernel: &Kernel<P>, launch: Launch, args: P::Args<'_>) -> Result<()> {
        if launch.grid.contains(&0) || launch.block.contains(&0) {
            return Err(Kind::NoThreads { kernel: kernel.name().into(), grid: launch.grid, block: launch.block }.into());
        }
        match &mut self.0 {
            None => kernel.run_twin(&launch, args),
            Some(queue) => P::device(args, |args| queue.launch(kernel.code(), &launch, args)),
        }
    }

    fn foreign<T: Element>(&self, buffer: &BufferSlice<T>) -> Error {
        Kind::ForeignBuffer { buffer: buffer.device_name(), stream: self.device_name() }.into()
    }

    fn device_name(&self) -> String {
        self.0.as_ref().map_or_else(|| "the host device".into(), |queue| queue.device_name())
    }
}

fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: elements have no padding (`Element`), so all of their bytes are initialised.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

impl fmt::Debug for DeviceStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeviceStream").field(&self.device_name()).finish()
    }
}
