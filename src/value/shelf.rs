//! A variable's value: written in place while nobody outside has it, and on a new shelf when somebody does.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A variable's value as it was at one version. Cheap to clone, and never changes: who writes the variable meanwhile writes elsewhere.
pub struct Snapshot<T>(Arc<Shelf<T>>);

/// Where a value lies, or none does.
struct Shelf<T>(UnsafeCell<Option<T>>);

// SAFETY: a shelf is written only by who alone has it; a shared one is only read, and dropped by whoever has it last.
unsafe impl<T: Send + Sync> Send for Shelf<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shelf<T> {}

impl<T> Deref for Snapshot<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: who has a snapshot shares the shelf, so nobody writes it.
        let value = unsafe { &*self.0.0.get() };
        value.as_ref().expect("a snapshot is of a value")
    }
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The value of a variable. Who may touch it when is settled elsewhere: by the variable's queue.
pub(crate) struct VarCell<T>(UnsafeCell<Arc<Shelf<T>>>);

// SAFETY: as a shelf; the pointer to it changes only under a granted write.
unsafe impl<T: Send + Sync> Send for VarCell<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for VarCell<T> {}

impl<T> VarCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(shelf(Some(value))))
    }

    /// Returns the value, if there is one.
    ///
    /// # Safety
    /// The caller has been granted to read or to write, and does not write while it has the reference.
    pub(crate) unsafe fn get(&self) -> Option<&T> {
        // SAFETY: nobody writes while somebody reads.
        let shelf = unsafe { &*self.0.get() };
        // SAFETY: as above.
        unsafe { &*shelf.0.get() }.as_ref()
    }

    /// Returns the value, to keep. None if there is none.
    ///
    /// # Safety
    /// The caller has been granted to read or to write.
    pub(crate) unsafe fn snapshot(&self) -> Option<Snapshot<T>> {
        // SAFETY: as in `get`.
        unsafe { self.get() }?;
        // SAFETY: as above.
        Some(Snapshot(unsafe { &*self.0.get() }.clone()))
    }

    /// Writes the value.
    ///
    /// # Safety
    /// The caller has been granted to write, and has no reference to the value.
    pub(crate) unsafe fn put(&self, value: T) {
        // SAFETY: nobody else is here.
        let place = unsafe { &mut *self.0.get() };
        match own(place) {
            Some(own) => *own = Some(value),
            None => *place = shelf(Some(value)),
        }
    }

    /// Takes the value out.
    ///
    /// # Errors
    /// If there is none, or a snapshot of it is kept.
    ///
    /// # Safety
    /// As [`VarCell::put`].
    pub(crate) unsafe fn take(&self) -> Result<T, Untakable> {
        // SAFETY: nobody else is here.
        let place = unsafe { &mut *self.0.get() };
        own(place).ok_or(Untakable::Shared)?.take().ok_or(Untakable::Empty)
    }
}

/// Why a value cannot be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untakable {
    Empty,
    Shared,
}

fn shelf<T>(value: Option<T>) -> Arc<Shelf<T>> {
    Arc::new(Shelf(UnsafeCell::new(value)))
}

/// Returns what lies there, if nobody else has the shelf.
fn own<T>(place: &mut Arc<Shelf<T>>) -> Option<&mut Option<T>> {
    Arc::get_mut(place).map(|shelf| shelf.0.get_mut())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail with a `put` that writes on the shelf that a snapshot has.
    #[test]
    fn a_snapshot_stays_as_it_was() {
        let cell = VarCell::new(vec![1]);
        // SAFETY: one thread, and no reference is kept.
        let snapshot = unsafe { cell.snapshot() }.expect("there is a value");
        // SAFETY: as above.
        assert_eq!(unsafe { cell.take() }, Err(Untakable::Shared));
        // SAFETY: as above.
        unsafe { cell.put(vec![2]) };
        assert_eq!((&*snapshot, format!("{snapshot:?}")), (&vec![1], "[1]".to_owned()));
        drop(snapshot);
        // SAFETY: as above.
        let take = || unsafe { cell.take() };
        assert_eq!((take(), take()), (Ok(vec![2]), Err(Untakable::Empty)));
    }
}
