//! The memory of dropped runs, kept until its point has passed. It is freed once, and never early. Each run
//! keeps itself alive, so a drop allocates nothing and waits for no other run.
//!
//! ```text
//!  held     event                        next     then
//!  none     drop of the run: hold        the run  the drop checks the point again
//!  the run  point reached: free          none     the thread drops the run, outside of the lock
//!  none     free                         none     nothing: not dropped yet, or freed before
//! ```

use std::sync::Arc;

use crate::error::shielded;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};

/// The number of runs that keep themselves alive.
pub(crate) struct Limbo {
    count: AtomicU64,
}

/// A run's reference to itself, from its drop to its end.
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

    /// Keeps `memory`. Afterwards the caller checks its point, and calls [`Limbo::free`] if that has passed:
    /// the thread that signalled it may have checked the count too early.
    pub(crate) fn hold<T>(&self, held: &Held<T>, memory: Arc<T>) {
        // Counted first, so that the count is never less than the number of kept runs.
        // ORDERING: Relaxed: the fence below orders it.
        self.count.fetch_add(1, Ordering::Relaxed);
        let replaced = lock(&held.0).replace(memory);
        debug_assert!(replaced.is_none(), "a run is dropped once");
        // ORDERING: pairs with the fence in `Lane::signal`: of "hold, load the point" and "signal, load the
        // count" one side sees the other. If the count is of other runs, the lock orders the two.
        fence(Ordering::SeqCst);
    }

    /// Frees a kept run. Called by the thread that signalled the point, and by a drop whose run ended between
    /// its two checks.
    pub(crate) fn free<T>(&self, held: &Held<T>) {
        // ORDERING: Relaxed: the caller's fence orders it, see `hold`.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let memory = lock(&held.0).take();
        if let Some(memory) = memory {
            // ORDERING: Relaxed: only the number counts.
            self.count.fetch_sub(1, Ordering::Relaxed);
            // The values drop here, outside of the lock: user code.
            let _ = shielded(|| drop(memory));
        }
    }

    pub(crate) fn len(&self) -> usize {
        // ORDERING: Relaxed: only the number counts.
        self.count.load(Ordering::Relaxed) as usize
    }
}
