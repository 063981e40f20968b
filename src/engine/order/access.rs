//! An operation's access to one variable: how it uses that, and a request.

use std::ptr::NonNull;

use super::queue::Request;
use super::variable::Variable;

/// How an operation uses a variable: bits, because it may have several uses of one variable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(u8);

/// It is read.
const READS: u8 = 1;
/// Its value is taken out.
const TAKES: u8 = 2;
/// It has a new value afterwards.
const WRITES: u8 = 4;
/// No other operation uses it meanwhile. The request keeps this bit, not the address.
const EXCLUDES: u8 = 8;

impl Mode {
    pub(crate) const READ: Self = Self(READS);
    pub(crate) const TAKE: Self = Self(READS | TAKES | EXCLUDES);
    pub(crate) const WRITE: Self = Self(WRITES | EXCLUDES);
    /// Exclusive, and leaves the variable unchanged.
    pub(crate) const EXCLUSIVE: Self = Self(EXCLUDES);
    const IN_ADDRESS: u8 = READS | TAKES | WRITES;

    fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }

    pub(crate) fn is_read(self) -> bool {
        self.has(READS)
    }

    pub(crate) fn is_taken(self) -> bool {
        self.has(TAKES)
    }

    pub(crate) fn is_written(self) -> bool {
        self.has(WRITES)
    }

    pub(crate) fn is_exclusive(self) -> bool {
        self.has(EXCLUDES)
    }

    /// Returns true if the variable has another value afterwards, or none.
    pub(crate) fn changes(self) -> bool {
        self.has(TAKES | WRITES)
    }
}

/// The bits of an address that keep the mode.
const MODE_BITS: usize = Mode::IN_ADDRESS as usize;
const _: () = assert!(align_of::<Variable>() > MODE_BITS, "a variable's address leaves room for the mode");

/// One operation's access to one variable.
pub(crate) struct Access {
    /// The address of a [`Variable`]. Its lowest bits are the mode, but for `EXCLUDES`, which the request
    /// keeps.
    address: NonNull<u8>,
    pub(super) request: Request,
}

// SAFETY: a shared reference to a variable, which is Sync, and an atomic.
unsafe impl Send for Access {}
// SAFETY: a shared reference to a variable, which is Sync, and an atomic.
unsafe impl Sync for Access {}

impl Access {
    #[inline]
    pub(crate) fn new(variable: &Variable, mode: Mode) -> Self {
        let bits = usize::from(mode.0) & MODE_BITS;
        let address = NonNull::from(variable).cast::<u8>().map_addr(|addr| addr | bits);
        Self { address, request: Request::new(mode.is_exclusive()) }
    }

    /// Adds a use of the same variable. Returns true if its value is taken and read as well.
    #[inline]
    pub(crate) fn add(&mut self, more: Mode) -> bool {
        let bits = usize::from(more.0) & MODE_BITS;
        let is_aliased = self.uses().is_taken() && more.is_read() || more.is_taken() && self.uses().is_read();
        self.address = self.address.map_addr(|addr| addr | bits);
        if more.is_exclusive() {
            self.request = Request::new(true);
        }
        is_aliased
    }

    /// Returns a value that fills memory, and is never read.
    #[inline(always)]
    pub(crate) fn filler(&self) -> Self {
        Self { address: self.address, request: Request::new(false) }
    }

    /// Returns the same access for another operation.
    #[inline(always)]
    pub(crate) fn again(&self) -> Self {
        Self { address: self.address, request: Request::new(self.request.is_write()) }
    }

    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        let exclusive = if self.request.is_write() { EXCLUDES } else { 0 };
        Mode(self.uses().0 | exclusive)
    }

    /// Returns the mode without a look at the request: it does not say whether the access is exclusive.
    #[inline]
    pub(crate) fn uses(&self) -> Mode {
        Mode((self.address.addr().get() & MODE_BITS) as u8)
    }

    /// Returns the address of the variable, to compare.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.address.addr().get() & !MODE_BITS
    }

    #[inline]
    pub(crate) fn is_of(&self, variable: &Variable) -> bool {
        self.address() == std::ptr::from_ref(variable).addr()
    }

    /// Returns the variable.
    ///
    /// # Safety
    /// The variable is alive: there is a handle to it, or the operation is in its queue.
    #[inline]
    pub(super) unsafe fn variable<'a>(&self) -> &'a Variable {
        let variable = self.address.as_ptr().map_addr(|addr| addr & !MODE_BITS).cast::<Variable>();
        // SAFETY: the caller promises that the variable is alive; `new` made the address from a reference.
        unsafe { &*variable }
    }
}
