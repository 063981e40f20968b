//! The primitives that threads of this crate meet at: std's, or loom's in a model. Anabranch switches over by
//! the same cfg.

#[cfg(not(anabranch_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};

#[cfg(anabranch_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic::AtomicU64};

pub(crate) use std::sync::atomic::Ordering;

/// Locks. Every critical section of this crate leaves its data whole, so a panic elsewhere does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
