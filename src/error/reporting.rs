//! The record whether an error was reported, and the listener that gets it if it never was.

// This room is above `sync`, and no model depends on these.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::Error;

/// A listener for errors that were not reported.
pub(crate) trait Listener: Send + Sync {
    /// Takes an error whose last clone was dropped, and which was not reported.
    fn take(&self, error: Error);
}

/// The record that the clones of an error share.
#[derive(Default)]
pub(super) struct Report {
    is_reported: AtomicBool,
    listener: OnceLock<Weak<dyn Listener>>,
}

impl Report {
    /// Records that the error is reported.
    pub(super) fn note(&self) {
        // ORDERING: Relaxed: the count of the clones orders it before the drop of the last one.
        self.is_reported.store(true, Ordering::Relaxed);
    }

    /// Sets the listener. Only the first one counts.
    pub(super) fn listen(&self, listener: Weak<dyn Listener>) {
        let _ = self.listener.set(listener);
    }

    /// Returns the listener, if the error was not reported and the listener still exists.
    pub(super) fn listener_if_unreported(&mut self) -> Option<Arc<dyn Listener>> {
        if *self.is_reported.get_mut() { None } else { self.listener.take()?.upgrade() }
    }
}
