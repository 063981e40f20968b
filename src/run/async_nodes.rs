//! Async nodes, and whole inline runs: polled by whoever awaits the run, one task at a time.
//!
//! A program that comes to an async node parks, and its node rings. A poll of the run (or of one of its node
//! futures) takes the driver's lock, polls what rang, and resumes the programs whose nodes are ready. Who
//! finds the lock taken leaves: whoever holds it looks again after letting go.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::driver::{AsyncNode, Driver};
use super::inner::{Live, RunInner};
use super::interpret;
use super::observe::Ran;
use super::outcomes::outcome;
use super::state;
use crate::device::host::{Alone, Slice, Ticket};
use crate::error::{BoxError, panic_message, shielded};
use crate::graph::NodeId;
use crate::runtime::{Choices, Launched, STEPS_MAX, WakeSet, inside_executor};
use crate::sync::{MutexGuard, Ordering, fence};

/// What came of an attempt to make a run go on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Drive {
    /// Someone else is at it, and looks again after letting go; or a worker is still making the run's memory.
    /// Either rings when there is something to poll.
    Busy,
    /// Nothing is left to do but wait.
    Done,
    /// Something is left for another poll.
    More,
}

impl RunInner {
    /// Polls what is ready to be polled, once.
    pub(super) fn drive(self: &Arc<Self>) -> Drive {
        // An inline run is driven next by who starts it. A worker that makes the run live rings when it comes
        // to an async node.
        let Some(live) = self.live.get() else { return Drive::Busy };
        if self.core.pool.is_some() && live.wakes.is_none() {
            return Drive::Done;
        }
        let Some(mut driver) = self.try_driver() else { return Drive::Busy };
        let is_spent = inside_executor(self.core.address(), || {
            let is_spent = self.run_inline(&mut driver);
            let is_spent = self.poll_woken(&mut driver, live) || is_spent;
            is_spent || self.run_inline(&mut driver)
        });
        drop(driver);
        // ORDERING: pairs with the fence in `drive_cancelled`: of "let go, look for a cancel" and "cancel,
        // try the lock" one side sees the other.
        fence(Ordering::SeqCst);
        if self.state.is_cancelled() {
            self.drive_cancelled();
        }
        if is_spent { Drive::More } else { Drive::Done }
    }

    /// After a cancel: aborts every async node that was handed over, and lets an inline run come to its end.
    pub(super) fn drive_cancelled(&self) {
        // ORDERING: as in `drive`. It also orders the cancel before the look at `live`: a run that starts
        // meanwhile sees the cancel when it hands a node over.
        fence(Ordering::SeqCst);
        let Some(live) = self.live.get() else { return };
        loop {
            let Some(mut driver) = self.try_driver() else { return };
            inside_executor(self.core.address(), || {
                self.abort_open(&mut driver, live);
                if self.core.pool.is_none() && !self.is_complete() {
                    // Nobody may come to poll again, and nothing of the run is running now: what is left of
                    // it is skipped.
                    driver.tickets.clear();
                    Self::finish(self.me());
                }
            });
            drop(driver);
            if !live.wakes.as_ref().is_some_and(|wakes| wakes.has_woken()) {
                return;
            }
        }
    }

    fn try_driver(&self) -> Option<MutexGuard<'_, Driver>> {
        use std::sync::TryLockError;
        match self.driver.try_lock() {
            Ok(driver) => Some(driver),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Runs the programs of an inline run for a time slice. Returns true if some are left.
    fn run_inline(&self, driver: &mut Driver) -> bool {
        if self.core.pool.is_some() || driver.tickets.is_empty() {
            return false;
        }
        if let Some(choices) = &self.core.choices {
            return self.run_chosen(choices, driver);
        }
        let mut queue = Alone::for_a_slice(&mut driver.tickets, &self.progress);
        while !queue.is_spent()
            && let Some(ticket) = queue.next_ticket()
        {
            // SAFETY: the ticket was made for this run.
            unsafe { interpret::resume_alone(std::ptr::from_ref(self).cast(), ticket, &mut queue) };
        }
        !driver.tickets.is_empty()
    }

    /// Runs nodes of a simulated run, each chosen among those that could run. Returns true if some are left.
    pub(super) fn run_chosen(&self, choices: &Choices, driver: &mut Driver) -> bool {
        for _ in 0..STEPS_MAX {
            if driver.tickets.is_empty() {
                return false;
            }
            // One ticket for each program, in an order that follows from the run alone.
            let mut singles: Vec<Ticket> = driver.tickets.drain(..).flat_map(Ticket::singles).collect();
            let (choice, misfit) = choices.choose(singles.len());
            misfit.into_iter().for_each(|misfit| self.add_fault(None, misfit));
            let chosen = singles.swap_remove(choice);
            driver.tickets.extend(singles);
            let mut queue = Alone::for_a_step(&mut driver.tickets, &self.progress);
            // SAFETY: the ticket was made for this run.
            unsafe { interpret::resume_alone(std::ptr::from_ref(self).cast(), chosen, &mut queue) };
        }
        !driver.tickets.is_empty()
    }

    /// Returns the fault that is to be injected at a node.
    pub(super) fn injected(&self, node: NodeId) -> Option<BoxError> {
        self.core.choices.as_ref()?.injected(node)
    }

    /// Polls the nodes that were woken, for a time slice. Returns true if some are left.
    fn poll_woken(&self, driver: &mut Driver, live: &Live) -> bool {
        let Some(wakes) = &live.wakes else { return false };
        if driver.woken.is_empty() {
            driver.woken = wakes.take();
        }
        // On a simulated executor the chosen order decides, so time must not.
        let is_timed = self.core.choices.is_none();
        let mut slice = Slice::new();
        while let Some(index) = wakes.pop(&mut driver.woken) {
            self.poll_node(driver, live, wakes, index);
            if is_timed && !slice.has_time() {
                break;
            }
        }
        !driver.woken.is_empty()
    }

    fn poll_node(&self, driver: &mut Driver, live: &Live, wakes: &Arc<WakeSet>, index: u32) {
        let at = self.code().asyncs[index as usize];
        let node = self.code().nodes[at as usize];
        let body = self.code().body(node);
        let known = driver.nodes[index as usize];
        let since = match known {
            // A waker that outlived its future.
            AsyncNode::Idle if !wakes.is_begun(index) => return,
            AsyncNode::Idle => (self.state.glance() & state::OBSERVED != 0).then(Instant::now),
            AsyncNode::Polled { since } => since,
        };
        driver.nodes[index as usize] = AsyncNode::Polled { since };
        if self.state.is_cancelled() {
            return self.abort_node(driver, live, index);
        }
        if let (AsyncNode::Idle, Some(error)) = (known, self.injected(node)) {
            self.set_outcome(node, outcome::FAILED, Some(self.site(node).failed(error)));
            return self.end_node(driver, live, index);
        }
        let waker = wakes.waker(index);
        // SAFETY: the node's program is parked at it, and the driver's lock makes this the only poll.
        let cells = unsafe { self.cells(node) };
        let polled = catch_unwind(AssertUnwindSafe(|| body.poll(cells, &mut Context::from_waker(&waker))));
        let fault = match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(Ok(()))) => None,
            Ok(Poll::Ready(Err(error))) => Some(self.site(node).failed(error)),
            Err(panic) => {
                let _ = shielded(|| body.abort(cells));
                Some(self.site(node).panicked(panic_message(panic)))
            }
        };
        if let Some(since) = since {
            self.observe(node, Ran::since(since, fault.is_none()), Launched::Host);
        }
        if let Some(fault) = fault {
            self.set_outcome(node, outcome::FAILED, Some(fault));
        }
        self.end_node(driver, live, index);
    }

    /// Aborts every node that was polled or is waiting to be.
    fn abort_open(&self, driver: &mut Driver, live: &Live) {
        let Some(wakes) = &live.wakes else { return };
        let abort = |driver: &mut Driver, index| match driver.nodes[index as usize] {
            AsyncNode::Idle if !wakes.is_begun(index) => {}
            _ => self.abort_node(driver, live, index),
        };
        while let Some(index) = wakes.pop(&mut driver.woken) {
            abort(driver, index);
        }
        wakes.pop_all(|index| abort(driver, index));
        for index in 0..driver.nodes.len() as u32 {
            if let AsyncNode::Polled { .. } = driver.nodes[index as usize] {
                self.abort_node(driver, live, index);
            }
        }
    }

    fn abort_node(&self, driver: &mut Driver, live: &Live, index: u32) {
        let node = self.code().nodes[self.code().asyncs[index as usize] as usize];
        let body = self.code().body(node);
        // SAFETY: as in `poll_node`.
        let cells = unsafe { self.cells(node) };
        if let Err(message) = shielded(|| body.abort(cells)) {
            let message = format!("dropping its future: {message}");
            self.add_fault(Some(node), self.site(node).panicked(message));
        }
        self.set_outcome(node, outcome::CANCELLED, None);
        self.end_node(driver, live, index);
    }

    /// Resumes the program of an async node that is done.
    fn end_node(&self, driver: &mut Driver, live: &Live, index: u32) {
        driver.nodes[index as usize] = AsyncNode::Idle;
        let code = self.code();
        let at = code.asyncs[index as usize];
        let program = code.program_of(at);
        // ORDERING: Release for `catch_up`; whoever resumes the program gets it by its ticket.
        live.places[program as usize].store(at << 1 | 1, Ordering::Release);
        if self.state.glance() & state::WATCHED != 0 {
            self.signal_watchers(program, at + 1 - code.starts[program as usize]);
        }
        let ticket = Ticket::new(live.slot, program, 1);
        match &self.core.pool {
            Some(pool) => pool.submit(ticket),
            None => driver.tickets.push(ticket),
        }
    }
}
