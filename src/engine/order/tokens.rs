//! Tokens: what a thread may do with a pending operation. For each operation that no queue and no list has,
//! one token exists.
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

use super::grant::Grant;

/// The slot of an operation, and its number: looked up once.
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

/// An operation in its slot, which is to enter the queues of its variables.
#[derive(Debug)]
#[must_use = "the operation is to enter its queues"]
pub(crate) struct Entering(Spot);

/// An operation that has been granted its variables: the right to run it.
#[derive(Debug)]
#[must_use = "the operation is to be run and ended"]
pub(crate) struct Runnable(Spot);

/// An operation that has left its queues, or has freed its variable: the right to end it.
#[derive(Debug)]
#[must_use = "the operation is to be ended"]
pub(crate) struct Left {
    slot: NonNull<u8>,
    number: u32,
    /// The looks that are released at the end. Beside the number, so that a token is two words, which come in
    /// registers.
    looks: u32,
}

// SAFETY: it points to a slot, which is Sync.
unsafe impl Send for Left {}
// SAFETY: it points to a slot, which is Sync.
unsafe impl Sync for Left {}

impl Entering {
    pub(super) fn new(spot: Spot) -> Self {
        Self(spot)
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }

    pub(super) fn spot(&self) -> Spot {
        self.0
    }
}

impl Runnable {
    #[inline]
    pub(super) fn new(spot: Spot) -> Self {
        Self(spot)
    }

    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }

    pub(super) fn spot(&self) -> Spot {
        self.0
    }

    /// The caller has left the queues of the operation, and releases so many looks at its end.
    pub(super) fn into_left(self, looks: u32) -> Left {
        let Spot { number, slot } = self.0;
        Left { slot, number, looks }
    }
}

impl Left {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn spot(&self) -> Spot {
        Spot { number: self.number, slot: self.slot }
    }

    pub(super) fn looks(&self) -> u32 {
        self.looks
    }
}

/// The right to run operations of an engine that has no workers. It is to be ended: see
/// [`Exclusive::end`](super::Exclusive::end).
#[must_use = "the engine is to be given back"]
pub(crate) struct Turn(());

impl Turn {
    pub(super) fn new() -> Self {
        Self(())
    }
}

/// Shows that no operation is pending, and that none will be during a turn.
pub(crate) struct Alone<'t>(PhantomData<&'t Turn>);

impl<'t> Alone<'t> {
    pub(super) fn new(_: &'t Turn) -> Self {
        Self(PhantomData)
    }

    /// Returns a grant for any variable: no operation uses one.
    pub(crate) fn grant(&self) -> Grant<'_> {
        // SAFETY: no operation is pending during the turn, so no other thread uses a variable of the engine.
        unsafe { Grant::new() }
    }
}
