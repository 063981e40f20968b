//! The primitives that protocols between threads are built on: std's, or loom's in a model. The only file that names loom.

#[cfg(not(anabranch_loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, fence},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park},
};

#[cfg(anabranch_loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, fence},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park},
};

pub(crate) use std::sync::atomic::Ordering;

/// Locks, and goes on after a panic elsewhere: every critical section of this crate leaves its data whole at each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
