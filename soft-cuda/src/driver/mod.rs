//! The driver: devices, streams that are threads, memory that records its accesses. Only the C functions are
//! elsewhere, in [`crate::api`].
//!
//! There are two times. A call is *issued* on the caller's thread: there operations are numbered, faults are
//! assigned, memory is looked up and order is checked. So reports depend only on the calls, and not on the
//! schedule of threads. An operation is *executed* later on the thread of its stream, without locks.

pub(crate) mod allocation;
pub(crate) mod callback;
pub(crate) mod calls;
pub(crate) mod capture;
pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod executable;
pub(crate) mod execute;
pub(crate) mod fault;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod host;
pub(crate) mod issue;
pub(crate) mod kernel;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod progress;
pub(crate) mod queue;
pub(crate) mod stall;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod violation;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks. A panic on another thread does not matter.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading; see [`lock`].
pub(crate) fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing; see [`lock`].
pub(crate) fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
