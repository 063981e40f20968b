//! Runs at once: cheap runs in their first poll, or inside of the call that makes them (`Run::now`): of a
//! flow, or of a worker in place of the call's operation. Nothing else has reached such a run: no thread can
//! cancel it, await its nodes or run its programs. So it needs no lock of its own, no ticket of a pool and no
//! place among those in flight: it is only counted there. If the time of the poll is over, it goes on as
//! other runs do.
//!
//! ```text
//!  run        event                                  next       then
//!  waiting    first poll: cheap, alone, room         at once
//!  waiting    first poll, otherwise                  started    as any run
//!  at once    its last program ends                  complete
//!  at once    the time of the poll is over           started    it gets a place, and its tickets are queued
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::inner::{COMPLETE, RunInner, Start};
use super::interpret;
use super::state;
use crate::device::host::{Entry, HostStream, Stopwatch, Ticket, Tickets};
use crate::runtime::Flying;
use crate::sync::{Ordering, get_mut};

/// Instead of the place of a run at once.
pub(super) const AT_ONCE: u16 = u16::MAX;

/// The outcome of an attempt to run a run at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AtOnce {
    Complete,
    /// It has begun, and goes on as other runs do.
    Late,
    /// It waits as before.
    Refused,
}

impl RunInner {
    /// Runs a cheap run at once, if it can.
    ///
    /// # Safety
    /// Nothing but the caller's `Run` has ever reached it.
    pub(super) unsafe fn run_at_once(run: &mut Arc<Self>) -> AtOnce {
        // SAFETY: the caller promises it.
        let own = unsafe { Self::alone(run) };
        if !own.begin_at_once() {
            return AtOnce::Refused;
        }
        match own.go_on_at_once() {
            None => AtOnce::Complete,
            // From here on others reach the run.
            Some((slot, tickets)) => {
                run.start_late(slot, tickets);
                AtOnce::Late
            }
        }
    }

    /// Makes a waiting run live, if it has a spare block, its inputs are right, and there is room.
    fn begin_at_once(&mut self) -> bool {
        let code = if self.core.devices.is_some() { return false } else { &self.plan.inner().code };
        let Start::Waiting(waiting) = get_mut(&mut self.start) else { return false };
        let may_begin =
            !waiting.precedence.is_queued() && waiting.slot.is_none() && waiting.spare.is_some() && code.programs() > 0;
        // A run with a context has its place among those with contexts when it is admitted.
        let may_begin = may_begin && self.plan.inner().context.is_none();
        if !may_begin || waiting.inputs.check(self.plan.inner()).is_err() || !self.core.admit_at_once() {
            return false;
        }
        let mut live = waiting.spare.take().expect("it was there");
        live.renew(code, AT_ONCE, None);
        waiting.inputs.fill(self.plan.inner(), &live.first.frame);
        *get_mut(&mut self.start) = Start::Started;
        self.live.set(live);
        true
    }

    /// Runs the programs for a time slice. If the run is not complete then, returns its place and its
    /// tickets.
    fn go_on_at_once(&mut self) -> Option<(u16, Tickets)> {
        let (mut ready, cost) = (Tickets::new(), &self.plan.inner().cost);
        // Without workers a surprise is only a longer poll, so most runs need not read the clock.
        let stopwatch = (self.core.pool.is_some() || cost.is_check_due()).then(Stopwatch::start);
        self.work_at_once(|| {
            if !self.code().is_calls || !self.make_calls() {
                ready.push(Ticket::new(AT_ONCE, 0, self.code().roots));
                self.run_ready_at_once(&mut ready);
            }
        });
        self.add_poll(stopwatch);
        if !ready.is_empty() {
            self.plan.inner().cost.add_sample(false);
            return Some(self.keep_place(ready));
        }
        self.state.set_done();
        self.decide(self.judge(0));
        self.lane.pass(COMPLETE);
        self.core.end_at_once();
        None
    }

    /// Makes the calls of a run that is nothing else, without an interpreter. Returns whether all succeeded.
    /// If not, the program stands behind the step that has failed.
    fn make_calls(&self) -> bool {
        let (item, code) = (self.first().expect("it is live"), &self.plan.inner().code);
        let (mut stream, mut at) = (HostStream::new(code.streams[0]), 0);
        let called = catch_unwind(AssertUnwindSafe(|| {
            for step in &code.steps {
                self.progress.set(AT_ONCE, at);
                // SAFETY: no other thread runs nodes of a run at once. The steps come in the order of the
                // plan, and all before this one have succeeded.
                unsafe { interpret::call(item, step, &mut stream) }?;
                at += 1;
            }
            Ok(())
        }));
        self.progress.leave();
        let is_ok = matches!(called, Ok(Ok(())));
        if !is_ok {
            item.judge_call(code.nodes[at as usize], called);
        }
        // The lowest bit: the body of that step is done.
        // ORDERING: Relaxed: nothing else has reached the run.
        item.at.places[0].store(at << 1 | u32::from(!is_ok), Ordering::Relaxed);
        is_ok
    }

    /// Gives a run at once a place among those in flight, where no other thread sees it yet.
    #[cold]
    fn keep_place(&mut self, ready: Tickets) -> (u16, Tickets) {
        self.keep_what_was_lent();
        let slot = self.core.keep_place();
        let mut live = self.live.take().expect("it is live");
        live.slot = slot;
        self.live.set(live);
        let tickets = ready.into_iter().map(|ticket| Ticket::new(slot, ticket.first(), ticket.count()));
        let mut tickets: Tickets = tickets.collect();
        if self.core.pool.is_none() {
            get_mut(&mut self.driver).append(&mut tickets);
        }
        (slot, tickets)
    }

    /// Makes it a run as any other, which has begun.
    #[cold]
    fn start_late(self: &Arc<Self>, slot: u16, tickets: Tickets) {
        if let Some(pool) = &self.core.pool {
            // SAFETY: admission gave this place to this run alone. `Run` or limbo keeps the run alive until
            // it is complete, and completing it begins with `leave`.
            unsafe { pool.enter(slot, Entry::new(Arc::as_ptr(self))) };
        }
        let is_closed = self.core.take_place(slot, Flying::new(self));
        if let Some(pool) = &self.core.pool {
            tickets.into_iter().for_each(|ticket| pool.submit(ticket));
        }
        if is_closed {
            self.cancel(state::SHUT_DOWN);
        }
    }
}
