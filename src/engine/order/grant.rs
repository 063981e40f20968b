//! The right to use the variables of an operation.

use std::marker::PhantomData;

/// Shows that an operation has been granted all that it asked for, and has not left its queues. Made by those
/// who run operations: see [`Granted`](super::operation::Granted).
#[derive(Clone, Copy, Debug)]
pub struct Grant<'g>(PhantomData<&'g ()>);

impl Grant<'_> {
    /// # Safety
    /// An operation has been granted all that it asked for, and does not leave its queues as long as the
    /// grant lives. Only that operation's body gets the grant.
    pub(super) unsafe fn new() -> Self {
        Self(PhantomData)
    }
}
