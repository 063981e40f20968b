//! The C functions. Each finds out whom it concerns, lets [`enter`] count it and look for faults, and leaves
//! the rest to [`crate::driver`].
//!
//! Pointers from outside come in as [`Out`] and [`In`], which only C callers can make: the contract of the C
//! function is what makes writing and reading through them sound.

mod context;
mod copy;
mod device;
mod enter;
mod error;
mod event;
mod executable;
mod function;
mod graph;
mod memory;
mod stream;

use std::ffi::c_void;

use crate::code::{Code, Outcome};

/// Where a result goes: null, or room for a `T`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Out<T>(*mut T);

impl<T> Out<T> {
    fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and so, by the contract of the C function that took it, room for a `T`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// Where an argument stands: null, or as many `T`s as the C function says.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct In<T>(*const T);

impl<T: Copy> In<T> {
    fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and so, by the contract of the C function that took it, a `T`.
        Ok(unsafe { self.0.read() })
    }

    /// Copies the first `count`.
    fn list(self, count: usize) -> Outcome<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and so, by the contract of the C function that took it, `count` of them.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) }.to_vec())
    }
}

/// Host memory of the caller's.
type Address = *mut c_void;
