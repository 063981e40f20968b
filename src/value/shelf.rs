//! A variable's value. It is written in place as long as it has no owner outside, and else to a new place.
//!
//! ```text
//!  value    owners outside   event    next     then
//!  there    none             put      there    written in place
//!  there    some             put      there    written to a new place; the owners keep the old value
//!  there    any              share    there    one owner more
//!  there    none             take     none     the place is kept for the next value
//!  there    some             take     there    refused
//!  none     -                put      there    written to the old place, if there is one
//! ```
//! `is_given` says whether there may be owners outside.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::sync::{AtomicBool, Ordering};

/// The value of a variable. The variable's queue orders the threads that use it. A value that was shared
/// ([`VarCell::share`]) is not written while it has other owners.
pub(crate) struct VarCell<T> {
    shelf: UnsafeCell<Shelf<T>>,
    /// Whether the value was shared, so that it may have other owners. If false, a write need not check their
    /// number, which would cost a read-modify-write.
    is_given: AtomicBool,
}

/// The place of the value, if there is one.
enum Shelf<T> {
    Full(Arc<T>),
    /// The value was taken. The next one may use its place.
    Empty(Option<Arc<MaybeUninit<T>>>),
}

// SAFETY: it owns its value, which is Send and Sync.
unsafe impl<T: Send + Sync> Send for VarCell<T> {}
// SAFETY: it changes only under a granted write, which excludes all other uses.
unsafe impl<T: Send + Sync> Sync for VarCell<T> {}

impl<T> VarCell<T> {
    /// Returns a cell with its first value, if it has one.
    pub(crate) fn new(value: Option<T>) -> Self {
        let shelf = value.map_or(Shelf::Empty(None), |value| Shelf::Full(Arc::new(value)));
        Self { shelf: UnsafeCell::new(shelf), is_given: AtomicBool::new(false) }
    }

    /// Returns a cell with a value that may have other owners.
    pub(crate) fn shared(value: Arc<T>) -> Self {
        Self { shelf: UnsafeCell::new(Shelf::Full(value)), is_given: AtomicBool::new(true) }
    }

    /// Returns the value, if there is one.
    ///
    /// # Safety
    /// The caller has been granted to read or to write, and does not write while it has the reference.
    pub(crate) unsafe fn get(&self) -> Option<&T> {
        // SAFETY: the caller has a grant, so no other thread writes, and does not write itself.
        match unsafe { &*self.shelf.get() } {
            Shelf::Full(value) => Some(value),
            Shelf::Empty(_) => None,
        }
    }

    /// Returns the value, to keep. None if there is none.
    ///
    /// # Safety
    /// The caller has been granted to read or to write.
    pub(crate) unsafe fn share(&self) -> Option<Arc<T>> {
        // ORDERING: Relaxed: later writes are granted behind this read.
        self.is_given.store(true, Ordering::Relaxed);
        // SAFETY: the caller has a grant, so no other thread writes.
        match unsafe { &*self.shelf.get() } {
            Shelf::Full(value) => Some(value.clone()),
            Shelf::Empty(_) => None,
        }
    }

    /// Writes the value.
    ///
    /// # Safety
    /// The caller has been granted to write, and has no reference to the value.
    pub(crate) unsafe fn put(&self, value: T) {
        // SAFETY: the caller is granted to write, which excludes all other uses, and has no reference.
        let shelf = unsafe { &mut *self.shelf.get() };
        match shelf {
            Shelf::Full(old) => match self.own(old) {
                Some(own) => *own = value,
                None => {
                    // ORDERING: Relaxed: the grant to write excludes all other uses.
                    self.is_given.store(false, Ordering::Relaxed);
                    *old = Arc::new(value);
                }
            },
            Shelf::Empty(place) => *shelf = Shelf::Full(fill(place.take(), value)),
        }
    }

    /// Returns the value if it has no other owner.
    #[inline]
    fn own<'a>(&self, value: &'a mut Arc<T>) -> Option<&'a mut T> {
        // ORDERING: Relaxed, both: the grant to write excludes all other uses.
        if self.is_given.load(Ordering::Relaxed) {
            let own = Arc::get_mut(value)?;
            self.is_given.store(false, Ordering::Relaxed);
            return Some(own);
        }
        // SAFETY: the value was not shared, so this is the only Arc, and there is no Weak.
        Some(unsafe { &mut *Arc::as_ptr(value).cast_mut() })
    }

    /// Writes a value that may have other owners.
    ///
    /// # Safety
    /// The caller has been granted to write, and has no reference to the value.
    pub(crate) unsafe fn put_shared(&self, value: Arc<T>) {
        // SAFETY: the caller is granted to write, which excludes all other uses, and has no reference.
        let shelf = unsafe { &mut *self.shelf.get() };
        // Must precede the drop of the old value, which may panic.
        // ORDERING: Relaxed: the grant to write excludes all other uses.
        self.is_given.store(true, Ordering::Relaxed);
        *shelf = Shelf::Full(value);
    }

    /// Returns true if there is a value and it has other owners. Operations share it only with a grant, and
    /// the caller's excludes all others. So a value without other owners gets none while the caller has its
    /// grant.
    ///
    /// # Safety
    /// The caller has been granted to write, and has no reference to the value.
    pub(crate) unsafe fn is_shared(&self) -> bool {
        // SAFETY: the caller is granted to write, which excludes all other uses, and has no reference.
        let shelf = unsafe { &mut *self.shelf.get() };
        match shelf {
            Shelf::Full(value) => self.own(value).is_none(),
            Shelf::Empty(_) => false,
        }
    }

    /// Takes the value out.
    ///
    /// # Errors
    /// If there is none, or it has other owners.
    ///
    /// # Safety
    /// The caller has been granted to write, and has no reference to the value.
    pub(crate) unsafe fn take(&self) -> Result<T, Untakable> {
        // SAFETY: the caller is granted to write, which excludes all other uses, and has no reference.
        let shelf = unsafe { &mut *self.shelf.get() };
        let Shelf::Full(value) = shelf else { return Err(Untakable::Empty) };
        if self.own(value).is_none() {
            return Err(Untakable::Shared);
        }
        let Shelf::Full(value) = std::mem::replace(shelf, Shelf::Empty(None)) else { unreachable!("it was seen") };
        // SAFETY: the pointer is of an Arc<T>. A MaybeUninit<T> has the same size and alignment, and this is
        // the only owner, so no other code uses it as a T.
        let place: Arc<MaybeUninit<T>> = unsafe { Arc::from_raw(Arc::into_raw(value).cast()) };
        // SAFETY: the value is there, this is the only owner, and a MaybeUninit<T> drops no value.
        let value = unsafe { place.assume_init_read() };
        *shelf = Shelf::Empty(Some(place));
        Ok(value)
    }

    /// Takes out a value that may have other owners. None if there is none.
    ///
    /// # Safety
    /// The caller has been granted to write, and has no reference to the value.
    pub(crate) unsafe fn take_shared(&self) -> Option<Arc<T>> {
        // SAFETY: the caller is granted to write, which excludes all other uses, and has no reference.
        let shelf = unsafe { &mut *self.shelf.get() };
        // ORDERING: Relaxed: the grant to write excludes all other uses.
        self.is_given.store(false, Ordering::Relaxed);
        match std::mem::replace(shelf, Shelf::Empty(None)) {
            Shelf::Full(value) => Some(value),
            Shelf::Empty(_) => None,
        }
    }
}

/// Why a value cannot be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untakable {
    Empty,
    Shared,
}

/// Puts a value into the place of one that was taken, or into a new place.
fn fill<T>(place: Option<Arc<MaybeUninit<T>>>, value: T) -> Arc<T> {
    let Some(place) = place else { return Arc::new(value) };
    // SAFETY: an empty place is never shared, so this is the only Arc.
    unsafe { &mut *Arc::as_ptr(&place).cast_mut() }.write(value);
    // SAFETY: the value was written just now.
    unsafe { place.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail with a `put` that writes over a shared value.
    #[test]
    fn what_is_given_out_stays_as_it_was() {
        let cell = VarCell::new(Some(vec![1]));
        // SAFETY: one thread, and no reference is kept.
        let kept = unsafe { cell.share() }.expect("there is a value");
        // SAFETY: one thread uses the cell, and keeps no reference.
        let is_shared = || unsafe { cell.is_shared() };
        // SAFETY: one thread uses the cell, and keeps no reference.
        assert_eq!((is_shared(), unsafe { cell.take() }), (true, Err(Untakable::Shared)));
        // SAFETY: one thread uses the cell, and keeps no reference.
        unsafe { cell.put(vec![2]) };
        assert_eq!((&kept[..], is_shared()), (&[1][..], false));
        drop(kept);
        // SAFETY: one thread uses the cell, and keeps no reference.
        let take = || unsafe { cell.take() };
        assert_eq!((take(), take()), (Ok(vec![2]), Err(Untakable::Empty)));
        // SAFETY: one thread uses the cell, and keeps no reference.
        unsafe { cell.put(vec![3]) };
        // SAFETY: one thread uses the cell, and keeps no reference.
        unsafe { cell.put_shared(Arc::new(vec![4])) };
        assert_eq!(take(), Ok(vec![4]));
        let kept = Arc::new(vec![5]);
        // SAFETY: one thread uses the cell, and keeps no reference.
        unsafe { cell.put_shared(kept.clone()) };
        // SAFETY: one thread uses the cell, and keeps no reference.
        let take_shared = || unsafe { cell.take_shared() };
        assert_eq!((take_shared(), take_shared(), take()), (Some(kept), None, Err(Untakable::Empty)));
    }
    /// Panics when it is dropped.
    struct Bomb(bool);

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0, "it goes off");
        }
    }

    /// Seen to fail with a `put_shared` that drops the old value first: the new one had no other owners.
    #[test]
    fn a_shared_value_is_known_as_such_after_the_drop_of_the_old_one_panics() {
        let cell = VarCell::new(Some(Bomb(true)));
        let new = Arc::new(Bomb(false));
        // SAFETY: one thread uses the cell, and keeps no reference.
        let put = std::panic::AssertUnwindSafe(|| unsafe { cell.put_shared(new.clone()) });
        std::panic::catch_unwind(put).expect_err("the drop of the old value panics");
        // SAFETY: one thread uses the cell, and keeps no reference.
        assert!(unsafe { cell.is_shared() });
    }
}
