//! What an engine with observers keeps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::runtime::{Begun, Ended, Launched, Observers};
use crate::sync::{Mutex, lock};

/// The observers of an engine, and the operations that they were told of whose futures are pending.
pub(super) struct ObservedEngine {
    pub(super) observers: Arc<Observers>,
    /// By slot.
    pub(super) pending: Mutex<BTreeMap<u32, Begun>>,
}

impl ObservedEngine {
    pub(super) fn new(observers: Arc<Observers>) -> Self {
        Self { observers, pending: Mutex::default() }
    }
}

impl Drop for ObservedEngine {
    /// An engine without workers drops the operations that are pending when its last handle is dropped.
    fn drop(&mut self) {
        for begun in std::mem::take(&mut *lock(&self.pending)).into_values() {
            let _ = self.observers.end(begun, Ended::Cancelled, Launched::Host, Instant::now());
        }
    }
}
