//! The driver itself: devices, streams that are threads, memory that remembers who touched it. Everything but
//! the C functions, which are in [`crate::api`].
//!
//! Two times matter. A call is *issued* on the caller's thread: there operations are numbered, faults are
//! dealt out, memory is looked up and order is checked, so that what is reported depends on the calls alone
//! and not on how threads happened to run. An operation is *executed* later on the thread of its stream, with
//! no lock held.

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

/// Locks; a panic elsewhere is no reason to stop.
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
