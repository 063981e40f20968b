//! Values of many types behind one trait, side by side: what runs after each other lies next to each other, without a header
//! or a count between. A chain of a million bodies runs twice as fast as with an allocation for each.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// The sizes of chunks in bytes: each is twice as large as the one before, up to the largest.
const CHUNK_MIN: usize = 1 << 10;
const CHUNK_MAX: usize = 1 << 18;

/// Items behind `T`, by number. They never move, and live until the last clone is gone.
pub(crate) struct Arena<T: ?Sized> {
    items: Vec<NonNull<T>>,
    /// What the items lie in. The last takes more of them, unless a clone has it too.
    chunks: Vec<Arc<Chunk<T>>>,
}

// SAFETY: an arena is a shared owner of its items, as an `Arc<T>` is of one.
unsafe impl<T: ?Sized + Send + Sync> Send for Arena<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for Arena<T> {}

impl<T: ?Sized> Arena<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new(), chunks: Vec::new() }
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns item number `index`.
    pub(crate) fn get(&self, index: usize) -> &T {
        // SAFETY: its chunk is among `chunks`, and items are only shared once they are there.
        unsafe { self.items[index].as_ref() }
    }

    /// Returns all items, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Adds an item; `erase` forgets the type that the pointer points to, and nothing else.
    pub(crate) fn push<B>(&mut self, item: B, erase: fn(*mut B) -> *mut T) {
        let layout = Layout::new::<B>();
        let has_room = |chunk: &mut Arc<Chunk<T>>| Arc::get_mut(chunk).is_some_and(|chunk| chunk.has_room(layout));
        if !self.chunks.last_mut().is_some_and(has_room) {
            let size = (CHUNK_MIN << self.chunks.len().min(16)).min(CHUNK_MAX);
            self.chunks.push(Arc::new(Chunk::new(size, layout)));
        }
        let chunk = self.chunks.last_mut().and_then(Arc::get_mut).expect("nobody else has it");
        self.items.push(chunk.push(item, erase));
    }
}

impl<T: ?Sized> Clone for Arena<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), chunks: self.chunks.clone() }
    }
}

struct Chunk<T: ?Sized> {
    /// The items that must be dropped. Before the memory, because fields are dropped in this order.
    dropped: Vec<Dropped<T>>,
    memory: Memory,
    /// Where the next item may begin.
    used: usize,
}

impl<T: ?Sized> Chunk<T> {
    /// Returns a chunk of at least `size` bytes, with room for an item of `layout`.
    fn new(size: usize, layout: Layout) -> Self {
        let layout = Layout::from_size_align(size.max(layout.size()), layout.align().max(align_of::<usize>()));
        Self { dropped: Vec::new(), memory: Memory::new(layout.expect("an item's size is in bounds")), used: 0 }
    }

    fn has_room(&self, layout: Layout) -> bool {
        let aligned = layout.align() <= self.memory.layout.align();
        aligned && self.used.next_multiple_of(layout.align()) + layout.size() <= self.memory.layout.size()
    }

    fn push<B>(&mut self, item: B, erase: fn(*mut B) -> *mut T) -> NonNull<T> {
        let layout = Layout::new::<B>();
        assert!(self.has_room(layout));
        let start = self.used.next_multiple_of(layout.align());
        self.used = start + layout.size();
        // SAFETY: `has_room`: inside of the memory, and aligned because the memory is at least as much.
        let place = unsafe { self.memory.base.add(start) }.cast::<B>();
        // SAFETY: nothing else lies there.
        unsafe { place.write(item) };
        let erased = NonNull::new(erase(place.as_ptr())).expect("not null before");
        assert_eq!(erased.addr(), place.addr(), "only the type is forgotten");
        if std::mem::needs_drop::<B>() {
            self.dropped.push(Dropped(erased));
        }
        erased
    }
}

/// Drops an item in its place, so that one whose drop panics does not keep the others from theirs.
struct Dropped<T: ?Sized>(NonNull<T>);

impl<T: ?Sized> Drop for Dropped<T> {
    fn drop(&mut self) {
        // SAFETY: the chunk is going away, and dropping each item once.
        unsafe { self.0.drop_in_place() }
    }
}

struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    fn new(layout: Layout) -> Self {
        // SAFETY: the size is not zero: chunks have a smallest.
        let base = unsafe { alloc(layout) };
        Self { base: NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::any::Any;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn any<B: Any>(item: *mut B) -> *mut dyn Any {
        item
    }

    #[repr(align(256))]
    struct Aligned(u8);

    /// Seen to fail with the start not rounded up to the item's alignment, and with a chunk that takes any alignment.
    #[test]
    fn items_of_all_sizes_and_alignments_come_back() {
        let mut arena: Arena<dyn Any> = Arena::new();
        for number in 0..3_000_u32 {
            arena.push(number as u8, any);
            arena.push((), any);
            arena.push([u64::from(number); 9], any);
            arena.push(Aligned(number as u8), any);
            arena.push(vec![number], any);
        }
        arena.push([7_u8; CHUNK_MAX + 1], any);
        assert_eq!(arena.iter().count(), 15_001);
        for number in 0..3_000_u32 {
            let item = |kind| arena.get(5 * number as usize + kind);
            assert_eq!(item(0).downcast_ref::<u8>(), Some(&(number as u8)));
            assert_eq!(item(2).downcast_ref::<[u64; 9]>(), Some(&[u64::from(number); 9]));
            let aligned = item(3).downcast_ref::<Aligned>().expect("what was put there");
            assert_eq!((aligned.0, std::ptr::from_ref(aligned).addr() % 256), (number as u8, 0));
            assert_eq!(item(4).downcast_ref::<Vec<u32>>(), Some(&vec![number]));
        }
        assert_eq!(arena.get(15_000).downcast_ref::<[u8; CHUNK_MAX + 1]>().map(|large| large[CHUNK_MAX]), Some(7));
    }

    /// Notes that it was dropped.
    struct Noting<'a>(&'a AtomicU32);

    impl Drop for Noting<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Seen to fail with a `push` that goes on in a chunk which a clone has too.
    #[test]
    fn items_live_as_long_as_the_last_clone_that_has_them_and_no_longer() {
        let (early, late) = (AtomicU32::new(0), AtomicU32::new(0));
        let mut arena: Arena<dyn Send> = Arena::new();
        arena.push(Noting(&early), |item| item);
        let clone = arena.clone();
        arena.push(Noting(&late), |item| item);
        drop(arena);
        let dropped = || (early.load(Ordering::Relaxed), late.load(Ordering::Relaxed));
        assert_eq!(dropped(), (0, 1));
        drop(clone);
        assert_eq!(dropped(), (1, 1));
    }
}
