//! One value in a run's memory: absent, in place, or shared as an `Arc`. Zeroed memory is an absent value.

use std::sync::Arc;

/// `repr(u8)` makes the first byte the tag, so that a zeroed [`Frame`](super::Frame) is a frame of `Empty`
/// cells.
#[repr(u8)]
pub(super) enum Cell<T> {
    Empty = 0,
    /// The value itself: read by reference, moved out by the node that takes it.
    InPlace(T) = 1,
    /// A value that async nodes, inputs or outputs hold together with the run.
    Shared(Arc<T>) = 2,
}

impl<T> Cell<T> {
    pub(super) fn get(&self) -> &T {
        match self {
            Cell::InPlace(value) => value,
            Cell::Shared(value) => value,
            Cell::Empty => absent(),
        }
    }

    /// Returns the value without reading the tag.
    ///
    /// # Safety
    /// The value is in place.
    #[inline(always)]
    pub(super) unsafe fn get_in_place(&self) -> &T {
        match self {
            Cell::InPlace(value) => value,
            // SAFETY: the caller promises that the value is in place.
            _ => unsafe { std::hint::unreachable_unchecked() },
        }
    }

    pub(super) fn share(&self) -> Arc<T> {
        match self {
            Cell::Shared(value) => value.clone(),
            _ => absent(),
        }
    }

    pub(super) fn take_shared(&mut self) -> Arc<T> {
        match std::mem::replace(self, Cell::Empty) {
            Cell::Shared(value) => value,
            _ => absent(),
        }
    }

    pub(super) fn take_as_shared(&mut self) -> Arc<T> {
        match std::mem::replace(self, Cell::Empty) {
            Cell::InPlace(value) => Arc::new(value),
            Cell::Shared(value) => value,
            Cell::Empty => absent(),
        }
    }

    /// Moves the value into an `Arc`.
    pub(super) fn into_shared(self) -> Self {
        match self {
            Cell::InPlace(value) => Cell::Shared(Arc::new(value)),
            shared => shared,
        }
    }

    pub(super) fn take(&mut self) -> T {
        match std::mem::replace(self, Cell::Empty) {
            Cell::InPlace(value) => value,
            _ => absent(),
        }
    }
}

/// A node that runs has its inputs: the executor skips it otherwise, and a plan orders takers last.
#[cold]
#[inline(never)]
fn absent() -> ! {
    unreachable!("a node ran before the value it reads was there")
}
