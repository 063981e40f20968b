//! Async nodes, and whole inline runs: polled by whoever awaits the run, one task at a time.
//!
//! A program that comes to an async node parks, and its node rings. A poll of the run (or of one of its node
//! futures) takes the driver's lock, polls what rang, and resumes the programs whose nodes are ready. Who
//! finds the lock taken leaves: whoever holds it looks again after letting go.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::conduct;
use super::fates::fate;
use super::inner::{Live, RunInner};
use super::inside::inside_executor;
use super::observe::{Launched, Ran};
use super::state;
use crate::bridge::{Wakeset, Woken, shielded};
use crate::device::host::{Alone, Slice, Ticket, Tickets};
use crate::error::panic_message;
use crate::sync::{MutexGuard, Ordering, fence};

/// What the polling task keeps between polls.
#[derive(Default)]
pub(super) struct Driver {
    /// Programs of an inline run that are ready.
    pub(super) tickets: Tickets,
    nodes: Vec<AsyncNode>,
    /// Woken nodes for which the last poll had no time.
    woken: Woken,
}

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

/// How far an async node is.
#[derive(Clone, Copy)]
enum AsyncNode {
    /// There is no future: not yet, or not any more, or not again yet.
    Idle,
    Polled {
        since: Option<Instant>,
    },
}

impl Driver {
    /// Makes room for a run's async nodes.
    pub(super) fn expect_nodes(&mut self, count: usize) {
        self.nodes.resize(count, AsyncNode::Idle);
    }
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
        let is_spent = inside_executor(self.core.place(), || {
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
            inside_executor(self.core.place(), || {
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
        if let Some(rehearsal) = &self.core.rehearsal {
            return self.run_rehearsed(rehearsal, driver);
        }
        let mut queue = Alone::for_a_slice(&mut driver.tickets, &self.progress);
        while !queue.is_spent()
            && let Some(ticket) = queue.next_ticket()
        {
            // SAFETY: the ticket was made for this run.
            unsafe { conduct::resume_alone(std::ptr::from_ref(self).cast(), ticket, &mut queue) };
        }
        !driver.tickets.is_empty()
    }

    /// Polls the nodes that were woken, for a time slice. Returns true if some are left.
    fn poll_woken(&self, driver: &mut Driver, live: &Live) -> bool {
        let Some(wakes) = &live.wakes else { return false };
        if driver.woken.is_empty() {
            driver.woken = wakes.take();
        }
        // In a rehearsal the chosen order decides, so time must not.
        let is_timed = self.core.rehearsal.is_none();
        let mut slice = Slice::new();
        while let Some(index) = wakes.pop(&mut driver.woken) {
            self.poll_node(driver, live, wakes, index);
            if is_timed && !slice.has_time() {
                break;
            }
        }
        !driver.woken.is_empty()
    }

    fn poll_node(&self, driver: &mut Driver, live: &Live, wakes: &Arc<Wakeset>, index: u32) {
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
            self.set_fate(node, fate::FAILED, Some(self.blame(node).failed(error)));
            return self.end_node(driver, live, index);
        }
        let waker = wakes.waker(index);
        // SAFETY: the node's program is parked at it, and the driver's lock makes this the only poll.
        let cells = unsafe { self.cells(node) };
        let polled = catch_unwind(AssertUnwindSafe(|| body.poll(cells, &mut Context::from_waker(&waker))));
        let fault = match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(Ok(()))) => None,
            Ok(Poll::Ready(Err(error))) => Some(self.blame(node).failed(error)),
            Err(panic) => {
                let _ = shielded(|| body.abort(cells));
                Some(self.blame(node).panicked(panic_message(panic)))
            }
        };
        if let Some(since) = since {
            self.observe(node, Ran::since(since, fault.is_none()), Launched::Host);
        }
        if let Some(fault) = fault {
            self.set_fate(node, fate::FAILED, Some(fault));
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
            self.add_fault(Some(node), self.blame(node).panicked(message));
        }
        self.set_fate(node, fate::CANCELLED, None);
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
