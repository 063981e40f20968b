//! Who waits for which pending operation: a place for each slot, so that neither those who wait nor those who
//! wake meet each other.

use std::task::Waker;

use super::slots::{CHUNKS, chunk_and_index};
use crate::sync::{Mutex, MutexGuard, OnceLock, lock};

/// Where the waker is kept of who awaits a slot's operation: made for a chunk of slots together, when one of
/// them is awaited.
pub(super) struct Wakers([OnceLock<Box<[Place]>>; CHUNKS]);

type Place = Mutex<Option<Waker>>;

impl Wakers {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    /// Returns a slot's place. As long as the caller has it, nobody else has the operation that is in the
    /// slot awaited, or woken.
    pub(super) fn of(&self, number: u32) -> MutexGuard<'_, Option<Waker>> {
        let (chunk, index, slots) = chunk_and_index(number);
        lock(&self.0[chunk].get_or_init(|| (0..slots).map(|_| Mutex::new(None)).collect())[index])
    }
}
