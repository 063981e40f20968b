//! A run's memory and the typed keys into it. A `Slot<T>` is minted only by the `Layout` that places a
//! `Cell<T>` there.

use std::alloc::{alloc_zeroed, dealloc};
use std::any::TypeId;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::cell::Cell;
use super::state::{StateGuard, StateRef};
use crate::error::{Kind, Result};

/// Where each cell of a run's memory stands. Grows as a graph is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    size: usize,
    align: usize,
}

/// The typed key of one cell.
#[derive(Debug)]
pub struct Slot<T> {
    /// In bytes. Half a word, because every body holds a few of these.
    offset: u32,
    cell: PhantomData<fn(T) -> T>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slot<T> {}

impl<T> Slot<T> {
    /// A key to no cell, for a graph that already has a mistake and will never run.
    pub(crate) fn dangling() -> Self {
        Self { offset: u32::MAX, cell: PhantomData }
    }

    pub(crate) fn offset(self) -> u32 {
        self.offset
    }

    /// The key at `offset`, which a `Slot<T>` of the same layout had.
    pub(crate) fn at(offset: u32) -> Self {
        Self { offset, cell: PhantomData }
    }
}

impl Layout {
    pub(crate) fn new() -> Self {
        Self { size: 0, align: 1 }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn slot<T: 'static>(&mut self) -> Slot<T> {
        if is_unit::<T>() {
            return Slot { offset: 0, cell: PhantomData };
        }
        // Saturates, so that a layout that is too large stays too large.
        let offset = self.size.checked_next_multiple_of(align_of::<Cell<T>>()).unwrap_or(usize::MAX);
        self.size = offset.saturating_add(size_of::<Cell<T>>());
        self.align = self.align.max(align_of::<Cell<T>>());
        // A layout that is too large is never made into a frame: `size` says so, and compiling fails.
        Slot { offset: offset as u32, cell: PhantomData }
    }
}

/// One run's memory, all cells empty at first.
///
/// Its drop only frees the memory. The run drops the values, because it knows which are still there.
pub(crate) struct Frame(Memory);

// SAFETY: a frame is plain memory. Callers of `cells` promise that threads do not conflict in it, and slots
// are of values that are Send and Sync.
unsafe impl Send for Frame {}
// SAFETY: a shared frame gives access only by `cells`, whose callers promise that threads do not conflict.
unsafe impl Sync for Frame {}

impl Frame {
    /// Returns memory for the values of a run.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn new(layout: &Layout) -> Result<Self> {
        let layout = std::alloc::Layout::from_size_align(layout.size, layout.align).expect("a graph's values fit in memory");
        let memory = Memory::new(layout, alloc_zeroed).ok_or_else(|| Kind::NoRunMemory { bytes: layout.size() }.into());
        memory.map(Self)
    }

    /// Returns the view that a node's body gets.
    ///
    /// # Safety
    /// For as long as the view is used to reach a cell: its slots come from this frame's layout; no other
    /// thread writes a cell that is read, and none touches a cell that is written, taken or cleared. With
    /// [`Access::InPlace`] every value that is read is there, in place.
    #[inline(always)]
    pub(crate) unsafe fn cells(&self, access: Access) -> Cells<'_> {
        Cells { base: self.0.base, access, frame: PhantomData }
    }
}

pub(super) struct Memory {
    pub(super) base: NonNull<u8>,
    pub(super) layout: std::alloc::Layout,
}

impl Memory {
    /// Allocates a block with a function of [`std::alloc`]. Returns None if there is not enough memory.
    pub(super) fn new(layout: std::alloc::Layout, alloc: unsafe fn(std::alloc::Layout) -> *mut u8) -> Option<Self> {
        if layout.size() == 0 {
            return Some(Self { base: NonNull::dangling(), layout });
        }
        // SAFETY: the size is not zero.
        let base = unsafe { alloc(layout) };
        NonNull::new(base).map(|base| Self { base, layout })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.layout.size() != 0 {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.base.as_ptr(), self.layout) }
        }
    }
}

/// How a node finds the values that it reads, and stores its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// All values are in place, so no tag is read: a plan knows this of most nodes.
    InPlace,
    /// Each cell's tag says where its value is; the output is stored in place.
    Tagged,
    /// Each cell's tag says where its value is; the output is stored as an `Arc`.
    Share,
}

/// One node's view of its run's values. Its methods are safe because making one ([`Frame::cells`]) is not.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'f> {
    base: NonNull<u8>,
    access: Access,
    frame: PhantomData<&'f Frame>,
}

impl<'f> Cells<'f> {
    /// Returns the same view for a body whose values are all in place. The compiler knows that then, and
    /// leaves out the reads of tags.
    ///
    /// # Safety
    /// This view was made with [`Access::InPlace`].
    #[inline(always)]
    pub(super) unsafe fn in_place(self) -> Self {
        Self { access: Access::InPlace, ..self }
    }

    fn cell<T>(self, slot: Slot<T>) -> *mut Cell<T> {
        // SAFETY: the slot comes from this frame's layout, so the offset is inside of its memory.
        unsafe { self.base.as_ptr().add(slot.offset as usize) }.cast()
    }

    /// Returns a cell that the node reads.
    fn shared<T>(self, slot: Slot<T>) -> &'f Cell<T> {
        // SAFETY: the caller of `Frame::cells` promised that no other thread writes the cell meanwhile.
        unsafe { &*self.cell(slot) }
    }

    /// Returns a cell that the node takes, clears or overwrites. The node has no other reference to it.
    fn own<T>(self, slot: Slot<T>) -> &'f mut Cell<T> {
        // SAFETY: the caller of `Frame::cells` promised that no other thread touches the cell.
        unsafe { &mut *self.cell(slot) }
    }

    #[inline(always)]
    pub(crate) fn get<T: 'static>(self, slot: Slot<T>) -> &'f T {
        if is_unit::<T>() {
            // SAFETY: `T` is `()`, and any aligned address is a reference to that.
            return unsafe { NonNull::dangling().as_ref() };
        }
        match self.access {
            // SAFETY: the caller of `Frame::cells` promised with this access that the value is in place.
            Access::InPlace => unsafe { self.shared(slot).get_in_place() },
            _ => self.shared(slot).get(),
        }
    }

    /// Returns one more owner of a shared value.
    pub(crate) fn share<T: 'static>(self, slot: Slot<T>) -> Arc<T> {
        if is_unit::<T>() {
            return Arc::new(unit());
        }
        self.shared(slot).share()
    }

    /// Moves a shared value out.
    #[inline]
    pub(crate) fn take_shared<T: 'static>(self, slot: Slot<T>) -> Arc<T> {
        if is_unit::<T>() {
            return Arc::new(unit());
        }
        self.own(slot).take_shared()
    }

    /// Moves out a value as an `Arc`, whether it is one or not.
    pub(crate) fn take_as_shared<T: 'static>(self, slot: Slot<T>) -> Arc<T> {
        if is_unit::<T>() {
            return Arc::new(unit());
        }
        self.own(slot).take_as_shared()
    }

    #[inline]
    pub(crate) fn take<T: 'static>(self, slot: Slot<T>) -> T {
        if is_unit::<T>() {
            return unit();
        }
        self.own(slot).take()
    }

    /// Stores the value: in place, or as an `Arc` where the plan says that it is shared.
    #[inline(always)]
    pub(crate) fn put<T: 'static>(self, slot: Slot<T>, value: T) {
        if is_unit::<T>() {
            return;
        }
        if self.access == Access::Share {
            return self.put_as_arc(slot, value);
        }
        // SAFETY: the caller of `Frame::cells` promised that no other thread touches the cell. A node writes
        // its output once, into an empty cell, so no value is overwritten undropped.
        unsafe { self.cell(slot).write(Cell::InPlace(value)) }
    }

    /// Not inlined into `put`, which every node calls.
    #[cold]
    #[inline(never)]
    fn put_as_arc<T: 'static>(self, slot: Slot<T>, value: T) {
        self.put_shared(slot, Arc::new(value));
    }

    /// Stores a value that is an `Arc` already. Drops what was there.
    pub(crate) fn put_shared<T: 'static>(self, slot: Slot<T>, value: Arc<T>) {
        if !is_unit::<T>() {
            *self.own(slot) = Cell::Shared(value);
        }
    }

    /// Moves the value of one cell, or its absence, into another; as an `Arc` if it is to be `shared`. Drops
    /// what was there.
    #[inline]
    pub(crate) fn carry<T: 'static>(self, from: Slot<T>, to: Slot<T>, shared: bool) {
        if is_unit::<T>() {
            return;
        }
        let carried = std::mem::replace(self.own(from), Cell::Empty);
        *self.own(to) = if shared { carried.into_shared() } else { carried };
    }

    /// Makes the value of a cell an `Arc`, and puts a share of it into another cell. Drops what was there.
    pub(crate) fn split<T: 'static>(self, from: Slot<T>, to: Slot<T>) {
        if is_unit::<T>() {
            return;
        }
        self.carry(from, from, true);
        self.put_shared(to, self.share(from));
    }

    /// Returns a state of a pipeline, for one call of the body that holds it.
    #[inline(always)]
    pub(crate) fn hold<T: 'static>(self, slot: Slot<StateRef<T>>) -> &'f mut T {
        // SAFETY: the caller of `Frame::cells` promised that no other thread runs the node. A state has one
        // node, which a pipeline runs for one item at a time.
        unsafe { self.shared(slot).get().hold() }
    }

    /// Returns a state of a pipeline, for a future.
    pub(crate) fn take_state<T: 'static>(self, slot: Slot<StateRef<T>>) -> StateGuard<T> {
        // SAFETY: the caller of `Frame::cells` promised that no other thread runs the node. A state has one
        // node, which a pipeline runs for one item at a time.
        unsafe { self.shared(slot).get().take_out() }
    }

    /// Stores a value in the place of another one, which is dropped afterwards: its drop may panic.
    pub(crate) fn replace<T: 'static>(self, slot: Slot<T>, value: T) {
        if is_unit::<T>() {
            return;
        }
        let _old = std::mem::replace(self.own(slot), Cell::Empty);
        self.put(slot, value);
    }

    /// Drops the value, if it is there.
    pub(crate) fn clear<T: 'static>(self, slot: Slot<T>) {
        if !is_unit::<T>() {
            // Dropped where it is, because it may be a future that was polled, and so is pinned.
            *self.own(slot) = Cell::Empty;
        }
    }

    /// Polls the future in the cell in place; makes it first if there is none, drops it when it is ready.
    pub(crate) fn poll<F: Future + 'static>(
        self,
        slot: Slot<F>,
        make: impl FnOnce() -> F,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let cell = self.own(slot);
        if let Cell::Empty = cell {
            *cell = Cell::InPlace(make());
        }
        let Cell::InPlace(future) = cell else { unreachable!("a future is never shared") };
        // SAFETY: the future stays at this address until it is dropped: here, or by `clear` before the frame
        // is freed.
        let polled = unsafe { Pin::new_unchecked(future) }.poll(cx);
        if polled.is_ready() {
            *cell = Cell::Empty;
        }
        polled
    }
}

/// `()` needs no memory. Only `()`: other types without size may be tokens that must not be made from
/// nothing.
fn is_unit<T: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<()>()
}

/// The unit, for a `T` that was found to be it.
fn unit<T: 'static>() -> T {
    assert!(is_unit::<T>());
    // SAFETY: `T` is `()`.
    unsafe { std::mem::transmute_copy(&()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_as_it_was_stored() {
        let mut layout = Layout::new();
        let (word, text, unit) = (layout.slot::<u64>(), layout.slot::<String>(), layout.slot::<()>());
        let frame = Frame::new(&layout).expect("there is memory");
        // SAFETY: one thread, slots of this layout.
        let cells = unsafe { frame.cells(Access::Tagged) };
        cells.put(word, 7);
        cells.put(text, "seven".to_owned());
        cells.put(unit, ());
        assert_eq!((*cells.get(word), cells.take(text), *cells.get(unit)), (7, "seven".to_owned(), ()));
    }

    /// Knows where it was polled, and will not be dropped elsewhere.
    #[derive(Default)]
    struct Pinned(Option<*const Self>, std::marker::PhantomPinned);

    impl Future for Pinned {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            // SAFETY: nothing is moved.
            let this = unsafe { self.get_unchecked_mut() };
            this.0 = Some(std::ptr::from_ref(this));
            Poll::Pending
        }
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            assert_eq!(self.0, Some(std::ptr::from_ref(self)), "a future moved after it was polled");
        }
    }

    /// Failed while `clear` moved the value out and then dropped it; tokio's timers crashed on that.
    #[test]
    fn a_future_is_dropped_where_it_was_polled() {
        let mut layout = Layout::new();
        let slot = layout.slot::<Pinned>();
        let frame = Frame::new(&layout).expect("there is memory");
        // SAFETY: one thread, a slot of this layout.
        let cells = unsafe { frame.cells(Access::Tagged) };
        let waker = std::task::Waker::noop();
        assert!(cells.poll(slot, Pinned::default, &mut Context::from_waker(waker)).is_pending());
        cells.clear(slot);
    }

    #[test]
    fn a_shared_value_is_one_arc() {
        let mut layout = Layout::new();
        let slot = layout.slot::<String>();
        let frame = Frame::new(&layout).expect("there is memory");
        // SAFETY: one thread, a slot of this layout.
        let cells = unsafe { frame.cells(Access::Share) };
        cells.put(slot, "x".to_owned());
        let (a, b) = (cells.share(slot), cells.share(slot));
        assert!(Arc::ptr_eq(&a, &b));
        cells.clear(slot);
        assert_eq!(Arc::strong_count(&a), 2);
    }
}
