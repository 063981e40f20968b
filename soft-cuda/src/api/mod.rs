//! The C functions. Each finds the object that it concerns, lets [`enter`] count the call and look for
//! faults, and leaves the rest to [`crate::driver`].
//!
//! Pointers from outside come as [`Out`] and [`In`], which only C callers can make. The contract of the C
//! function makes reads and writes through them sound.

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

/// The place for a result: null, or room for a `T`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Out<T>(*mut T);

impl<T> Out<T> {
    fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the pointer is not null. So it points to room for a `T`, by the contract of the C function
        // that took it.
        unsafe { self.0.write(value) };
        Ok(())
    }

    fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// The place of an argument: null, or as many `T`s as the C function specifies.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct In<T>(*const T);

impl<T: Copy> In<T> {
    fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the pointer is not null. So it points to a `T`, by the contract of the C function that took
        // it.
        Ok(unsafe { self.0.read() })
    }

    /// Copies the first `count` elements.
    fn list(self, count: usize) -> Outcome<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the pointer is not null. So it points to `count` elements, by the contract of the C
        // function that took it.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) }.to_vec())
    }
}

/// An address in the caller's memory on the host.
type Address = *mut c_void;
