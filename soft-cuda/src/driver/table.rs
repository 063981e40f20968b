//! Handles and their objects. A handle is a number, never an address: a stale handle is detected instead of
//! dereferenced.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use super::{read, write};
use crate::code::{Code, Outcome};

/// The kind of object that a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Context = 0x41,
    Stream,
    Event,
    Module,
    Function,
    Graph,
    Node,
    Executable,
    Pool,
}

/// The kind in the highest byte, the device in the next, then a serial number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    pub(crate) const NULL: Handle = Handle(0);

    pub(crate) fn new(kind: Kind, ordinal: u32, serial: u64) -> Self {
        Handle((kind as u64) << 56 | u64::from(ordinal & 0xff) << 48 | serial & 0xffff_ffff_ffff)
    }

    pub(crate) fn is(self, kind: Kind) -> bool {
        self.0 >> 56 == kind as u64
    }

    pub(crate) fn ordinal(self) -> u32 {
        (self.0 >> 48 & 0xff) as u32
    }
}

/// Spreads a handle over 64 bits. The serial numbers alone differ enough.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Entries<T> = HashMap<u64, Arc<T>, BuildHasherDefault<Spread>>;

/// The live objects of one kind on one device.
pub(crate) struct Table<T> {
    kind: Kind,
    ordinal: u32,
    next: AtomicU64,
    entries: RwLock<Entries<T>>,
}

impl<T> Table<T> {
    pub(crate) fn new(kind: Kind, ordinal: u32) -> Self {
        Self { kind, ordinal, next: AtomicU64::new(1), entries: RwLock::new(Entries::default()) }
    }

    /// Adds an object and returns its handle.
    pub(crate) fn add(&self, object: Arc<T>) -> Handle {
        // ORDERING: Relaxed: the numbers only have to differ.
        let handle = Handle::new(self.kind, self.ordinal, self.next.fetch_add(1, Ordering::Relaxed));
        write(&self.entries).insert(handle.0, object);
        handle
    }

    /// Returns the object, or "invalid handle".
    pub(crate) fn get(&self, handle: Handle) -> Outcome<Arc<T>> {
        read(&self.entries).get(&handle.0).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// Removes the object. Its handle is stale from now on.
    pub(crate) fn remove(&self, handle: Handle) -> Outcome<Arc<T>> {
        write(&self.entries).remove(&handle.0).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        read(&self.entries).values().cloned().collect()
    }

    pub(crate) fn clear(&self) -> Vec<Arc<T>> {
        write(&self.entries).drain().map(|(_, object)| object).collect()
    }

    pub(crate) fn len(&self) -> u64 {
        read(&self.entries).len() as u64
    }
}
