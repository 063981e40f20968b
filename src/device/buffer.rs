//! Typed memory that kernels work on: on the device, and on the host for copies from the device.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
#[cfg(feature = "dlpack")]
use std::ptr::with_exposed_provenance_mut;

#[cfg(feature = "dlpack")]
use super::queue::Export;
use super::queue::{HostMemory, Memory};
use super::sanitize::allocate;
use super::slice::{BufferSlice, Place, Span};
#[cfg(feature = "dlpack")]
use crate::error::Kind;

/// A number that buffers can hold.
///
/// # Safety
/// The type has no padding, and any bytes are a value of it.
///
/// ```
/// use anabranch::device::Element;
///
/// /// A point of a picture.
/// #[derive(Clone, Copy, Debug)]
/// #[repr(C)]
/// struct Point {
///     x: f32,
///     y: f32,
/// }
///
/// // SAFETY: two numbers of the same size have no padding, and any bytes are a point.
/// unsafe impl Element for Point {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a buffer or a store",
    label = "elements are numbers, or plain types of your own for which you write `unsafe impl Element`"
)]
pub unsafe trait Element: Copy + Send + Sync + fmt::Debug + 'static {}

macro_rules! elements {
    ($($number:ty),*) => { $(
        // SAFETY: a primitive number.
        unsafe impl Element for $number {}
    )* };
}

elements!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// Memory on the device that runs the graph: `len` consecutive elements of `T`. It dereferences to a
/// [`BufferSlice`], as a vector does to a slice.
///
/// A kernel makes it, through [`DeviceStream`](crate::DeviceStream), and passes it along the graph's edges. A
/// host node can pass it on but cannot read it. After it is dropped, its memory is freed when the work that
/// uses it is done.
///
/// ```
/// use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Inputs};
///
/// let mut g = Graph::new();
/// let x = g.try_kernel("x", (), |s: &mut DeviceStream| Ok(s.upload(&[1.0_f32, 2.0])?));
/// let twice = g.try_kernel("twice", &x, |s: &mut DeviceStream, x: &Buffer<f32>| {
///     let mut twice = s.alloc(2 * x.len())?;
///     s.copy(x, &mut twice.slice_mut(..x.len()))?;
///     s.copy(x, &mut twice.slice_mut(x.len()..))?;
///     Ok(twice)
/// });
/// let down = g.try_kernel("down", &twice, |s: &mut DeviceStream, x: &Buffer<f32>| Ok(s.download(x)?));
/// g.output("twice", &down);
/// let exec = Executor::inline();
/// let run = exec.run(&g.compile()?, Inputs::new());
/// assert_eq!(futures::executor::block_on(run)?.take::<HostBuffer<f32>>("twice")?[..], [1.0, 2.0, 1.0, 2.0]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Buffer<T>(Span<T>);

impl<T: Element> Buffer<T> {
    /// Returns a buffer on the host, or None if there is not that much memory. Its bytes are `0xCD`, so that
    /// code cannot rely on zeros.
    pub(super) fn on_host(len: usize) -> Option<Self> {
        // The caller has checked the size.
        if let Some(memory) = allocate(len * size_of::<T>(), align_of::<T>()) {
            return Some(Self::on_device(memory?, len));
        }
        let mut elements: Vec<T> = Vec::new();
        elements.try_reserve_exact(len).ok()?;
        // SAFETY: the vector has room for `len` elements.
        unsafe { elements.as_mut_ptr().write_bytes(0xCD, len) };
        // SAFETY: all `len` elements were written above, and any bytes are a valid element (`Element`).
        unsafe { elements.set_len(len) };
        let first = NonNull::from(Box::leak(elements.into_boxed_slice())).cast();
        Some(Self(Span::new(Place::Host(first), len)))
    }

    /// Returns the memory of the elements, if a device has them.
    #[cfg(feature = "nccl")]
    pub(crate) fn memory(&self) -> Option<&dyn Memory> {
        self.read_by(false).on_device()
    }

    /// Returns where the elements are, for another library that may write them: the address, and the number
    /// of the GPU that has them, if there is one.
    #[cfg(feature = "dlpack")]
    pub(super) fn export(&mut self) -> Result<(*mut T, Option<u32>), Kind> {
        if let Some((first, _)) = self.0.on_host() {
            return Ok((first.as_ptr(), None));
        }
        let device = self.device_name();
        match self.written_by(false).on_device().map_or(Export::Simulated, Memory::export) {
            Export::Gpu { address, ordinal } => Ok((with_exposed_provenance_mut(address as usize), Some(ordinal))),
            Export::InUse => Err(Kind::BufferInUse { device }),
            Export::Simulated => Err(Kind::BufferSimulated),
        }
    }

    pub(crate) fn on_device(memory: Box<dyn Memory>, len: usize) -> Self {
        Self(Span::new(Place::Device(memory), len))
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Some((first, len)) = self.0.on_host() {
            let elements = std::ptr::slice_from_raw_parts_mut(first.as_ptr(), len);
            // SAFETY: `on_host` leaked a box of `len` elements, and this buffer owns it: nothing borrows it
            // any more.
            drop(unsafe { Box::from_raw(elements) });
        }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = BufferSlice<T>;

    fn deref(&self) -> &BufferSlice<T> {
        self.0.as_slice()
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut BufferSlice<T> {
        self.0.as_mut_slice()
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len()).field("device", &self.device_name()).finish()
    }
}

/// Elements in the host's memory, copied there from a device. It reads like a slice.
///
/// # Panics
/// When it is read in the kernel that requested the copy, or in a later kernel of a device: there the copy is
/// only queued. Read it in a node of the host.
///
/// ```
/// # use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Inputs};
/// # let mut g = Graph::new();
/// # let x = g.try_kernel("x", (), |s: &mut DeviceStream| Ok(s.upload(&[1.0_f32, 2.0])?));
/// let down = g.try_kernel("down", &x, |s: &mut DeviceStream, x: &Buffer<f32>| Ok(s.download(x)?));
/// let sum = g.task("sum", &down, |x: &HostBuffer<f32>| x.iter().sum::<f32>());
/// # g.output("sum", &sum);
/// # let exec = Executor::inline();
/// # let run = exec.run(&g.compile()?, Inputs::new());
/// # assert_eq!(*futures::executor::block_on(run)?.take::<f32>("sum")?, 3.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct HostBuffer<T> {
    place: Place<Box<[T]>, Box<dyn HostMemory>>,
    len: usize,
}

impl<T: Element> HostBuffer<T> {
    /// Returns a copy, or None if there is not that much memory.
    pub(super) fn copy_of(elements: &[T]) -> Option<Self> {
        let mut copy: Vec<T> = Vec::new();
        copy.try_reserve_exact(elements.len()).ok()?;
        copy.extend_from_slice(elements);
        Some(Self { len: copy.len(), place: Place::Host(copy.into_boxed_slice()) })
    }

    pub(super) fn of(memory: Box<dyn HostMemory>, len: usize) -> Self {
        Self { place: Place::Device(memory), len }
    }

    /// Returns the address of the elements and their number, for another library that may write them; None if
    /// the copy is not done.
    #[cfg(feature = "dlpack")]
    pub(super) fn export(&mut self) -> Option<(*mut T, usize)> {
        let data = match &mut self.place {
            Place::Host(elements) => Some(elements.as_mut_ptr()),
            Place::Device(memory) => memory.is_written().then(|| memory.as_ptr().cast_mut().cast()),
        };
        data.map(|data| (data, self.len))
    }
}

impl<T: Element> Deref for HostBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.place {
            Place::Host(elements) => elements,
            Place::Device(memory) => {
                assert!(
                    memory.is_written(),
                    "a HostBuffer is read in a kernel, where its copy is only queued: read it in a node of the host"
                );
                // SAFETY: the memory has room for `len` elements, aligned for any of them; the copy that
                // wrote them is done, and no work writes there again while `memory` lives.
                unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), self.len) }
            }
        }
    }
}

impl<T: Element> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer").finish_non_exhaustive()
    }
}
