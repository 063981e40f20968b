//! Memory of dropped runs, kept until its point has passed. Freed once, and never early. Each run keeps
//! itself, so a drop asks for no memory, and waits for no other run.

use std::sync::Arc;

use crate::error::shielded;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};

/// How many runs keep themselves.
pub(crate) struct Limbo {
    count: AtomicU64,
}

/// Where a run keeps itself, from its drop to its end.
pub(crate) struct Held<T>(Mutex<Option<Arc<T>>>);

impl<T> Held<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }
}

impl Limbo {
    pub(crate) fn new() -> Self {
        Self { count: AtomicU64::new(0) }
    }

    /// Keeps `memory`. Afterwards the caller looks at its point, and calls [`Limbo::free`] if that has
    /// passed: the thread that signalled it may have looked too early.
    pub(crate) fn hold<T>(&self, held: &Held<T>, memory: Arc<T>) {
        // Counted first, so that the count is never less than what is kept.
        self.count.fetch_add(1, Ordering::Relaxed);
        let replaced = lock(&held.0).replace(memory);
        debug_assert!(replaced.is_none(), "a run is dropped once");
        // ORDERING: pairs with the fence in `Lane::signal`: of "hold, look at the point" and "signal, look
        // at the count" one side sees the other. If the count is of other runs, the lock orders the two.
        fence(Ordering::SeqCst);
    }

    /// Frees what is kept there. Called by the thread that signalled the point, and by a drop whose run ended
    /// between its two checks.
    pub(crate) fn free<T>(&self, held: &Held<T>) {
        // ORDERING: Relaxed: see `hold`.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let memory = lock(&held.0).take();
        if let Some(memory) = memory {
            self.count.fetch_sub(1, Ordering::Relaxed);
            // Values drop here: foreign code, outside of the lock.
            let _ = shielded(|| drop(memory));
        }
    }

    /// Returns how many runs keep themselves.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }
}
