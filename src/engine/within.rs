//! Which asynchronous operation this thread polls, so that one that would wait for itself gets an error
//! instead.
//!
//! An operation waits for itself if it awaits its own end, or one that waits behind it for a variable. Both
//! are seen without a lock: what stands behind a request is linked to it, and stays there until it leaves.
//! Longer circles are not errors; [`Engine::blocked`](super::Engine::blocked) shows them.

use std::cell::Cell;
use std::ptr::NonNull;

use super::handle::{Key, Watchers};
use super::hub::Hub;
use super::op::Job;
use super::place::Asked;
use crate::error::{Kind, Result};
use crate::sync::thread_local;

/// How many requests behind the operation are compared with the awaited one: a bound on the work of a poll.
const COMPARED_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Polled {
    hub: usize,
    operation: u32,
    job: NonNull<Job>,
}

thread_local! {
    static POLLED: Cell<Option<Polled>> = const { Cell::new(None) };
}

/// For as long as it lives, this thread polls that operation.
pub(super) struct Polling {
    outer: Option<Polled>,
}

impl Polling {
    pub(super) fn enter(hub: usize, operation: u32, job: &Job) -> Self {
        let polled = Polled { hub, operation, job: NonNull::from(job) };
        Self { outer: POLLED.try_with(|now| now.replace(Some(polled))).unwrap_or(None) }
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        let _ = POLLED.try_with(|now| now.set(self.outer));
    }
}

fn polled(hub: usize) -> Option<Polled> {
    POLLED.try_with(Cell::get).unwrap_or(None).filter(|polled| polled.hub == hub)
}

/// Returns true if this thread polls an operation of that engine.
pub(super) fn is_polling(hub: usize) -> bool {
    polled(hub).is_some()
}

impl Hub {
    /// Returns an error if this thread polls an operation that is `awaited`, or that keeps it from a
    /// variable.
    pub(super) fn may_wait_for(&self, awaited: Key) -> Result<()> {
        let Some(polled) = polled(self.address()) else { return Ok(()) };
        // SAFETY: a pending operation stays in its slot until its poll has returned, and this thread is in
        // it.
        let job = unsafe { polled.job.as_ref() };
        let operation = || job.name.to_cow();
        if polled.operation == awaited.0 {
            return Err(Kind::WaitsForOwnEnd { operation: operation() }.into());
        }
        let mut left = COMPARED_MAX;
        let Some(own) = job.asked.iter().find(|own| self.keeps(own, awaited, &mut left)) else { return Ok(()) };
        // SAFETY: the polled operation has the variable until its poll has returned.
        let variable = unsafe { own.place() }.name.to_cow();
        // SAFETY: it waits for the polled operation, so it is in its slot.
        let awaited = unsafe { self.slots.get(awaited.0).job() }.said_name();
        Err(Kind::WaitsForItself { operation: operation(), awaited, variable }.into())
    }

    /// Returns true if `awaited` stands behind a request of the polled operation. Looks at no more than
    /// `left` requests.
    fn keeps(&self, own: &Asked, awaited: Key, left: &mut usize) -> bool {
        let mut link = own.request.behind();
        // Readers behind a reader may be granted, and leave at any time; nothing leaves behind a writer.
        let mut is_blocked = own.request.is_write() || link.is_some_and(|link| link.is_write);
        while let Some(next) = link.take_if(|_| is_blocked && *left > 0) {
            *left -= 1;
            if next.id.operation() == awaited.0 {
                return self.is_pending(awaited);
            }
            // SAFETY: its request waits behind the polled operation's, so the operation is in its slot.
            link = unsafe { self.slots.get(next.id.operation()).job() }.asked[next.id.number()].request.behind();
        }
        if !self.is_inline() {
            return false;
        }
        // What the poll itself has pushed is not in the queues yet.
        self.turn.any_posted(*left, |posted| {
            // SAFETY: only the thread that has the engine takes it out of the inbox, and that is this one.
            let job = unsafe { self.slots.get(posted).job() };
            let asked = job.asked.iter().find(|asked| asked.address() == own.address());
            is_blocked |= asked.is_some_and(|asked| asked.request.is_write());
            is_blocked && asked.is_some() && posted == awaited.0
        })
    }

    fn is_pending(&self, (number, state): Key) -> bool {
        Watchers::key(self.slots.get(number)) == state
    }
}
