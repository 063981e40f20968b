//! Async nodes: the program that comes to one polls its future, and parks at it while it is pending. A wake
//! resumes the program, in a worker or in the poll of an inline run.

use std::sync::TryLockError;
use std::task::{Context, Poll};

use super::inner::{Item, Live, RunInner};
use super::interpret::{Interpreter, StepResult};
use super::outcomes::outcome;
use super::state;
use super::step_state::phase;
use crate::device::host::{Alone, Pace, Queue, Resume, Ticket, Tickets, aside};
use crate::error::{BoxError, panic_message, shielded};
use crate::graph::NodeId;
use crate::name::Name;
use crate::runtime::{Choices, Ended, STEPS_MAX, at_core, inside_executor};
use crate::sync::{MutexGuard, Ordering, fence};

/// The outcome of an attempt to make an inline run progress.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Drive {
    /// Another task is polling it. That task rings when work is left.
    Busy,
    /// The run can only wait.
    Done,
    /// Work is left for another poll.
    More,
}

impl<'q, Q: Queue<'q>> Interpreter<'_, 'q, Q> {
    pub(super) fn poll_node(&mut self, attention: u32) -> StepResult {
        let (item, run, live, node) = (self.item, self.item.run, self.item.live, self.node());
        let index = self.code.async_index(self.step);
        let wakes = live.wakes.as_ref().expect("a plan with async nodes has a wake set");
        let place = item.wake_index(index);
        // Keeps the set alive while this parks: the run may be gone then.
        let waker = wakes.waker(place);
        let parking = wakes.parking(place);
        parking.begin();
        let state = &item.at.asyncs[index as usize];
        let is_first = state.phase() == phase::IDLE;
        if is_first {
            state.set_phase(phase::INSIDE);
            // ORDERING: pairs with the fence in `drive_cancelled`. Of "make the run live, begin, load the
            // state" and "cancel, load the run" one side sees the other. Later polls see a cancel that
            // came before `Parking::begin`.
            fence(Ordering::SeqCst);
        }
        if run.state.is_cancelled() {
            item.abort_node(index);
            return StepResult::Done;
        }
        if is_first && let Some(error) = run.injected(node) {
            state.end();
            self.fail(error);
            return StepResult::Done;
        }
        let is_observed = attention & state::OBSERVED != 0;
        let mut begun = match is_observed {
            true if is_first => item.begin_node(node),
            true => state.take(),
            false => None,
        };
        let body = self.code.body(node);
        // SAFETY: this thread has the node's program, so it alone polls the node; the plan has ordered what
        // the node reads before it.
        let cells = unsafe { item.cells(node) };
        let poll = || at_core(&run.core, || body.poll(cells, &mut Context::from_waker(&waker)));
        let has_others = self.queue.has_others();
        let polled = aside(|| item.around(&mut begun, || live.context.poll(has_others, poll)));
        let fault = match polled {
            Ok(Poll::Pending) => {
                // Both must precede `try_park`: another thread may resume the program then.
                state.keep(begun);
                self.store_place(self.step << 1);
                if !parking.try_park() {
                    wakes.resume(place);
                }
                return StepResult::Parked;
            }
            Ok(Poll::Ready(Ok(()))) => None,
            Ok(Poll::Ready(Err(error))) => Some(item.site(node).failed(error)),
            Err(panic) => {
                let _ = aside(|| shielded(|| body.abort(cells)));
                Some(item.site(node).panicked(panic_message(panic)))
            }
        };
        state.end();
        item.end_node(node, begun, Ended::of(fault.is_none()));
        if let Some(fault) = fault {
            item.set_outcome(node, outcome::FAILED, Some(fault));
        }
        StepResult::Done
    }
}

impl RunInner {
    /// Makes an inline run progress, for a time slice. Workers do that for other runs.
    pub(super) fn drive(&self) -> Drive {
        self.drive_with(&mut Pace::new(), |_| ())
    }

    /// Does the same, in that pace, with programs that `add` adds. The last of them is run first.
    pub(super) fn drive_with(&self, pace: &mut Pace, add: impl FnOnce(&mut Tickets)) -> Drive {
        if self.core.pool.is_some() {
            return Drive::Done;
        }
        // The thread that is making the run live drives it next.
        let Some(live) = self.live.get() else { return Drive::Busy };
        let Some(mut driver) = self.try_driver() else { return Drive::Busy };
        add(&mut driver);
        let run = || match &self.core.choices {
            Some(choices) => self.run_chosen(choices, &mut driver, live),
            None => self.run_inline(&mut driver, live, pace),
        };
        let is_spent = inside_executor(self.core.address(), || inside_executor(self.address(), run));
        drop(driver);
        // ORDERING: pairs with the fence in `drive_cancelled`. Of "unlock, load the state" and "cancel, try
        // the lock" one side sees the other.
        fence(Ordering::SeqCst);
        if self.state.is_cancelled() {
            self.drive_cancelled();
        }
        if is_spent { Drive::More } else { Drive::Done }
    }

    /// After a cancel: drops the futures of all parked async nodes, and ends an inline run.
    pub(super) fn drive_cancelled(&self) {
        // ORDERING: pairs with the fences in `drive` and `poll_node`: see there.
        fence(Ordering::SeqCst);
        let Some(live) = self.live.get() else { return };
        if self.core.pool.is_some() {
            return self.items().for_each(Item::abort_parked);
        }
        let Some(mut driver) = self.try_driver() else { return };
        inside_executor(self.core.address(), || {
            // This thread has the driver, so no other uses the nodes.
            self.items().for_each(|item| (0..item.at.asyncs.len() as u32).for_each(|index| item.abort_node(index)));
            if !self.is_complete() {
                // No further poll may come. The rest of the run is skipped.
                driver.clear();
                Self::finish(self.me(), Some(live.slot));
            }
        });
    }

    fn try_driver(&self) -> Option<MutexGuard<'_, Tickets>> {
        match self.driver.try_lock() {
            Ok(driver) => Some(driver),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Runs the programs of an inline run for a time slice. Returns true if some are left.
    #[inline]
    fn run_inline(&self, tickets: &mut Tickets, live: &Live, pace: &mut Pace) -> bool {
        let mut queue = Alone::<false>::for_a_slice(tickets, &self.progress, pace);
        loop {
            take_woken(live, |ticket| queue.tickets.push(ticket));
            if queue.tickets.is_empty() {
                return false;
            }
            while let Some(ticket) = queue.next_ticket() {
                // SAFETY: the ticket was made for this run, which the caller keeps alive.
                unsafe { Self::resume(self, ticket, &mut queue) };
                if queue.is_spent() {
                    return !queue.tickets.is_empty();
                }
            }
            // A program that parks takes no fuel. Futures that wake themselves must not keep the poll.
            if live.wakes.is_some() && !queue.has_fuel() && queue.is_spent() {
                return false;
            }
        }
    }

    /// Runs nodes of a simulated run, each chosen among those that could run. Returns true if some are left,
    /// or if an item has ended: then the consumer takes its result, and the nodes of the item that begins in
    /// its place are among the next to choose from.
    fn run_chosen(&self, choices: &Choices, tickets: &mut Tickets, live: &Live) -> bool {
        let open = || live.pipe.as_ref().map_or(0, |pipe| pipe.open());
        for _ in 0..STEPS_MAX {
            take_woken(live, |ticket| tickets.push(ticket));
            if tickets.is_empty() {
                return false;
            }
            // One ticket for each program, in an order that follows from the run alone.
            let mut singles: Vec<Ticket> = tickets.drain(..).flat_map(Ticket::singles).collect();
            let among = singles.len();
            let (choice, misfit) = choices.choose(among);
            let chosen = singles.swap_remove(choice);
            // Other items may be over, and wait for their results to be taken.
            let programs = self.code().programs();
            let item = self.item(chosen.first() / programs);
            choices.note(among, || item.next_node(chosen.first() % programs));
            misfit.into_iter().for_each(|misfit| item.add_fault(None, misfit));
            tickets.extend(singles);
            let mut queue = Alone::for_a_step(tickets, &self.progress);
            let before = open();
            // SAFETY: the ticket was made for this run, which the caller keeps alive.
            unsafe { Self::resume(self, chosen, &mut queue) };
            if open() < before {
                return true;
            }
        }
        !tickets.is_empty()
    }

    pub(super) fn injected(&self, node: NodeId) -> Option<BoxError> {
        self.core.choices.as_ref()?.injected(node)
    }
}

impl Item<'_> {
    /// Returns the name of the node that a program comes to next.
    fn next_node(self, program: u32) -> Option<Name> {
        // ORDERING: Relaxed: the caller has the program's ticket, and nothing else runs.
        let place = self.at.places[program as usize].load(Ordering::Relaxed);
        let node = self.code().nodes_of(place >> 1).next()?;
        Some(self.run.plan.inner().name_of(node))
    }

    /// Returns the place of an async node in the wake set, which has those of all iterations.
    fn wake_index(self, index: u32) -> u32 {
        self.at.number * self.at.asyncs.len() as u32 + index
    }

    /// Aborts the async nodes that are parked, and resumes their programs. A poll that is running, or is
    /// about to begin, sees the cancel itself.
    fn abort_parked(self) {
        let (Some(wakes), Some(pool)) = (&self.live.wakes, &self.run.core.pool) else { return };
        let code = self.code();
        for index in 0..self.at.asyncs.len() as u32 {
            if !wakes.parking(self.wake_index(index)).wake() {
                continue;
            }
            self.abort_node(index);
            let at = code.asyncs[index as usize];
            let program = code.program_of(at);
            // ORDERING: Release pairs with the Acquire in `catch_up`; the ticket brings it to the worker.
            self.at.places[program as usize].store(at << 1 | 1, Ordering::Release);
            if self.run.state.glance() & state::WATCHED != 0 {
                self.run.signal_watchers(program, at + 1 - code.starts[program as usize]);
            }
            pool.submit(self.ticket(program, 1));
        }
    }

    /// Drops the future of an async node. The caller has its program, or the run's driver.
    fn abort_node(self, index: u32) {
        let code = self.code();
        let node = code.nodes[code.asyncs[index as usize] as usize];
        let state = &self.at.asyncs[index as usize];
        if state.phase() == phase::IDLE {
            return;
        }
        let begun = state.take();
        state.end();
        let body = code.body(node);
        // SAFETY: the caller has the node's program, or the driver of the run, so no other thread polls it.
        let cells = unsafe { self.cells(node) };
        if let Err(message) = aside(|| shielded(|| body.abort(cells))) {
            let message = format!("dropping its future: {message}");
            self.add_fault(Some(node), self.site(node).panicked(message));
        }
        self.end_node(node, begun, Ended::Cancelled);
        self.set_outcome(node, outcome::CANCELLED, None);
    }
}

/// Makes tickets of the programs of an inline run that were woken.
fn take_woken(live: &Live, mut add: impl FnMut(Ticket)) {
    if let Some(wakes) = &live.wakes {
        wakes.take(|program| add(Ticket::new(live.slot, program, 1)));
    }
}
