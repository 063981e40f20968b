//! The ends of operations, and their errors, for the handles. An error is kept only if the operation has a
//! handle, and until that is dropped.

use std::collections::HashMap;
use std::task::Waker;

use crate::engine::order::{CHUNKS, Key, Left, Slots, chunk_and_index};
use crate::error::{Error, Result, shielded};
use crate::sync::{AtomicU64, Mutex, MutexGuard, OnceLock, Ordering, lock};

pub(super) struct Handles {
    pub(super) wakers: Wakers,
    failures: Mutex<HashMap<Key, Error>>,
    /// The length of `failures`, so that no thread takes the lock if nothing failed.
    failed: AtomicU64,
}

impl Handles {
    pub(super) fn new() -> Self {
        Self { wakers: Wakers::new(), failures: Mutex::default(), failed: AtomicU64::new(0) }
    }

    /// Ends an operation for its handle. Returns the waker of the future that awaits it.
    #[inline]
    #[must_use]
    pub(super) fn end(&self, slots: &Slots, operation: &Left, outcome: Result<()>) -> Option<Waker> {
        let (number, handle) = (operation.number(), slots.handle_of(operation));
        let key = handle.key(number);
        let is_kept = match outcome {
            Err(error) if handle.is_handled() => {
                self.keep_failure(key, error);
                true
            }
            Ok(()) => false,
            unreported => {
                let _ = shielded(|| drop(unreported));
                false
            }
        };
        let (was_handled, was_awaited) = handle.end(key);
        if is_kept && !was_handled {
            self.forget_failure(key);
        }
        if was_awaited { self.wakers.of(number).take() } else { None }
    }

    /// Ends the handle of an operation.
    #[inline]
    pub(super) fn let_go(&self, slots: &Slots, key: Key, is_awaited: bool) {
        if !slots.handle(key.number()).let_go(key, is_awaited) {
            self.forget_failure(key);
        }
    }

    fn keep_failure(&self, key: Key, error: Error) {
        let mut failures = lock(&self.failures);
        failures.insert(key, error);
        // ORDERING: Relaxed: the swap in `HandleState::end` publishes it.
        self.failed.store(failures.len() as u64, Ordering::Relaxed);
    }

    /// Drops the error of an ended operation that has no handle.
    #[inline(never)]
    fn forget_failure(&self, key: Key) {
        let unreported = self.take_failure(key);
        let _ = shielded(|| drop(unreported));
    }

    /// Takes the error of an ended operation.
    pub(super) fn take_failure(&self, key: Key) -> Option<Error> {
        // ORDERING: Relaxed: the caller has seen the end of the operation.
        if self.failed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut failures = lock(&self.failures);
        let failure = failures.remove(&key);
        // ORDERING: Relaxed: it changes only under the lock.
        self.failed.store(failures.len() as u64, Ordering::Relaxed);
        failure
    }
}

/// The wakers of futures that await pending operations: one place for each slot, so that different
/// operations do not contend. Those of a chunk of slots are made together when an operation of the chunk is
/// first awaited.
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
