//! What a variable is to those who order its uses, and its value behind that.

use std::borrow::Cow;
use std::ptr::NonNull;

use super::queue::{Queue, Request};
use super::trail::Trail;
use crate::bridge::shielded;
use crate::error::{Error, Kind};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::value::VarCell;

/// A variable without its type.
pub(super) struct Place {
    pub(super) queue: Queue,
    pub(super) name: Cow<'static, str>,
    /// The address of the hub that it belongs to: to compare.
    pub(super) hub: usize,
    version: AtomicU64,
    /// It had no value when it was made.
    begins_empty: bool,
    /// Why it has no value that could be read. Changed under a granted write only.
    poison: Mutex<Option<Error>>,
    is_poisoned: AtomicBool,
    /// What devices may still be doing to it.
    pub(super) trail: Trail,
}

impl Place {
    pub(super) fn new(name: Cow<'static, str>, hub: usize, begins_empty: bool) -> Self {
        Self {
            queue: Queue::new(),
            name,
            hub,
            version: AtomicU64::new(0),
            begins_empty,
            poison: Mutex::new(None),
            is_poisoned: AtomicBool::new(false),
            trail: Trail::new(),
        }
    }

    /// What to say to who wants the value that was taken.
    pub(super) fn empty(&self) -> Error {
        Kind::VarEmpty { variable: self.name.clone() }.into()
    }

    pub(super) fn version(&self) -> u64 {
        // ORDERING: Acquire: who sees a version sees what was written.
        self.version.load(Ordering::Acquire)
    }

    /// Returns true if nothing has written it yet, and it had no value before.
    pub(super) fn is_unwritten(&self) -> bool {
        self.begins_empty && self.version() == 0
    }

    /// Counts a write.
    pub(super) fn count_write(&self) {
        // Only who is granted to write counts, so this needs no read-modify-write.
        self.version.store(self.version.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns why it cannot be read.
    pub(super) fn poison(&self) -> Option<Error> {
        // ORDERING: Relaxed here and below: the grant that the caller has orders it.
        if !self.is_poisoned.load(Ordering::Relaxed) {
            return self.trail.failure();
        }
        lock(&self.poison).clone()
    }

    pub(super) fn set_poison(&self, poison: Option<Error>) {
        if poison.is_none() && !self.is_poisoned.load(Ordering::Relaxed) {
            return;
        }
        self.is_poisoned.store(poison.is_some(), Ordering::Relaxed);
        let old = std::mem::replace(&mut *lock(&self.poison), poison);
        // An error of the user's, perhaps its last owner.
        let _ = shielded(|| drop(old));
    }
}

/// A variable.
pub(super) struct Block<T> {
    pub(super) place: Place,
    pub(super) cell: VarCell<T>,
}

/// A variable as an operation has it that waits for it or uses it. It needs no count: what frees the variable stands behind the operation in its queue.
pub(super) struct Held<T>(NonNull<Block<T>>);

impl<T> Held<T> {
    pub(super) fn new(block: &Block<T>) -> Self {
        Self(NonNull::from(block))
    }

    /// # Safety
    /// The operation stands in the variable's queue, and has not left it.
    pub(super) unsafe fn block<'a>(&self) -> &'a Block<T> {
        // SAFETY: it is freed only behind that.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: a shared reference to a block.
unsafe impl<T: Send + Sync> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Held<T> {}

/// What an operation asks of one variable.
pub(super) struct Asked {
    place: NonNull<Place>,
    pub(super) how: How,
    pub(super) request: Request,
}

// SAFETY: a shared reference to a place, which is Sync, and an atomic.
unsafe impl Send for Asked {}
// SAFETY: as above.
unsafe impl Sync for Asked {}

/// How an operation uses a variable; several uses add up.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct How {
    pub(super) is_read: bool,
    pub(super) is_taken: bool,
    /// It has a new value afterwards.
    pub(super) is_written: bool,
    /// Nobody else may have it meanwhile.
    pub(super) is_alone: bool,
}

impl How {
    pub(super) const READ: Self = Self { is_read: true, is_taken: false, is_written: false, is_alone: false };
    pub(super) const TAKE: Self = Self { is_read: true, is_taken: true, is_written: false, is_alone: true };
    pub(super) const WRITE: Self = Self { is_read: false, is_taken: false, is_written: true, is_alone: true };
    /// Waits until it could be written, and leaves it as it is.
    pub(super) const ALONE: Self = Self { is_read: false, is_taken: false, is_written: false, is_alone: true };

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            is_read: self.is_read | other.is_read,
            is_taken: self.is_taken | other.is_taken,
            is_written: self.is_written | other.is_written,
            is_alone: self.is_alone | other.is_alone,
        }
    }

    /// Whether it is another value afterwards, or none.
    pub(super) fn changes(self) -> bool {
        self.is_written || self.is_taken
    }
}

impl Asked {
    #[inline]
    pub(super) fn new(place: &Place, how: How) -> Self {
        Self { place: NonNull::from(place), how, request: Request::new(how.is_alone) }
    }

    /// Uses the variable in one way more. Returns true if it is taken and read as well.
    #[inline]
    pub(super) fn add(&mut self, how: How) -> bool {
        let is_aliased = self.how.is_taken && how.is_read || how.is_taken && self.how.is_read;
        self.how = self.how.and(how);
        self.request = Request::new(self.how.is_alone);
        is_aliased
    }

    #[inline]
    pub(super) fn address(&self) -> usize {
        self.place.addr().get()
    }

    /// # Safety
    /// The variable is alive: somebody has a handle to it, or the request stands in its queue and has not left it.
    pub(super) unsafe fn place<'a>(&self) -> &'a Place {
        // SAFETY: by the caller's promise.
        unsafe { self.place.as_ref() }
    }
}
