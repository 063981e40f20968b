//! A variable's value: written in place while nobody outside has it, and elsewhere when somebody does.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::sync::{AtomicBool, Ordering};

/// The value of a variable. Who may touch it when is settled elsewhere: by the variable's queue. What is
/// given out of it ([`VarCell::share`]) is never written again.
pub(crate) struct VarCell<T> {
    shelf: UnsafeCell<Shelf<T>>,
    /// The value was given out, so that somebody may have it still. As long as it was not, nobody needs to
    /// look, which costs a read-modify-write.
    is_given: AtomicBool,
}

/// Where a value lies, or none does.
enum Shelf<T> {
    Full(Arc<T>),
    /// The value was taken out; the next one may lie where it lay.
    Empty(Option<Arc<MaybeUninit<T>>>),
}

// SAFETY: a value is written only by who alone has it; the shelf changes only under a granted write.
unsafe impl<T: Send + Sync> Send for VarCell<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for VarCell<T> {}

impl<T> VarCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::of(Shelf::Full(Arc::new(value)))
    }

    /// A cell that nobody has written yet.
    pub(crate) fn empty() -> Self {
        Self::of(Shelf::Empty(None))
    }

    fn of(shelf: Shelf<T>) -> Self {
        Self { shelf: UnsafeCell::new(shelf), is_given: AtomicBool::new(false) }
    }

    /// Returns the value, if there is one.
    ///
    /// # Safety
    /// The caller has been granted to read or to write, and does not write while it has the reference.
    pub(crate) unsafe fn get(&self) -> Option<&T> {
        // SAFETY: nobody writes while somebody reads.
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
        // ORDERING: Relaxed: who writes was granted that behind this.
        self.is_given.store(true, Ordering::Relaxed);
        // SAFETY: as in `get`.
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
        // SAFETY: nobody else is here.
        let shelf = unsafe { &mut *self.shelf.get() };
        match shelf {
            Shelf::Full(old) => match self.own(old) {
                Some(own) => *own = value,
                None => {
                    self.is_given.store(false, Ordering::Relaxed);
                    *old = Arc::new(value);
                }
            },
            Shelf::Empty(place) => *shelf = Shelf::Full(fill(place.take(), value)),
        }
    }

    /// Returns the value if nobody else has it.
    #[inline]
    fn own<'a>(&self, value: &'a mut Arc<T>) -> Option<&'a mut T> {
        if self.is_given.load(Ordering::Relaxed) {
            let own = Arc::get_mut(value)?;
            self.is_given.store(false, Ordering::Relaxed);
            return Some(own);
        }
        // SAFETY: it was never given out, so this is the only Arc, and there is no Weak.
        Some(unsafe { &mut *Arc::as_ptr(value).cast_mut() })
    }

    /// Writes a value that others may have, too.
    ///
    /// # Safety
    /// As [`VarCell::put`].
    pub(crate) unsafe fn put_shared(&self, value: Arc<T>) {
        // SAFETY: nobody else is here.
        let shelf = unsafe { &mut *self.shelf.get() };
        *shelf = Shelf::Full(value);
        self.is_given.store(true, Ordering::Relaxed);
    }

    /// Returns true if there is a value and it has other owners. Operations share it only with a grant, and
    /// the caller's excludes all others. So a value without other owners gets none while the caller has its
    /// grant.
    ///
    /// # Safety
    /// As [`VarCell::put`].
    pub(crate) unsafe fn is_shared(&self) -> bool {
        // SAFETY: nobody else is here.
        let shelf = unsafe { &mut *self.shelf.get() };
        match shelf {
            Shelf::Full(value) => self.own(value).is_none(),
            Shelf::Empty(_) => false,
        }
    }

    /// Takes the value out.
    ///
    /// # Errors
    /// If there is none, or somebody keeps it.
    ///
    /// # Safety
    /// As [`VarCell::put`].
    pub(crate) unsafe fn take(&self) -> Result<T, Untakable> {
        // SAFETY: nobody else is here.
        let shelf = unsafe { &mut *self.shelf.get() };
        let Shelf::Full(value) = shelf else { return Err(Untakable::Empty) };
        if self.own(value).is_none() {
            return Err(Untakable::Shared);
        }
        let Shelf::Full(value) = std::mem::replace(shelf, Shelf::Empty(None)) else { unreachable!("it was seen") };
        // SAFETY: the address of an Arc's T, which is as large and as aligned as a MaybeUninit<T>; from here
        // on nobody takes it for a T.
        let place: Arc<MaybeUninit<T>> = unsafe { Arc::from_raw(Arc::into_raw(value).cast()) };
        // SAFETY: there is a value, nobody else has the Arc, and what is left is not dropped.
        let value = unsafe { place.assume_init_read() };
        *shelf = Shelf::Empty(Some(place));
        Ok(value)
    }
}

/// Why a value cannot be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untakable {
    Empty,
    Shared,
}

/// Puts a value where one lay that was taken, or in a new place.
fn fill<T>(place: Option<Arc<MaybeUninit<T>>>, value: T) -> Arc<T> {
    let Some(place) = place else { return Arc::new(value) };
    // SAFETY: an empty place is never given out, so this is the only Arc.
    unsafe { &mut *Arc::as_ptr(&place).cast_mut() }.write(value);
    // SAFETY: it was written just now.
    unsafe { place.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail with a `put` that writes over what was given out.
    #[test]
    fn what_is_given_out_stays_as_it_was() {
        let cell = VarCell::new(vec![1]);
        // SAFETY: one thread, and no reference is kept.
        let kept = unsafe { cell.share() }.expect("there is a value");
        // SAFETY: as above.
        let is_shared = || unsafe { cell.is_shared() };
        // SAFETY: as above.
        assert_eq!((is_shared(), unsafe { cell.take() }), (true, Err(Untakable::Shared)));
        // SAFETY: as above.
        unsafe { cell.put(vec![2]) };
        assert_eq!((&kept[..], is_shared()), (&[1][..], false));
        drop(kept);
        // SAFETY: as above.
        let take = || unsafe { cell.take() };
        assert_eq!((take(), take()), (Ok(vec![2]), Err(Untakable::Empty)));
        // SAFETY: as above.
        unsafe { cell.put(vec![3]) };
        // SAFETY: as above.
        unsafe { cell.put_shared(Arc::new(vec![4])) };
        assert_eq!(take(), Ok(vec![4]));
    }
}
