//! The mode of an access: how an operation uses a variable.

/// How an operation uses a variable: bits, because it may have several uses of one variable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(pub(super) u8);

/// It is read.
pub(super) const READS: u8 = 1;
/// Its value is taken out.
pub(super) const TAKES: u8 = 2;
/// It has a new value afterwards.
pub(super) const WRITES: u8 = 4;
/// No other operation uses it meanwhile. The request keeps this bit, not the address.
pub(super) const EXCLUDES: u8 = 8;

impl Mode {
    pub(crate) const READ: Self = Self(READS);
    pub(crate) const TAKE: Self = Self(READS | TAKES | EXCLUDES);
    pub(crate) const WRITE: Self = Self(WRITES | EXCLUDES);
    /// Exclusive, and leaves the variable unchanged.
    pub(crate) const EXCLUSIVE: Self = Self(EXCLUDES);
    pub(super) const IN_ADDRESS: u8 = READS | TAKES | WRITES;

    pub(super) fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }

    pub(crate) fn is_read(self) -> bool {
        self.has(READS)
    }

    pub(crate) fn is_exclusive(self) -> bool {
        self.has(EXCLUDES)
    }

    /// Returns true if the variable has another value afterwards, or none.
    pub(crate) fn changes(self) -> bool {
        self.has(TAKES | WRITES)
    }
}
