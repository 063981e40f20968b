//! The bytes of a value that a rank gives.

use std::borrow::Cow;

use super::calls::Memory;
use crate::comm::op::Op;
use crate::graph::Shared;

/// The bytes that the value's type returned, once: a second call may return others.
pub(super) struct Outgoing {
    memory: Memory,
    /// Keeps the bytes, if they are those of the value in memory.
    _value: Shared,
    /// Keeps the bytes, if the value was encoded.
    _encoded: Option<Vec<u8>>,
}

impl Outgoing {
    pub(super) fn new(op: &Op) -> Self {
        let (memory, encoded) = match (op.spec.form.encode)(&op.given) {
            Cow::Borrowed(bytes) => (Memory::to_read(bytes), None),
            Cow::Owned(bytes) => (Memory::to_read(&bytes), Some(bytes)),
        };
        Self { memory, _value: op.given.clone(), _encoded: encoded }
    }

    pub(super) fn memory(&self) -> Memory {
        self.memory
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes are those of the value, which is shared and lent them for as long as it lives, or
        // of the encoding. This keeps both, and neither is changed.
        unsafe { std::slice::from_raw_parts(self.memory.at, self.memory.bytes) }
    }
}
