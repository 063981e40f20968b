//! What operations cost, by the place in the program where they are made: operations of one place have bodies
//! of one type. Cheap ones are run by their push, if they are granted their variables at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::engine_core::{EngineCore, NO_SLOT};
use crate::device::host::{Cost, Stopwatch};
use crate::engine::hash::hash;
use crate::engine::order::{Batch, Granted, Operation, Rest, Role, Runnable, Unpushed};
use crate::error::Result;
use crate::runtime::{add_work, inside_executor, is_outside, may_work};

/// The places that an engine knows. A place takes that of another with the same index.
const SITES: usize = 256;

/// The most ns that the body of a cheap operation takes. A worker that was woken for it is not fast.
const CHEAP_NS: u64 = 2_000;

/// The same for joined operations, which are several.
const JOINED_NS: u64 = 5_000;

/// What it costs to hand an operation on several variables over to a worker, for each of these: its words go
/// to another core and back. Work that costs less than that does not count as work of the push.
const HAND_OVER_NS: u64 = 60;

/// The part of a measured time that the clock takes.
const TIMING_NS: u64 = 30;

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

    /// Returns the cost of operations of a place, if it is known to be low.
    #[inline]
    fn cheap(&self, number: usize) -> Option<&Cost> {
        let site = self.place(number)?;
        // ORDERING: Relaxed: the cost of another place decides only which thread runs an operation.
        let is_known = site.number.load(Ordering::Relaxed) == number;
        Some(&site.cost).filter(|cost| (is_known || cfg!(anabranch_loom)) && cost.is_cheap())
    }

    /// Returns the cost of operations of a place, to be learned.
    fn learn(&self, number: usize) -> Option<&Cost> {
        let site = self.place(number)?;
        // ORDERING: Relaxed, both: as in `cheap`.
        if site.number.load(Ordering::Relaxed) != number {
            site.number.store(number, Ordering::Relaxed);
            site.cost.forget();
        }
        Some(&site.cost)
    }

    #[inline]
    fn place(&self, number: usize) -> Option<&Site> {
        let index = hash(number) >> (64 - SITES.ilog2());
        self.known.as_ref().map(|known| &known[index as usize])
    }
}

impl EngineCore {
    /// Runs an operation on a worker, and times its body if that is wanted. Returns whether such operations
    /// are known to be cheap.
    pub(super) fn run_timed(self: &Arc<Self>, mut operation: Runnable, batch: &mut Batch<'_>) -> bool {
        let granted = self.slots.granted(&mut operation);
        let Bounds { cheap_ns, .. } = bounds(&granted);
        let cost = if granted.is_task() { self.sites.learn(granted.site()) } else { None };
        match cost.filter(|cost| cost.wants_sample()) {
            Some(cost) => {
                let note = |ns, is_ok| {
                    if is_ok {
                        cost.add_sample(ns <= cheap_ns);
                    }
                };
                self.run_by(operation, batch, noting(note));
            }
            None => self.run(operation, batch),
        }
        cost.is_none_or(Cost::is_cheap)
    }

    /// Runs the operation that its push has made ready, if it is cheap. Otherwise leaves it in the batch.
    #[inline]
    pub(super) fn run_if_cheap(self: &Arc<Self>, batch: &mut Batch<'_>) {
        if self.may_run_now() {
            self.run_known_cheap(batch);
        }
    }

    /// Returns whether a push may run a cheap operation.
    #[inline]
    fn may_run_now(&self) -> bool {
        self.sites.known.is_some() && !self.needs_attention() && may_work() && is_outside()
    }

    /// With workers: runs a cheap operation in place, if nothing is pending. Then it needs no queue.
    pub(super) fn run_now_if_cheap(self: &Arc<Self>, operation: &mut Unpushed<'_>) -> Option<Result<()>> {
        let bounds = bounds(operation.get().filter(|operation| operation.is_task())?);
        let may_run = self.may_run_now() && self.lanes.is_none() && self.slots.in_use() == 0;
        let cost = if may_run { self.sites.cheap(operation.site())? } else { return None };
        if self.fault(operation).is_some() {
            return None;
        }
        let turn = {
            // A push that takes the lock after this finds the turn, and posts its operation.
            let _free = self.slots.free();
            if self.slots.in_use() == 0 { self.exclusive.begin()? } else { return None }
        };
        let outcome = self.slots.nothing_pending(&turn).filter(|nothing| operation.hold(nothing)).map(|nothing| {
            let run = |granted| noting(self.note(cost, bounds))(self, granted, NO_SLOT).map(std::mem::forget);
            let outcome = inside_executor(self.executor, || operation.granted_at_once(&nothing).map_or(Ok(()), run));
            operation.let_go();
            operation.clear();
            outcome
        });
        if let Err(turn) = self.exclusive.end_at_once(turn) {
            self.empty(turn);
        }
        outcome
    }

    /// Returns a function that notes the time of a cheap body that a push has run.
    fn note(&self, cost: &Cost, bounds: Bounds) -> impl FnOnce(u64, bool) {
        move |ns, _| {
            cost.add_poll(ns, bounds.cheap_ns);
            add_work(ns.saturating_sub(bounds.hand_over_ns), self.sites.budget);
        }
    }

    fn run_known_cheap(self: &Arc<Self>, batch: &mut Batch<'_>) {
        let Some(mut operation) = batch.ready.pop() else { return };
        let granted = self.slots.granted(&mut operation);
        let bounds = bounds(&granted);
        let cost = if granted.is_task() { self.sites.cheap(granted.site()) } else { None };
        let Some(cost) = cost else { return batch.ready.push(operation) };
        // What waits inside of a task is an error on workers, so it is one here.
        inside_executor(self.executor, || self.run_by(operation, batch, noting(self.note(cost, bounds))));
        self.give_back(batch);
    }
}

/// Returns a function that performs an operation, and notes the ns of that and whether it went well.
fn noting(note: impl FnOnce(u64, bool)) -> impl FnOnce(&EngineCore, Granted<'_>, u32) -> Result<Rest> {
    |core, granted, number| {
        let stopwatch = Stopwatch::start();
        let performed = core.perform(granted, number);
        note(stopwatch.ns(), performed.is_ok());
        performed
    }
}

/// How long an operation may take.
#[derive(Clone, Copy)]
struct Bounds {
    /// What it costs to hand it over, more than to run one on a single variable.
    hand_over_ns: u64,
    /// The most that it takes if it is cheap.
    cheap_ns: u64,
}

fn bounds(operation: &Operation) -> Bounds {
    let variables = operation.accesses().len() as u64;
    let hand_over_ns = if variables > 1 { HAND_OVER_NS * variables + TIMING_NS } else { 0 };
    let own = if operation.role == Role::Joins { JOINED_NS } else { CHEAP_NS };
    Bounds { hand_over_ns, cheap_ns: own + hand_over_ns }
}
