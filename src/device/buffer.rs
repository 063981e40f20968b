//! Memory that kernels work on, typed: on the device, and on the host where copies from the device arrive.

use std::fmt;
use std::ops::Deref;

use super::queue::{HostMemory, Memory};
use crate::error::{Kind, Result};

/// A number that buffers can hold.
///
/// # Safety
/// The type has no padding, and any bytes are a value of it.
pub unsafe trait Element: Copy + Send + Sync + fmt::Debug + 'static {}

macro_rules! elements {
    ($($number:ty),*) => { $(
        // SAFETY: a primitive number.
        unsafe impl Element for $number {}
    )* };
}

elements!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// Memory on the device that runs the graph: `len` elements of `T`, in a row.
///
/// Made by a kernel, through [`DeviceStream`](crate::DeviceStream), and passed along the graph's edges; a
/// host node can pass it on but not look inside. When it is dropped, the memory is free once the work that
/// uses it is done.
pub struct Buffer<T> {
    place: Place<Box<[T]>, Box<dyn Memory>>,
    len: usize,
}

/// The elements of a host, or the memory of a device.
pub(super) enum Place<H, M> {
    Host(H),
    Device(M),
}

impl<'a, H> Place<H, &'a dyn Memory> {
    /// Returns the elements, if a host has them.
    pub(super) fn on_host(self) -> Result<H> {
        match self {
            Place::Host(elements) => Ok(elements),
            Place::Device(memory) => {
                Err(Kind::ForeignBuffer { buffer: memory.device_name(), stream: "the host device".into() }.into())
            }
        }
    }

    /// Returns the memory, if it is a device's.
    pub(super) fn on_device(self) -> Option<&'a dyn Memory> {
        match self {
            Place::Host(_) => None,
            Place::Device(memory) => Some(memory),
        }
    }
}

impl<T: Element> Buffer<T> {
    /// Returns a buffer on the host, or None if there is not that much memory. Its bytes are `0xCD`, so that
    /// no code comes to rely on zeros.
    pub(super) fn on_host(len: usize) -> Option<Self> {
        let mut elements: Vec<T> = Vec::new();
        elements.try_reserve_exact(len).ok()?;
        // SAFETY: the vector has room for `len` elements.
        unsafe { elements.as_mut_ptr().write_bytes(0xCD, len) };
        // SAFETY: all of them were written just now, and any bytes are an element.
        unsafe { elements.set_len(len) };
        Some(Self { place: Place::Host(elements.into_boxed_slice()), len })
    }

    pub(super) fn on_device(memory: Box<dyn Memory>, len: usize) -> Self {
        Self { place: Place::Device(memory), len }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    pub(super) fn place(&self) -> Place<&[T], &dyn Memory> {
        match &self.place {
            Place::Host(elements) => Place::Host(elements),
            Place::Device(memory) => Place::Device(&**memory),
        }
    }

    pub(super) fn place_mut(&mut self) -> Place<&mut [T], &dyn Memory> {
        match &mut self.place {
            Place::Host(elements) => Place::Host(elements),
            Place::Device(memory) => Place::Device(&**memory),
        }
    }

    pub(super) fn device_name(&self) -> String {
        match &self.place {
            Place::Host(_) => "the host device".into(),
            Place::Device(memory) => memory.device_name(),
        }
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).field("device", &self.device_name()).finish()
    }
}

/// Elements in the host's memory, copied there from a device; reads like a slice.
///
/// # Panics
/// When it is read in the kernel that asked for the copy, or in a later kernel of a device: there the copy is
/// only queued. Read it in a node of the host.
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
