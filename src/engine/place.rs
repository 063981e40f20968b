//! What a variable is to those who order its uses, and its value behind that.

use std::ptr::NonNull;

use super::device_uses::DeviceUses;
use super::name::Name;
use super::queue::{Queue, Request};
use super::var::drop_panicked;
use crate::error::shielded;
use crate::error::{Error, Kind, Result};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::value::VarCell;

/// A variable without its type. In front what those who push touch, and at the end what those who run
/// operations do: 64 bytes are between them, so that the ones do not wait for the others' cache lines.
#[repr(C, align(16))]
pub(super) struct Place {
    pub(super) queue: Queue,
    /// The address of the hub that it belongs to: to compare.
    pub(super) hub: usize,
    pub(super) name: Name,
    /// Why it has no value that could be read. Changed under a granted write only.
    poison: Mutex<Option<Error>>,
    _apart: [u64; 2],
    version: AtomicU64,
    is_poisoned: AtomicBool,
    /// What devices may still be doing to it.
    pub(super) device_uses: DeviceUses,
    /// It had no value when it was made.
    begins_empty: bool,
}

impl Place {
    pub(super) fn new(name: Name, hub: usize, begins_empty: bool) -> Self {
        Self {
            queue: Queue::new(),
            name,
            hub,
            version: AtomicU64::new(0),
            begins_empty,
            poison: Mutex::new(None),
            _apart: [0; 2],
            is_poisoned: AtomicBool::new(false),
            device_uses: DeviceUses::new(),
        }
    }

    /// What to say to who wants the value that was taken.
    pub(super) fn empty(&self) -> Error {
        Kind::VarEmpty { variable: self.name.to_cow() }.into()
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

    /// Returns true if there may be something to [clear](Place::set_poison), or to [hear](Place::poison):
    /// what went wrong with it, or a trail.
    #[inline]
    pub(super) fn may_be_poisoned(&self) -> bool {
        // ORDERING: Relaxed here and below: the grant that the caller has orders it.
        self.is_poisoned.load(Ordering::Relaxed) || self.device_uses.has_begun()
    }

    /// Returns why it cannot be read.
    #[inline]
    pub(super) fn poison(&self) -> Option<Error> {
        if self.may_be_poisoned() { self.why_poisoned() } else { None }
    }

    #[cold]
    fn why_poisoned(&self) -> Option<Error> {
        if !self.is_poisoned.load(Ordering::Relaxed) {
            return self.device_uses.failure();
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

impl<T> Block<T> {
    /// Runs a write of the value, which drops the old one.
    ///
    /// A panic of that drop becomes an error: other new values are still to be written, and their drops may
    /// panic, too.
    ///
    /// # Safety
    /// As [`VarCell::put`].
    #[inline(always)]
    pub(super) unsafe fn overwrite(&self, write: impl FnOnce()) -> Result<()> {
        // SAFETY: the operation has been granted to write, and the reference is gone before it does.
        if std::mem::needs_drop::<T>() && unsafe { self.cell.get() }.is_some() {
            return shielded(write).map_err(|message| drop_panicked(self.place.name.to_cow(), message));
        }
        write();
        Ok(())
    }
}

/// A variable as an operation has it that waits for it or uses it. It needs no count: what frees the variable
/// stands behind the operation in its queue.
#[derive(Debug)]
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
    /// Points to a [`Place`]; the lowest bits say how it is used, for as much as the request does not.
    place: NonNull<u8>,
    pub(super) request: Request,
}

/// The bits of an address that say how it is used.
const USE: usize = 7;
const _: () = assert!(align_of::<Place>() > USE, "a place's address leaves room for how it is used");

// SAFETY: a shared reference to a place, which is Sync, and an atomic.
unsafe impl Send for Asked {}
// SAFETY: as above.
unsafe impl Sync for Asked {}

/// How an operation uses a variable: bits, because several uses add up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct How(u8);

/// It is read.
const READS: u8 = 1;
/// Nothing is left in it.
const TAKES: u8 = 2;
/// It has a new value afterwards.
const WRITES: u8 = 4;
/// Nobody else has it meanwhile: as its request says it, it is not kept in the address.
const EXCLUDES: u8 = 8;

impl How {
    pub(super) const READ: Self = Self(READS);
    pub(super) const TAKE: Self = Self(READS | TAKES | EXCLUDES);
    pub(super) const WRITE: Self = Self(WRITES | EXCLUDES);
    /// It is left as it is.
    pub(super) const ALONE: Self = Self(EXCLUDES);

    fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }

    pub(super) fn is_read(self) -> bool {
        self.has(READS)
    }

    pub(super) fn is_alone(self) -> bool {
        self.has(EXCLUDES)
    }

    /// Whether the variable is another afterwards, or none.
    pub(super) fn changes(self) -> bool {
        self.has(TAKES | WRITES)
    }
}

impl Asked {
    #[inline]
    pub(super) fn new(place: &Place, how: How) -> Self {
        let bits = usize::from(how.0) & USE;
        let place = NonNull::from(place).cast::<u8>().map_addr(|addr| addr | bits);
        Self { place, request: Request::new(how.is_alone()) }
    }

    /// Uses the variable in one way more. Returns true if it is taken and read as well.
    #[inline]
    pub(super) fn add(&mut self, more: How) -> bool {
        let bits = usize::from(more.0) & USE;
        let is_aliased = self.is_taken() && more.is_read() || more.has(TAKES) && self.is_read();
        self.place = self.place.map_addr(|addr| addr | bits);
        if more.is_alone() {
            self.request = Request::new(true);
        }
        is_aliased
    }

    /// Something to fill a place with that nobody looks at.
    #[inline(always)]
    pub(super) fn filler(&self) -> Self {
        Self { place: self.place, request: Request::new(false) }
    }

    /// The same once more, for another operation.
    pub(super) fn again(&self) -> Self {
        Self { place: self.place, request: Request::new(self.request.is_write()) }
    }

    /// The same with what another asks of the same variable.
    pub(super) fn add_all(&mut self, more: &Self) -> bool {
        self.add(more.how())
    }

    pub(super) fn how(&self) -> How {
        let alone = if self.request.is_write() { EXCLUDES } else { 0 };
        How(self.bits() | alone)
    }

    #[inline]
    fn bits(&self) -> u8 {
        (self.place.addr().get() & USE) as u8
    }

    #[inline]
    pub(super) fn is_read(&self) -> bool {
        self.bits() & READS != 0
    }

    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        self.bits() & TAKES != 0
    }

    #[inline]
    pub(super) fn is_written(&self) -> bool {
        self.bits() & WRITES != 0
    }

    /// Whether the variable is another afterwards, or none.
    #[inline]
    pub(super) fn changes(&self) -> bool {
        self.bits() & (TAKES | WRITES) != 0
    }

    #[inline]
    pub(super) fn address(&self) -> usize {
        self.place.addr().get() & !USE
    }

    /// Whether it is that variable.
    #[inline]
    pub(super) fn is_of(&self, place: &Place) -> bool {
        self.address() == std::ptr::from_ref(place).addr()
    }

    /// # Safety
    /// The variable is alive: somebody has a handle to it, or the request stands in its queue and has not
    /// left it.
    pub(super) unsafe fn place<'a>(&self) -> &'a Place {
        let place = self.place.as_ptr().map_addr(|addr| addr & !USE).cast::<Place>();
        // SAFETY: by the caller's promise.
        unsafe { &*place }
    }
}
