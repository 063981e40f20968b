//! Runs at once: a cheap run whose first poll has its only owner. As long as it has no other, no thread
//! cancels it, awaits its nodes or runs its programs. So it needs no lock of its own, no ticket of a pool and
//! no place among those in flight: it is only counted there. If the time of the poll is over, it goes on as
//! other runs do.
//!
//! ```text
//!  run        event                                  next       then
//!  waiting    first poll: cheap, one owner, room     at once
//!  waiting    first poll, otherwise                  started    as any run
//!  at once    its last program ends                  complete
//!  at once    the time of the poll is over           started    it gets a place, and its tickets are queued
//! ```

use std::sync::Arc;
use std::time::Instant;

use super::inner::{COMPLETE, RunInner, Start};
use super::state;
use crate::device::host::{Entry, Ticket, Tickets};
use crate::runtime::Flying;
use crate::sync::get_mut;

/// Instead of the place of a run at once.
pub(super) const AT_ONCE: u16 = u16::MAX;

impl RunInner {
    /// Runs a run at once in its first poll, if it can. Returns whether it is complete.
    #[inline]
    pub(super) fn run_at_once(run: &mut Arc<Self>) -> bool {
        run.polls_run_it() && Self::call_at_once(run)
    }

    /// Runs a cheap run at once, if it can. Returns whether it is complete.
    pub(super) fn call_at_once(run: &mut Arc<Self>) -> bool {
        if !run.is_known_cheap() {
            return false;
        }
        let Some(own) = Arc::get_mut(run) else { return false };
        own.begin_at_once() && own.go_on_at_once()
    }

    /// Makes a waiting run live, if it has a spare block, its inputs are right, and there is room.
    fn begin_at_once(&mut self) -> bool {
        let code = if self.core.devices.is_some() { return false } else { &self.plan.inner().code };
        let Start::Waiting(waiting) = get_mut(&mut self.start) else { return false };
        let may_begin = waiting.turn == 0 && waiting.slot.is_none() && waiting.spare.is_some() && code.programs() > 0;
        if !may_begin || waiting.inputs.check(self.plan.inner()).is_err() || !self.core.admit_at_once() {
            return false;
        }
        let (inputs, spare) = (std::mem::take(&mut waiting.inputs), waiting.spare.take());
        *get_mut(&mut self.start) = Start::Started;
        let mut live = spare.expect("it was there");
        live.renew(code, AT_ONCE, None);
        inputs.fill(self.plan.inner(), &live.first.frame);
        self.live.set(live);
        true
    }

    /// Runs the programs for a time slice. Returns whether the run is complete.
    fn go_on_at_once(&mut self) -> bool {
        let (mut ready, cost) = (Tickets::new(), &self.plan.inner().cost);
        ready.push(Ticket::new(AT_ONCE, 0, self.code().roots));
        // Without workers a surprise is only a longer poll, so most runs need not read the clock.
        let start = (self.core.pool.is_some() || cost.is_check_due()).then(Instant::now);
        self.run_ready_at_once(&mut ready);
        self.add_poll(start);
        if !ready.is_empty() {
            self.start_late(&mut ready);
            return false;
        }
        self.state.set_done();
        self.decide(self.judge(0));
        self.lane.pass(COMPLETE);
        self.core.end_at_once();
        true
    }

    /// Makes it a run as any other, which has begun.
    #[cold]
    fn start_late(&mut self, ready: &mut Tickets) {
        let (slot, is_closed) = self.core.keep_flying(Flying::at(self.address_in_arc()));
        let mut live = self.live.take().expect("it is live");
        live.slot = slot;
        self.live.set(live);
        let tickets = ready.drain(..).map(|ticket| Ticket::new(slot, ticket.first(), ticket.count()));
        if let Some(pool) = &self.core.pool {
            // SAFETY: admission gave this place to this run alone. `Run` or limbo keeps the run alive until
            // it is complete, and completing it begins with `leave`.
            unsafe { pool.enter(slot, Entry::new(self.address_in_arc())) };
            tickets.for_each(|ticket| pool.submit(ticket));
        } else {
            get_mut(&mut self.driver).extend(tickets);
        }
        if is_closed {
            self.cancel(state::SHUT_DOWN);
        }
    }
}
