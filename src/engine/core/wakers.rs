//! The wakers of futures that await pending operations: one place for each slot, so that different operations
//! do not contend.

use std::task::Waker;

use crate::engine::order::{CHUNKS, chunk_and_index};
use crate::sync::{Mutex, MutexGuard, OnceLock, lock};

/// The places. Those of a chunk of slots are made together when an operation of the chunk is first awaited.
pub(super) struct Wakers([OnceLock<Box<[Place]>>; CHUNKS]);

type Place = Mutex<Option<Waker>>;

impl Wakers {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    /// Returns a slot's place, locked. Meanwhile no other thread registers or takes the waker.
    pub(super) fn of(&self, number: u32) -> MutexGuard<'_, Option<Waker>> {
        let (chunk, index, slots) = chunk_and_index(number);
        lock(&self.0[chunk].get_or_init(|| (0..slots).map(|_| Mutex::new(None)).collect())[index])
    }
}
