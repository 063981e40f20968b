//! The value that a rank gives to an operation, and its bytes.
//!
//! A value is encoded once, by the rank that gives it: a second call may return other bytes, or fail.

use std::borrow::Cow;
use std::sync::Arc;

use super::wire::{Form, SpareMemory};
use crate::error::BoxError;
use crate::graph::{Made, Shared};

/// A value, with its bytes once it is encoded.
#[derive(Clone)]
pub(crate) struct Given {
    value: Shared,
    /// They are bytes of this value, or those that its encoding made.
    bytes: Option<Bytes>,
}

#[derive(Clone)]
struct Bytes {
    at: *const [u8],
    /// Keeps the bytes, if they are not those of the value in memory.
    _encoded: Option<Arc<Vec<u8>>>,
}

// SAFETY: bytes that many threads may read, and nothing changes. Their owners, the value and the encoding, go
// with them, and may be used and dropped by any thread.
unsafe impl Send for Bytes {}
// SAFETY: bytes that many threads may read, and nothing changes.
unsafe impl Sync for Bytes {}

#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "a local world needs no memory"))]
impl Given {
    /// Returns a value that is not encoded.
    pub(crate) fn new(value: Shared) -> Self {
        Self { value, bytes: None }
    }

    /// Gives the memory of the value away, if nothing else has the value.
    pub(crate) fn give_memory(self, form: &Form) -> Option<SpareMemory> {
        (form.give_memory)(self.value)
    }

    /// Returns the value itself if nothing else has it, else a copy.
    ///
    /// # Errors
    /// If a copy cannot be made of its bytes.
    pub(crate) fn into_made(self, form: &Form) -> Result<Made, BoxError> {
        let Self { value, bytes } = self;
        (form.into_made)(value).or_else(|value| (form.decode)(Self { value, bytes }.bytes()))
    }

    pub(crate) fn value(&self) -> &Shared {
        &self.value
    }

    /// Encodes the value. This calls code of the user.
    ///
    /// # Errors
    /// If the value has no encoding.
    pub(crate) fn encode(&mut self, form: &Form) -> Result<(), BoxError> {
        let bytes = match (form.encode)(&self.value)? {
            Cow::Borrowed(bytes) => Bytes { at: bytes, _encoded: None },
            Cow::Owned(bytes) => {
                let encoded = Arc::new(bytes);
                Bytes { at: encoded.as_slice(), _encoded: Some(encoded) }
            }
        };
        self.bytes = Some(bytes);
        Ok(())
    }

    /// Returns the bytes of an encoded value. They stay where they are for as long as this or a clone lives.
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.bytes.as_ref().expect("an operation is encoded before it is started");
        // SAFETY: the bytes are those of the value, which is shared and lent them for as long as it lives, or
        // of the encoding. This keeps both, and neither is changed.
        unsafe { &*bytes.at }
    }
}
