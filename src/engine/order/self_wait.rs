//! The asynchronous operation that this thread polls, and the check that it does not wait for itself.
//!
//! An operation waits for itself if it awaits its own end, or an operation that is behind it in the queue of
//! a variable. The check takes no lock of pushes. It follows the links of requests: those behind a granted
//! write stay until it leaves. If there are too many, or a read is behind a read, an inspection keeps the
//! awaited operation in its slot, and the variables of the two are compared. Longer cycles are no errors;
//! [`Engine::blocked`](crate::Engine::blocked) shows them.

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

/// The most requests that are followed before an inspection begins: a bound on the work of a poll.
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
    let own = match exclusive {
        Some(exclusive) => keeping_inline(slots, exclusive, operation, awaited),
        None => {
            let mut left = COMPARED_MAX;
            let own = operation.accesses.iter().find(|own| precedes(slots, own, awaited, &mut left));
            own.or_else(|| if left == 0 { slots.keeping(operation, awaited) } else { None })
        }
    }?;
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

/// Returns true if `awaited` is linked behind a request of the polled operation. Follows at most `left`
/// links, and sets `left` to 0 if others may be behind these.
fn precedes(slots: &Slots, own: &Access, awaited: Key, left: &mut usize) -> bool {
    let mut link = own.request.behind();
    // Reads behind a granted read may be granted, too, and leave at any time. No request behind a write
    // leaves.
    if !own.request.is_write() && link.is_some_and(|link| !link.is_write) {
        *left = 0;
    }
    while let Some(next) = link.take_if(|_| *left > 0) {
        *left -= 1;
        if next.id.operation() == awaited.number() {
            return slots.handle(awaited.number()).key(awaited.number()) == awaited;
        }
        // SAFETY: the request waits behind that of the polled operation, so its operation has not run, and is
        // in its slot.
        let operation = unsafe { slots.get(next.id.operation()).operation() };
        link = operation.accesses[next.id.number()].request.behind();
    }
    false
}

/// Returns the access of the polled operation that keeps the awaited one from a variable. The engine has no
/// workers: this thread has the turn.
fn keeping_inline<'o>(slots: &Slots, exclusive: &Exclusive, polled: &'o Operation, awaited: Key) -> Option<&'o Access> {
    if slots.handle(awaited.number()).key(awaited.number()) != awaited {
        return None;
    }
    // SAFETY: only the thread that has the turn ends operations, and that is this one: it polls one. So a
    // pending operation is in its slot.
    let pending = |number| unsafe { slots.get(number).operation() };
    polled.keeping(pending(awaited.number()), |address| {
        // Operations that the poll itself has pushed are not in the queues yet.
        exclusive.any_posted_before(awaited.number(), |posted| {
            pending(posted).access_of(address).is_some_and(|access| access.request.is_write())
        })
    })
}

impl Operation {
    /// Returns the access of this operation, which runs, that keeps a pending one from a variable.
    /// `is_write_posted`: whether a write of the variable will enter its queue before the pending operation.
    pub(super) fn keeping(&self, pending: &Operation, is_write_posted: impl Fn(usize) -> bool) -> Option<&Access> {
        self.accesses.iter().find(|own| {
            let Some(other) = pending.access_of(own.address()) else { return false };
            // A read behind this read waits only for a write between the two.
            let is_write_between = || own.request.behind().is_some_and(|link| link.is_write) || is_write_posted(own.address());
            own.request.is_write() || other.request.is_write() || !other.request.is_granted_read() && is_write_between()
        })
    }
}
