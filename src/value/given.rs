//! A value of any type on its way into a run's memory. One of up to two words needs no box.

use std::any::{TypeId, type_name};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, fn_addr_eq};
use std::sync::Arc;

use super::args::Data;
use super::{Cells, Slot};
use crate::error::dispose;

/// A value, or an `Arc` that the caller shares with the run.
pub(crate) struct Given {
    words: Words,
    vtable: &'static Vtable,
}

/// Returns the id of a type: a function, because Rust 1.88 has no `TypeId` in constants. Never inlined, so
/// that there are few copies.
#[inline(never)]
pub(crate) fn id_of<T: 'static>() -> TypeId {
    TypeId::of::<T>()
}

/// The value itself, or the address of its box. Pointers, because they may be parts of the value.
type Words = MaybeUninit<[*mut (); 2]>;

/// The type of a value, and how it is moved and dropped.
struct Vtable {
    /// [`id_of`] the type.
    id: fn() -> TypeId,
    name: fn() -> &'static str,
    is_shared: bool,
    fill: unsafe fn(*mut Words, Cells<'_>, u32),
    drop: unsafe fn(*mut Words),
}

// SAFETY: the constructors ask for a value that is Send.
unsafe impl Send for Given {}
// SAFETY: the constructors ask for a value that is Sync.
unsafe impl Sync for Given {}

impl Given {
    pub(crate) fn owned<T: Data>(value: T) -> Self {
        let vtable = const {
            &Vtable {
                id: id_of::<T>,
                name: type_name::<T>,
                is_shared: false,
                // SAFETY: the caller promises what `take` asks for.
                fill: |words, cells, offset| cells.put(Slot::<T>::at(offset), unsafe { take::<T>(words) }),
                // SAFETY: the caller promises what `take` asks for.
                drop: |words| drop(unsafe { take::<T>(words) }),
            }
        };
        Self { words: put(value), vtable }
    }

    pub(crate) fn shared<T: Data>(value: Arc<T>) -> Self {
        let vtable = const {
            &Vtable {
                id: id_of::<T>,
                name: type_name::<T>,
                is_shared: true,
                // SAFETY: the caller promises what `take` asks for.
                fill: |words, cells, offset| cells.put_shared(Slot::<T>::at(offset), unsafe { take::<Arc<T>>(words) }),
                // SAFETY: the caller promises what `take` asks for.
                drop: |words| drop(unsafe { take::<Arc<T>>(words) }),
            }
        };
        Self { words: put(value), vtable }
    }

    /// Returns whether the type of the value is the one that [`id_of`] was taken of.
    #[inline]
    pub(crate) fn is_of(&self, id: fn() -> TypeId) -> bool {
        // The same function returns the same id. One type may have several copies of it, so these are called
        // if the addresses differ. Two calls through pointers take 20 ns and more.
        fn_addr_eq(self.vtable.id, id) || (self.vtable.id)() == id()
    }

    pub(crate) fn type_name(&self) -> &'static str {
        (self.vtable.name)()
    }

    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.vtable.is_shared
    }

    /// Moves the value into a cell, which is for a value of its type.
    #[inline]
    pub(crate) fn fill(self, cells: Cells<'_>, offset: u32) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `put` made the words for this vtable, and they are not used again.
        unsafe { (this.vtable.fill)(&raw mut this.words, cells, offset) }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let words = &raw mut self.words;
        // SAFETY: `put` made the words for this vtable, and they are not used again.
        dispose(|| unsafe { (self.vtable.drop)(words) });
    }
}

const fn is_small<P>() -> bool {
    size_of::<P>() <= size_of::<Words>() && align_of::<P>() <= align_of::<Words>()
}

fn put<P>(value: P) -> Words {
    let mut words = Words::uninit();
    if is_small::<P>() {
        // SAFETY: it has room for a `P`, as `is_small` shows.
        unsafe { words.as_mut_ptr().cast::<P>().write(value) };
    } else {
        words.write([Box::into_raw(Box::new(value)).cast(), ptr::null_mut()]);
    }
    words
}

/// Takes the value out.
///
/// # Safety
/// `put` made the words of a `P`, and they are not used again.
unsafe fn take<P>(words: *mut Words) -> P {
    if is_small::<P>() {
        // SAFETY: the caller promises that they are a `P`.
        return unsafe { words.cast::<P>().read() };
    }
    // SAFETY: the caller promises that the first word is the address of the box.
    let boxed = unsafe { words.cast::<*mut P>().read() };
    // SAFETY: `put` has leaked the box.
    *unsafe { Box::from_raw(boxed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Access, Frame, Layout};

    fn through<T: Data + Clone>(value: T) -> T {
        let mut layout = Layout::new();
        let slot = layout.slot::<T>();
        let frame = Frame::new(&layout).expect("there is memory");
        // SAFETY: one thread, a slot of this layout.
        let cells = unsafe { frame.cells(Access::Tagged) };
        drop(Given::owned(value.clone()));
        Given::owned(value).fill(cells, slot.offset());
        cells.take(slot)
    }

    #[test]
    fn values_of_all_sizes_come_back_as_they_were_given() {
        #[repr(align(64))]
        #[derive(Clone, PartialEq, Debug)]
        struct Aligned(u8);

        through(());
        assert_eq!(through(7_u64), 7);
        assert_eq!(through("two words"), "two words");
        assert_eq!(through(String::from("three words")), "three words");
        assert_eq!(through([1_u8; 16]), [1; 16]);
        assert_eq!(through([2_u8; 17]), [2; 17]);
        assert_eq!(through(u128::MAX), u128::MAX);
        assert_eq!(through(Aligned(3)), Aligned(3));
    }

    #[test]
    fn a_shared_value_is_the_arc_that_was_given() {
        let mut layout = Layout::new();
        let slot = layout.slot::<String>();
        let frame = Frame::new(&layout).expect("there is memory");
        // SAFETY: one thread, a slot of this layout.
        let cells = unsafe { frame.cells(Access::Tagged) };
        let text = Arc::new("x".to_owned());
        drop(Given::shared(text.clone()));
        assert_eq!(Arc::strong_count(&text), 1);
        Given::shared(text.clone()).fill(cells, slot.offset());
        assert!(Arc::ptr_eq(&cells.share(slot), &text));
        cells.clear(slot);
        assert_eq!(Arc::strong_count(&text), 1);
    }
}
