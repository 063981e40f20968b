//! Consecutive elements of a buffer, on any device.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, DerefMut, Range, RangeBounds};
use std::ptr::NonNull;

use super::buffer::Element;
use super::queue::Memory;
use crate::error::{How, Kind, Result};

/// Consecutive elements of a device's memory: a [`Buffer`](super::Buffer), or a part of one. It is to a
/// buffer what a slice is to a vector: kernels and streams take `&BufferSlice<T>` to read and `&mut
/// BufferSlice<T>` to write. So they accept a buffer, a part of one ([`slice`](BufferSlice::slice)), and a
/// tile of a [scope](crate::scope).
///
/// # Examples
/// ```
/// use anabranch::{DeviceStream, Executor, Graph, HostBuffer, Inputs};
///
/// let mut g = Graph::new();
/// let x = g.try_kernel("halves", (), |s: &mut DeviceStream| {
///     let mut x = s.upload(&[1.0, 2.0, 3.0, 4.0])?;
///     s.fill(&mut x.slice_mut(2..), 0.0)?;
///     Ok(s.download(&x.slice(1..))?)
/// });
/// g.output("x", &x);
/// let exec = Executor::inline(); // or Executor::cuda(0)?
/// let run = exec.run(&g.compile()?, Inputs::new());
/// assert_eq!(futures::executor::block_on(run)?.take::<HostBuffer<f64>>("x")?[..], [2.0, 0.0, 0.0]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[repr(transparent)]
pub struct BufferSlice<T>(Span<T, [()]>);

/// The place of elements, and their number.
pub(super) struct Span<T, Tail: ?Sized = [(); 0]> {
    place: Place<NonNull<T>, Box<dyn Memory>>,
    len: usize,
    /// Always empty. It makes `BufferSlice` an unsized type, so two of them cannot be swapped behind
    /// references, and a part cannot outlive its buffer.
    _tail: Tail,
}

// SAFETY: a span owns or borrows its elements as `T`s, and `T` is Send.
unsafe impl<T: Send, Tail: ?Sized> Send for Span<T, Tail> {}
// SAFETY: threads that share a span only read its elements, and `T` is Sync.
unsafe impl<T: Sync, Tail: ?Sized> Sync for Span<T, Tail> {}

/// Elements on a host, or memory of a device.
pub(super) enum Place<H, M> {
    Host(H),
    Device(M),
}

impl<'a, H> Place<H, &'a dyn Memory> {
    /// Returns the elements if a host has them.
    pub(super) fn on_host(self) -> Result<H> {
        match self {
            Place::Host(elements) => Ok(elements),
            Place::Device(memory) => {
                Err(Kind::ForeignBuffer { buffer: memory.device_name(), stream: "the host device".into() }.into())
            }
        }
    }

    /// Returns the memory if a device has it.
    pub(super) fn on_device(self) -> Option<&'a dyn Memory> {
        match self {
            Place::Host(_) => None,
            Place::Device(memory) => Some(memory),
        }
    }
}

impl<T> Span<T> {
    pub(super) fn new(place: Place<NonNull<T>, Box<dyn Memory>>, len: usize) -> Self {
        Self { place, len, _tail: [] }
    }

    /// Returns the first element and the number of elements, if a host has them.
    pub(super) fn on_host(&self) -> Option<(NonNull<T>, usize)> {
        if let Place::Host(first) = self.place { Some((first, self.len)) } else { None }
    }

    pub(super) fn as_slice(&self) -> &BufferSlice<T> {
        let span: *const Span<T, [()]> = self as &Span<T, [()]>;
        // SAFETY: the types have the same representation.
        unsafe { &*(span as *const BufferSlice<T>) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut BufferSlice<T> {
        let span: *mut Span<T, [()]> = self as &mut Span<T, [()]>;
        // SAFETY: the types have the same representation.
        unsafe { &mut *(span as *mut BufferSlice<T>) }
    }
}

impl<T> BufferSlice<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    pub(super) fn device_name(&self) -> String {
        match &self.0.place {
            Place::Host(_) => "the host device".into(),
            Place::Device(memory) => memory.device_name(),
        }
    }
}

impl<T: Element> BufferSlice<T> {
    /// Returns a part of these elements.
    ///
    /// # Panics
    /// If the range is not within them, as for slices.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> BufferView<'_, T> {
        let Range { start, end } = self.range(range);
        // SAFETY: `range` found the elements within these, which are borrowed while the view reads them.
        unsafe { self.view(start * size_of::<T>(), end - start) }
    }

    /// Returns a part of these elements, for writing.
    ///
    /// # Panics
    /// If the range is not within them, as for slices.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> BufferViewMut<'_, T> {
        let Range { start, end } = self.range(range);
        // SAFETY: `range` found the elements within these, and only the view can reach them while it lives.
        unsafe { self.view_mut(start * size_of::<T>(), end - start) }
    }

    fn range(&self, range: impl RangeBounds<usize>) -> Range<usize> {
        let len = self.len();
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(len),
        };
        let found = start.zip(end).filter(|(start, end)| start <= end && *end <= len);
        let (start, end) = found.unwrap_or_else(|| panic!("the elements {start:?} to {end:?} are not in a buffer of {len}"));
        start..end
    }

    /// Returns elements of another type in this memory, from a byte on.
    ///
    /// # Safety
    /// The memory has them, aligned if a host has it. No thread writes them while the view lives.
    pub(crate) unsafe fn view<U: Element>(&self, first_byte: usize, len: usize) -> BufferView<'_, U> {
        // SAFETY: the memory has the elements, aligned, and no thread writes them: the contract of this
        // function.
        BufferView { span: unsafe { self.part(first_byte, len) }, of: PhantomData }
    }

    /// Returns elements of another type in this memory, from a byte on.
    ///
    /// # Safety
    /// The memory has them, aligned if a host has it. Only the view is used to reach them while it lives.
    pub(crate) unsafe fn view_mut<U: Element>(&self, first_byte: usize, len: usize) -> BufferViewMut<'_, U> {
        // SAFETY: the memory has the elements, aligned, and only the view uses them: the contract of this
        // function.
        BufferViewMut { span: unsafe { self.part(first_byte, len) }, of: PhantomData }
    }

    /// # Safety
    /// The memory has these elements.
    unsafe fn part<U: Element>(&self, first_byte: usize, len: usize) -> Span<U> {
        let bytes = first_byte..first_byte + len * size_of::<U>();
        debug_assert!(bytes.end <= self.size_bytes(), "a part is in its buffer");
        let place = match &self.0.place {
            // SAFETY: the memory has the elements: the contract of this function.
            Place::Host(first) => Place::Host(unsafe { first.byte_add(first_byte) }.cast()),
            Place::Device(memory) => Place::Device(memory.part(bytes)),
        };
        Span::new(place, len)
    }

    /// Returns the place of the elements for reading, by a stream of a host or of a device that queues work.
    #[inline(always)]
    pub(super) fn read_by(&self, is_host: bool) -> Place<&[T], &dyn Memory> {
        match self.first_by(is_host, How::Reads) {
            // SAFETY: `len` elements are there, and no code writes them while these are borrowed.
            Ok(first) => Place::Host(unsafe { std::slice::from_raw_parts(first.as_ptr(), self.len()) }),
            Err(memory) => Place::Device(memory),
        }
    }

    /// Returns the place of the elements for writing.
    #[inline(always)]
    pub(super) fn written_by(&mut self, is_host: bool) -> Place<&mut [T], &dyn Memory> {
        match self.first_by(is_host, How::Writes) {
            // SAFETY: `len` elements are there, and no other code uses them while these are borrowed.
            Ok(first) => Place::Host(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), self.len()) }),
            Err(memory) => Place::Device(memory),
        }
    }

    /// Returns the first element if a host can access it. A host accesses the memory of a simulated device
    /// directly.
    #[inline(always)]
    fn first_by(&self, is_host: bool, how: How) -> Result<NonNull<T>, &dyn Memory> {
        match &self.0.place {
            Place::Host(first) => Ok(*first),
            Place::Device(memory) if !is_host => Err(&**memory),
            Place::Device(memory) => memory.on_host(how).map(NonNull::cast).ok_or(&**memory),
        }
    }
}

impl<T> fmt::Debug for BufferSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferSlice").field("len", &self.len()).field("device", &self.device_name()).finish()
    }
}

/// A part of a buffer, for reading; made by [`BufferSlice::slice`]. It dereferences to a [`BufferSlice`].
///
/// ```
/// use anabranch::device::BufferView;
/// use anabranch::{Buffer, DeviceStream, HostBuffer};
///
/// fn first_row(s: &mut DeviceStream, x: &Buffer<f32>, columns: usize) -> anabranch::Result<HostBuffer<f32>> {
///     let row: BufferView<f32> = x.slice(..columns);
///     s.download(&row)
/// }
/// ```
pub struct BufferView<'a, T> {
    span: Span<T>,
    of: PhantomData<&'a T>,
}

/// A part of a buffer, for writing; made by [`BufferSlice::slice_mut`]. It dereferences to a [`BufferSlice`].
///
/// ```
/// use anabranch::device::BufferViewMut;
/// use anabranch::{Buffer, DeviceStream};
///
/// fn clear_first_row(s: &mut DeviceStream, x: &mut Buffer<f32>, columns: usize) -> anabranch::Result<()> {
///     let mut row: BufferViewMut<f32> = x.slice_mut(..columns);
///     s.fill(&mut row, 0.0)
/// }
/// ```
pub struct BufferViewMut<'a, T> {
    span: Span<T>,
    of: PhantomData<&'a mut T>,
}

macro_rules! views {
    ($View:ident) => {
        impl<T> Deref for $View<'_, T> {
            type Target = BufferSlice<T>;

            fn deref(&self) -> &BufferSlice<T> {
                self.span.as_slice()
            }
        }

        impl<T> fmt::Debug for $View<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&**self, f)
            }
        }
    };
}

views!(BufferView);
views!(BufferViewMut);

impl<T> DerefMut for BufferViewMut<'_, T> {
    fn deref_mut(&mut self) -> &mut BufferSlice<T> {
        self.span.as_mut_slice()
    }
}
