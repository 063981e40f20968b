//! The state of the handle to an operation: one word in its slot. It has the key of the slot's operation, so
//! a handle to an earlier one sees that its operation has ended.
//!
//! ```text
//!  event             before                       after
//!  begin (push)      key                          key | HANDLED
//!  await             key | HANDLED                key | HANDLED | AWAITED
//!  await again       key | HANDLED | AWAITED      unchanged
//!  let go (drop)     key | HANDLED                key
//!  let go            key | HANDLED | AWAITED      key | AWAITED
//!  end               key | any flags              next key
//!  await, let go     another key                  unchanged: the operation has ended
//! ```

use std::num::NonZeroU64;

use crate::sync::{AtomicU64, Ordering};

/// There is a handle to the operation.
const HANDLED: u64 = 1;
/// A future waits for its end.
const AWAITED: u64 = 2;
/// The difference of the keys of two operations in a row.
const OPERATION: u64 = 4;
const FLAGS: u64 = HANDLED | AWAITED;

#[derive(Default)]
pub(crate) struct HandleState(AtomicU64);

/// The key of an operation, which differs from those of all others of its engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    /// The number of its slot, plus one: so that an `Option<Key>` is two words, which come in registers. It
    /// is a word wide, because padding would be copied byte by byte.
    after: NonZeroU64,
    /// The slot's state, without flags.
    operation: u64,
}

impl Key {
    /// Returns the key of the operation of a slot whose state is `state`.
    #[inline(always)]
    fn new(number: u32, state: u64) -> Self {
        Self { after: NonZeroU64::MIN.saturating_add(number.into()), operation: state & !FLAGS }
    }

    /// Returns the number of its slot.
    #[inline(always)]
    pub(crate) fn number(self) -> u32 {
        (self.after.get() - 1) as u32
    }

    /// Returns true for one in `many` operations; `many` is a power of two. Slots are used in turn, and each
    /// counts its operations.
    #[inline(always)]
    pub(crate) fn is_one_of(self, many: u64) -> bool {
        (self.after.get() + self.operation / OPERATION).is_multiple_of(many)
    }
}

impl HandleState {
    /// Records that there is a handle to the operation that is pushed now.
    #[inline(always)]
    pub(super) fn begin(&self, number: u32) -> Key {
        // ORDERING: Relaxed, both: the slot is free, so no other thread uses the word.
        let operation = self.0.load(Ordering::Relaxed);
        self.0.store(operation | HANDLED, Ordering::Relaxed);
        Key::new(number, operation)
    }

    /// Returns the key of the operation in the slot.
    pub(crate) fn key(&self, number: u32) -> Key {
        // ORDERING: Relaxed: the caller has the operation, so its key does not change.
        Key::new(number, self.0.load(Ordering::Relaxed))
    }

    /// Returns true if there is a handle, which may be dropped at any time.
    #[inline]
    pub(crate) fn is_handled(&self) -> bool {
        // ORDERING: Relaxed: a hint; the swap in `end` decides.
        self.0.load(Ordering::Relaxed) & HANDLED != 0
    }

    /// Ends the operation. Returns whether there was a handle, and whether it was awaited.
    #[inline]
    pub(crate) fn end(&self, key: Key) -> (bool, bool) {
        let next = key.operation + OPERATION;
        // ORDERING: Relaxed: without a handle no other thread uses the word.
        if self.0.load(Ordering::Relaxed) & FLAGS == 0 {
            self.0.store(next, Ordering::Relaxed);
            return (false, false);
        }
        // ORDERING: AcqRel: Release pairs with the Acquire in `has_ended`. Acquire pairs with the Release in
        // `mark`, for the waker.
        let before = self.0.swap(next, Ordering::AcqRel);
        (before & HANDLED != 0, before & AWAITED != 0)
    }

    /// Returns true if the operation has ended.
    pub(crate) fn has_ended(&self, key: Key) -> bool {
        // ORDERING: Acquire pairs with the Release in `end`: what the operation did is visible.
        self.0.load(Ordering::Acquire) & !FLAGS != key.operation
    }

    /// Records that the operation is awaited. Returns false if it has ended.
    pub(crate) fn set_awaited(&self, key: Key) -> bool {
        self.mark(key, |state| state | AWAITED)
    }

    /// Records that there is no handle any more. Returns false if the operation has ended.
    #[inline]
    pub(crate) fn let_go(&self, key: Key, is_awaited: bool) -> bool {
        // ORDERING: AcqRel, and Acquire on failure, pair with the swap in `end`: if the operation has ended,
        // its failure is visible.
        let gone = self.0.compare_exchange(key.operation | HANDLED, key.operation, Ordering::AcqRel, Ordering::Acquire);
        gone.is_ok() || is_awaited && self.mark(key, |state| state & !HANDLED)
    }

    fn mark(&self, key: Key, change: impl Fn(u64) -> u64) -> bool {
        let change = |now: u64| (now & !FLAGS == key.operation).then(|| change(now));
        // ORDERING: AcqRel pairs with the swap in `end`: Release for the waker, Acquire if it has ended.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}
