//! What operations cost, by the place in the program where they are made: operations of one place have bodies
//! of one type. Cheap ones are run by their push, if they are granted their variables at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::engine_core::EngineCore;
use crate::device::host::{CHEAP_NS, Cost};
use crate::engine::order::{Batch, Granted, Operation, Rest, Runnable};
use crate::error::Result;
use crate::runtime::{add_work, inside_executor, is_outside, may_work};

/// The places that an engine knows. A place takes that of another with the same index.
const SITES: usize = 256;

/// What it costs to hand an operation over to a worker, for each variable after the first: its words go to
/// another core and back. Work that costs less than that does not count as work of the push.
const HAND_OVER_NS: u64 = 60;

/// How many times as long as cheap work a body takes that was known to be cheap, and is no longer.
const SURPRISE: u64 = 4;

pub(super) struct Sites {
    /// None if only workers run operations.
    known: Option<Box<[Site]>>,
    budget: Duration,
}

struct Site {
    /// The number of the place, or 0.
    number: AtomicUsize,
    cost: Cost,
}

impl Sites {
    /// Returns what an engine knows at first. Pushes may work for `budget` before a wait lets others run.
    pub(super) fn new(budget: Duration) -> Self {
        let site = || Site { number: AtomicUsize::new(0), cost: Cost::new() };
        Self { known: (!budget.is_zero()).then(|| (0..SITES).map(|_| site()).collect()), budget }
    }

    /// Returns the cost of operations like this one, if they are known.
    #[inline]
    fn get(&self, operation: &Granted<'_>) -> Option<&Cost> {
        let (site, number) = self.place(operation)?;
        // ORDERING: Relaxed: the cost of another place decides only which thread runs an operation.
        (site.number.load(Ordering::Relaxed) == number).then_some(&site.cost)
    }

    /// Returns the cost of operations like this one, to be learned.
    fn learn(&self, operation: &Granted<'_>) -> Option<&Cost> {
        let (site, number) = self.place(operation)?;
        // ORDERING: Relaxed, both: as in `get`.
        if site.number.load(Ordering::Relaxed) != number {
            site.number.store(number, Ordering::Relaxed);
            site.cost.forget();
        }
        Some(&site.cost)
    }

    #[inline]
    fn place(&self, operation: &Granted<'_>) -> Option<(&Site, usize)> {
        let known = self.known.as_ref().filter(|_| !operation.is_async && !operation.is_kernel)?;
        let number = operation.site();
        // Multiplied by 2^64 over the golden ratio: the upper bits depend on all.
        let index = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SITES.ilog2());
        Some((&known[index as usize], number))
    }
}

impl EngineCore {
    /// Runs an operation on a worker, and times its body if that is wanted. Returns whether it was.
    pub(super) fn run_timed(self: &Arc<Self>, mut operation: Runnable, batch: &mut Batch<'_>) -> bool {
        let granted = self.slots.granted(&mut operation);
        let hand_over = hand_over(&granted);
        let Some(cost) = self.sites.learn(&granted).filter(|cost| cost.wants_sample()) else {
            self.run(operation, batch);
            return false;
        };
        let note = |ns, is_ok| {
            if is_ok {
                cost.add_sample(ns <= CHEAP_NS + hand_over);
            }
        };
        self.run_by(operation, batch, noting(note));
        true
    }

    /// Runs the operation that its push has made ready, if it is cheap. Otherwise leaves it in the batch.
    #[inline]
    pub(super) fn run_if_cheap(self: &Arc<Self>, batch: &mut Batch<'_>) {
        if self.sites.known.is_some() && !self.needs_attention() && may_work() && is_outside() {
            self.run_known_cheap(batch);
        }
    }

    fn run_known_cheap(self: &Arc<Self>, batch: &mut Batch<'_>) {
        let Some(mut operation) = batch.ready.pop() else { return };
        let granted = self.slots.granted(&mut operation);
        let hand_over = hand_over(&granted);
        let cost = self.sites.get(&granted).filter(|cost| cost.is_cheap());
        if cost.is_none() && !granted.is_cheap_call() {
            return batch.ready.push(operation);
        }
        let note = |ns: u64, _| {
            // A call adds its cost and its work itself.
            if let Some(cost) = cost {
                cost.add_poll(ns <= SURPRISE * (CHEAP_NS + hand_over));
                add_work(ns.saturating_sub(hand_over), self.sites.budget);
            }
        };
        // What waits inside of a task is an error on workers, so it is one here.
        inside_executor(self.executor, || self.run_by(operation, batch, noting(note)));
        self.give_back(batch);
    }
}

/// Returns a function that performs an operation, and notes the ns of that and whether it went well.
fn noting(note: impl FnOnce(u64, bool)) -> impl FnOnce(&EngineCore, Granted<'_>, u32) -> Result<Rest> {
    |core, granted, number| {
        let start = Instant::now();
        let performed = core.perform(granted, number);
        note(start.elapsed().as_nanos() as u64, performed.is_ok());
        performed
    }
}

/// Returns the ns that it costs to hand an operation over, more than to run one on a single variable.
fn hand_over(operation: &Operation) -> u64 {
    HAND_OVER_NS * if operation.accesses().len() > 1 { operation.accesses().len() as u64 } else { 0 }
}
