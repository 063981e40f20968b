//! Whether anybody was told of an error, and who hears of it if nobody ever was.

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
    or_else: OnceLock<Weak<dyn Untold>>,
}

impl Told {
    pub(super) fn note(&self) {
        // ORDERING: Relaxed: who drops the last clone comes after all that was done with the others.
        self.is_told.store(true, Ordering::Relaxed);
    }

    pub(super) fn or_else(&self, whom: Weak<dyn Untold>) {
        let _ = self.or_else.set(whom);
    }

    /// Returns who is to hear of it, if nobody was told, and is still there.
    pub(super) fn nobody_but(&mut self) -> Option<Arc<dyn Untold>> {
        if *self.is_told.get_mut() { None } else { self.or_else.take()?.upgrade() }
    }
}
