//! Tokens: the rights of a thread to run or end a pending operation, and of a body to use its variables. For
//! each operation that is in no queue and no list, exactly one token exists.
//!
//! ```text
//!  push ──▶ Entering ──enter──▶ (in its queues) ──all granted──▶ Runnable ──leave──▶ Left ──end──▶ (slot free)
//!                                                                 │  ▲
//!                                                                 ▼  │
//!                                                       the ready list, a parked future,
//!                                                       the list of a use by a device
//! ```

use std::marker::PhantomData;
use std::ptr::NonNull;

/// The slot of an operation, and its number. Kept together, so that the slot is looked up once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) number: u32,
    /// The address of a `Slot`.
    pub(super) slot: NonNull<u8>,
}

// SAFETY: it points to a slot, which is Sync.
unsafe impl Send for Spot {}
// SAFETY: it points to a slot, which is Sync.
unsafe impl Sync for Spot {}

/// The right to enter an operation, which is in its slot, into the queues of its variables.
#[derive(Debug)]
#[must_use = "the operation is to enter its queues"]
pub(crate) struct Entering(pub(super) Spot);

/// The right to run an operation, which has been granted its variables.
#[derive(Debug)]
#[must_use = "the operation is to be run and ended"]
pub(crate) struct Runnable(pub(super) Spot);

/// The right to end an operation, which has left its queues or has freed its variable.
#[derive(Debug)]
#[must_use = "the operation is to be ended"]
pub(crate) struct Left {
    slot: NonNull<u8>,
    number: u32,
    /// The number of refs to release at the end. Beside the number, so that a token is two words, which come
    /// in registers.
    pub(super) refs: u32,
}

// SAFETY: it points to a slot, which is Sync.
unsafe impl Send for Left {}
// SAFETY: it points to a slot, which is Sync.
unsafe impl Sync for Left {}

impl Runnable {
    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }

    /// Makes it the right to end the operation. The caller has left its queues; the end releases `refs`.
    pub(super) fn into_left(self, refs: u32) -> Left {
        let Spot { number, slot } = self.0;
        Left { slot, number, refs }
    }
}

impl Left {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn spot(&self) -> Spot {
        Spot { number: self.number, slot: self.slot }
    }
}

/// Shows that an operation has been granted all its requests, and has not left its queues. Made by
/// [`Granted`](super::Granted), for the body that it runs.
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

/// The right to run operations of an engine that has no workers. [`Exclusive::end`](super::Exclusive::end)
/// takes it back.
#[must_use = "the engine is to be given back"]
pub(crate) struct Turn(pub(super) ());

/// Shows that no operation is in a queue, and that none enters one during a turn.
pub(crate) struct NothingPending<'t>(pub(super) PhantomData<&'t Turn>);

impl NothingPending<'_> {
    /// Returns a grant for any variable of the engine, because no operation uses one.
    pub(crate) fn grant(&self) -> Grant<'_> {
        // SAFETY: `self` shows that no operation is in a queue during the turn, so no other thread uses a
        // variable of the engine.
        unsafe { Grant::new() }
    }
}
