//! The right to use the variables of an operation.

use std::marker::PhantomData;

/// Shows that an operation has been granted all its requests, and has not left its queues. Made by
/// [`Granted`](super::operation::Granted), for the body that it runs.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'g>(PhantomData<&'g ()>);

impl Grant<'_> {
    /// # Safety
    /// An operation has been granted all its requests, and does not leave its queues as long as the grant
    /// lives. Only the body of that operation gets the grant.
    pub(super) unsafe fn new() -> Self {
        Self(PhantomData)
    }
}
