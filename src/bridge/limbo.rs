//! Memory of dropped runs, kept until its point has passed. Freed once, and never early.

use std::sync::Arc;

use super::{Lane, shielded};
use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};

/// What dropped runs left behind while a device could still touch it.
pub(crate) struct Limbo {
    held: Mutex<Vec<Held>>,
    /// The length of `held`, so that a collection that finds nothing takes no lock.
    count: AtomicU64,
}

struct Held {
    lane: Arc<Lane>,
    n: u64,
    memory: Box<dyn Send>,
}

impl Limbo {
    pub(crate) fn new() -> Self {
        Self { held: Mutex::new(Vec::new()), count: AtomicU64::new(0) }
    }

    /// Keeps `memory` until point `n` of `lane` has passed. Who calls this looks at the point afterwards, and collects if it has:
    /// its signaller may have collected before.
    pub(crate) fn hold(&self, lane: Arc<Lane>, n: u64, memory: Box<dyn Send>) {
        {
            let mut held = lock(&self.held);
            held.push(Held { lane, n, memory });
            self.count.store(held.len() as u64, Ordering::Relaxed);
        }
        // ORDERING: pairs with the fence in `Lane::signal`: of "hold, look at the point" and "signal, collect" one side sees the
        // other.
        fence(Ordering::SeqCst);
    }

    /// Frees what nothing can touch any more. Called by whoever signals points, by submissions, and by
    /// a drop that finds its own run ended between its two looks.
    pub(crate) fn collect(&self) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let passed: Vec<Held> = {
            let mut held = lock(&self.held);
            let (passed, waiting) = held.drain(..).partition(|held| held.lane.has_reached(held.n));
            *held = waiting;
            self.count.store(held.len() as u64, Ordering::Relaxed);
            passed
        };
        for Held { memory, .. } in passed {
            // Values drop here: foreign code, outside of the lock.
            let _ = shielded(|| drop(memory));
        }
    }

    /// Returns how many blocks of memory are kept.
    pub(crate) fn len(&self) -> usize {
        lock(&self.held).len()
    }
}
