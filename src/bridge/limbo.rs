//! Memory of dropped runs, kept until its point has passed. Freed once, and never early; each block costs the
//! same, however many there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Lane, shielded};
use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};

/// What dropped runs left behind while a device could still touch it.
pub(crate) struct Limbo {
    /// By the address of the lane, which the block keeps.
    held: Mutex<BTreeMap<usize, Held>>,
    /// The length of `held`, so that most ends of runs take no lock.
    count: AtomicU64,
}

struct Held {
    lane: Arc<Lane>,
    n: u64,
    memory: Box<dyn Send>,
}

impl Limbo {
    pub(crate) fn new() -> Self {
        Self { held: Mutex::new(BTreeMap::new()), count: AtomicU64::new(0) }
    }

    /// Keeps `memory` until point `n` of `lane` has passed; one block for each lane. Afterwards the caller
    /// checks the point, and calls [`Limbo::free`] if it has passed: the thread that signalled it may have
    /// looked too early.
    pub(crate) fn hold(&self, lane: &Arc<Lane>, n: u64, memory: Box<dyn Send>) {
        let replaced = {
            let mut held = lock(&self.held);
            let replaced = held.insert(address(lane), Held { lane: lane.clone(), n, memory });
            self.count.store(held.len() as u64, Ordering::Relaxed);
            replaced
        };
        debug_assert!(replaced.is_none(), "a lane has one run, and a run is dropped once");
        // ORDERING: pairs with the fence in `Lane::signal`: of "hold, look at the point" and "signal, look at
        // the count" one side sees the other.
        fence(Ordering::SeqCst);
    }

    /// Frees the block of `lane`, if its point has passed. Called by the thread that signals the point, and
    /// by a drop whose run ended between its two checks.
    pub(crate) fn free(&self, lane: &Lane) {
        // ORDERING: Relaxed: see `hold`.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let passed = {
            let mut held = lock(&self.held);
            let has_passed = held.get(&address(lane)).is_some_and(|held| held.lane.has_reached(held.n));
            let passed = if has_passed { held.remove(&address(lane)) } else { None };
            self.count.store(held.len() as u64, Ordering::Relaxed);
            passed
        };
        if let Some(Held { memory, .. }) = passed {
            // Values drop here: foreign code, outside of the lock.
            let _ = shielded(|| drop(memory));
        }
    }

    /// Returns how many blocks of memory are kept.
    pub(crate) fn len(&self) -> usize {
        lock(&self.held).len()
    }
}

fn address(lane: &Lane) -> usize {
    std::ptr::from_ref(lane).addr()
}
