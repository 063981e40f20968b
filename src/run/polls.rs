//! Cheap runs and cheap items are run by the polls that await them. To hand them to a worker and back would
//! take longer. Workers run dear and unknown ones, and the rest when a poll has had its time.

use std::sync::Arc;

use super::inner::{Live, RunInner};
use crate::device::host::{Alone, CHEAP_NS, Cost, Pace, Resume, Stopwatch, Ticket, Tickets, at_steps_of};
use crate::error::shielded;
use crate::runtime::{add_work, inside_executor};
use crate::sync::Ordering;

/// What a run takes beside its nodes, from the making of its future to the drop.
const BESIDE_NS: u64 = 200;

impl RunInner {
    /// Returns whether its cost is to be known. What a future or a device does is never known.
    pub(super) fn may_be_cheap(&self) -> bool {
        let code = self.code();
        code.asyncs.is_empty() && code.segments.is_empty() && self.core.may_do_cheap_work()
    }

    /// Returns whether the poll that starts the run is to run it.
    pub(super) fn polls_run_it(&self) -> bool {
        self.core.may_work_here() && self.is_known_cheap()
    }

    pub(super) fn is_known_cheap(&self) -> bool {
        self.plan().cost.is_cheap() && self.may_be_cheap()
    }

    /// Returns whether the run is to be timed.
    pub(super) fn is_to_be_timed(&self) -> bool {
        self.may_be_cheap() && self.plan().cost.wants_sample()
    }

    /// Returns the most ns that a cheap run takes: a poll of an executor with workers has time for two.
    fn cheap_ns(&self) -> u64 {
        (self.core.poll_budget.as_nanos() / 2) as u64
    }

    /// Runs a run in the poll that starts it.
    pub(super) fn run_in_poll(&self, roots: Ticket) {
        let mut ready = Tickets::new();
        ready.push(roots);
        let stopwatch = Some(Stopwatch::start());
        // No other thread runs its programs before some are left for the workers.
        if self.run_ready::<false>(&mut Pace::known(), &mut ready) {
            self.plan().cost.add_sample(false);
        }
        self.add_poll(stopwatch);
    }

    /// Adds a poll that has run the run, and its time if that was taken.
    pub(super) fn add_poll(&self, stopwatch: Option<Stopwatch>) {
        let ns = stopwatch.map_or(0, |stopwatch| stopwatch.ns());
        self.plan().cost.add_poll(ns, self.cheap_ns());
        if self.core.pool.is_some() {
            add_work(ns + BESIDE_NS, self.core.poll_budget);
        }
    }

    /// Runs the programs of a [run at once](super::at_once) for a time slice, and leaves those that are left.
    pub(super) fn run_ready_at_once(&self, ready: &mut Tickets) {
        let mut pace = Pace::known();
        let queue = Alone::<false>::for_a_slice(ready, &self.progress, &mut pace);
        match &self.core.pool {
            Some(_) => self.run_queue(queue.at_most(self.core.poll_budget)),
            None => self.run_queue(queue),
        };
    }

    /// Does the work of a run at once, in a poll.
    #[inline]
    pub(super) fn work_at_once(&self, work: impl FnOnce()) {
        let work = || inside_executor(self.core.address(), || at_steps_of(&self.progress, work));
        if self.core.pool.is_some() { work() } else { inside_executor(self.address(), work) }
    }

    /// Runs programs that became ready, in a poll beside the workers. The first of them is run first.
    pub(super) fn run_beside(&self, pace: &mut Pace, ready: &mut Tickets) {
        ready.reverse();
        if self.run_ready::<true>(pace, ready) {
            // It has run items for its whole time slice.
            self.item_cost().into_iter().for_each(|cost| cost.add_sample(false));
        }
    }

    /// Runs programs for a time slice, and gives those that are left to the workers. Returns whether the
    /// slice was too short.
    fn run_ready<const BESIDE: bool>(&self, pace: &mut Pace, ready: &mut Tickets) -> bool {
        let Some(pool) = &self.core.pool else { return false };
        let queue = Alone::<BESIDE>::for_a_slice(ready, &self.progress, pace);
        let run = || self.run_queue(queue.at_most(self.core.poll_budget));
        let is_spent = inside_executor(self.core.address(), || at_steps_of(&self.progress, run));
        ready.drain(..).for_each(|ticket| pool.submit(ticket));
        is_spent
    }

    /// Runs programs until none is left, or the time slice is over. Returns whether it is.
    fn run_queue<const BESIDE: bool>(&self, mut queue: Alone<'_, BESIDE>) -> bool {
        while !queue.is_spent()
            && let Some(ticket) = queue.next_ticket()
        {
            // SAFETY: the ticket was made for this run, which the caller keeps alive.
            unsafe { Self::resume(self, ticket, &mut queue) };
        }
        queue.is_spent()
    }

    /// Begins to time a visit of a worker, if that is wanted.
    #[inline]
    pub(super) fn sample(&self, live: &Live) -> Option<Sample> {
        let is_wanted = match &live.pipe {
            Some(pipe) => pipe.cost.as_ref().is_some_and(Cost::wants_sample),
            None => live.worked.is_some(),
        };
        is_wanted.then(|| Sample { run: Some(self.me()), stopwatch: Stopwatch::start() })
    }

    /// Returns whether polls run the items.
    #[inline]
    pub(super) fn has_cheap_items(&self) -> bool {
        self.item_cost().is_some_and(Cost::is_cheap)
    }

    fn item_cost(&self) -> Option<&Cost> {
        self.pipe()?.cost.as_ref()
    }

    fn add_visit(&self, ns: u64) {
        if let Some(cost) = self.item_cost() {
            cost.add_sample(ns <= CHEAP_NS);
        } else if let Some(worked) = self.live.get().and_then(|live| live.worked.as_ref()) {
            // ORDERING: Relaxed: it decides only which thread runs a run.
            worked.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Adds the time of a run that has ended to the cost of its plan.
    pub(super) fn add_cost(&self) {
        if let Some(worked) = self.live.get().and_then(|live| live.worked.as_ref()) {
            // ORDERING: Relaxed: as in `add_visit`. A visit that ends later is not counted.
            self.plan().cost.add_sample(worked.load(Ordering::Relaxed) <= self.cheap_ns());
        }
    }
}

/// The time of one visit of a worker. Its drop adds it.
pub(super) struct Sample {
    /// None once it was added.
    run: Option<Arc<RunInner>>,
    stopwatch: Stopwatch,
}

impl Drop for Sample {
    fn drop(&mut self) {
        let ns = self.stopwatch.ns();
        let run = self.run.take();
        run.iter().for_each(|run| run.add_visit(ns));
        // This may be the last owner of the run, whose drop runs user code.
        let _ = shielded(|| drop(run));
    }
}
