#![doc = include_str!("../README.md")]
#![allow(non_snake_case, reason = "the exported functions are spelt as NCCL spells them")]

mod api;
mod client;
mod clique;
mod combine;
mod communicator;
mod driver;
mod frames;
mod link;
mod root;
mod wire;

pub use client::Nccl;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. A panic on another thread does not matter.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
