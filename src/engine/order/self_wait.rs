//! The asynchronous operation that this thread polls, and the check that it does not wait for itself.
//!
//! An operation waits for itself if it awaits its own end, or an operation that is behind it in the queue of
//! a variable. The check takes no lock: requests are linked, and those behind a granted write stay until it
//! leaves. Longer circles are no errors; [`Engine::blocked`](crate::Engine::blocked) shows them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::thread;

use super::access::Access;
use super::body::{Outcome, Rest};
use super::exclusive::Exclusive;
use super::handle_state::Key;
use super::operation::{Granted, Operation};
use super::slots::Slots;
use crate::error::{Error, Kind};
use crate::sync::thread_local;

/// The most requests that are compared with the awaited operation: a bound on the work of a poll.
const COMPARED_MAX: usize = 64;

/// The operation that a thread polls.
#[derive(Clone, Copy)]
struct Polled {
    engine: usize,
    number: u32,
    operation: NonNull<Operation>,
}

thread_local! {
    static POLLED: Cell<Option<Polled>> = const { Cell::new(None) };
}

impl Granted<'_> {
    /// Runs the body as the operation that this thread polls.
    pub(crate) fn run_as_polled(&mut self, engine: usize, number: u32, rest: &mut Rest) -> thread::Result<Outcome> {
        let polled = Polled { engine, number, operation: NonNull::from(self.operation) };
        let replace = |polled| POLLED.try_with(|now| now.replace(polled)).unwrap_or(None);
        let outer = replace(Some(polled));
        let ran = catch_unwind(AssertUnwindSafe(|| self.run(rest)));
        replace(outer);
        ran
    }
}

fn polled(engine: usize) -> Option<Polled> {
    POLLED.try_with(Cell::get).unwrap_or(None).filter(|polled| polled.engine == engine)
}

/// Returns true if this thread polls an operation of that engine.
pub(crate) fn is_polling(engine: usize) -> bool {
    polled(engine).is_some()
}

/// Returns the error if a wait for `awaited` is one of the polled operation for itself. `exclusive`: of an
/// engine without workers.
pub(crate) fn self_wait(engine: usize, slots: &Slots, exclusive: Option<&Exclusive>, awaited: Key) -> Option<Error> {
    let polled = polled(engine)?;
    // SAFETY: `run_as_polled` borrows the operation until the poll has returned, and this thread is in it.
    let operation = unsafe { polled.operation.as_ref() };
    let name = || operation.name.to_cow();
    if polled.number == awaited.number() {
        return Some(Kind::WaitsForOwnEnd { operation: name() }.into());
    }
    let mut left = COMPARED_MAX;
    let own = operation.accesses.iter().find(|own| keeps(slots, exclusive, own, awaited, &mut left))?;
    // SAFETY: the polled operation is in the queue of the variable until its poll has returned.
    let variable = unsafe { own.variable() }.name.to_cow();
    // SAFETY: the awaited operation waits behind the polled one, whose poll has not returned. So it has not
    // run, and is in its slot.
    let awaited = unsafe { slots.get(awaited.number()).operation() };
    // SAFETY: the awaited operation has not run, so it is in its queues, or in the inbox of its push. So its
    // variables are alive.
    let awaited = unsafe { awaited.full_name() };
    Some(Kind::WaitsForItself { operation: name(), awaited, variable }.into())
}

/// Returns true if `awaited` is behind a request of the polled operation. Compares at most `left` requests.
fn keeps(slots: &Slots, exclusive: Option<&Exclusive>, own: &Access, awaited: Key, left: &mut usize) -> bool {
    let mut link = own.request.behind();
    // Reads behind a granted read may be granted, too, and leave at any time. No request behind a write
    // leaves.
    let mut is_blocked = own.request.is_write() || link.is_some_and(|link| link.is_write);
    while let Some(next) = link.take_if(|_| is_blocked && *left > 0) {
        *left -= 1;
        if next.id.operation() == awaited.number() {
            return slots.handle(awaited.number()).key(awaited.number()) == awaited;
        }
        // SAFETY: the request waits behind that of the polled operation, so its operation has not run, and is
        // in its slot.
        let operation = unsafe { slots.get(next.id.operation()).operation() };
        link = operation.accesses[next.id.number()].request.behind();
    }
    // Without workers, operations that the poll itself has pushed are not in the queues yet.
    exclusive.is_some_and(|exclusive| {
        exclusive.any_posted(*left, |posted| {
            // SAFETY: only the thread that has the turn empties the inbox, and that is this one: it polls an
            // operation. So the posted operation is in its slot.
            let operation = unsafe { slots.get(posted).operation() };
            let access = operation.accesses.iter().find(|access| access.address() == own.address());
            is_blocked |= access.is_some_and(|access| access.request.is_write());
            is_blocked && access.is_some() && posted == awaited.number()
        })
    })
}
