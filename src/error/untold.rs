//! Whether anybody was told of an error, and who hears of it if nobody ever was.

// This room stands above `sync`, and nothing that a model checks depends on these.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::Error;

/// Hears of errors that nobody was told.
pub(crate) trait Untold: Send + Sync {
    fn hear(&self, error: Error);
}

/// What an error's clones know together.
#[derive(Default)]
pub(super) struct Told {
    is_told: AtomicBool,
    listener: OnceLock<Weak<dyn Untold>>,
}

impl Told {
    pub(super) fn note(&self) {
        // ORDERING: Relaxed: who drops the last clone comes after all that was done with the others.
        self.is_told.store(true, Ordering::Relaxed);
    }

    pub(super) fn listen(&self, listener: Weak<dyn Untold>) {
        let _ = self.listener.set(listener);
    }

    /// Returns who is to hear of it, if nobody was told, and is still there.
    pub(super) fn listener_if_untold(&mut self) -> Option<Arc<dyn Untold>> {
        if *self.is_told.get_mut() { None } else { self.listener.take()?.upgrade() }
    }
}
