//! Guests of an executor: work that is no run, and that its workers do all the same.

use std::sync::{Arc, Weak};

use super::Executor;
use super::core::Core;
use super::queues::Queues;
use crate::device::host::{Entry, Ticket};
use crate::error::{Error, Result};

/// How many guests an executor has room for.
pub(crate) const GUESTS_MAX: usize = 256;

/// What an executor tells its guests.
pub(crate) trait Guest: Send + Sync {
    /// The executor is shut down: the workers stay until the guest has left, and it is to see that it can.
    fn close(self: Arc<Self>);
}

/// A guest's room: how it gets at the workers.
pub(crate) struct Room {
    core: Arc<Core>,
    place: u16,
}

impl Executor {
    /// Takes a guest in. `entry` is how workers do its work; it is for executors that have workers.
    ///
    /// # Errors
    /// If the executor was shut down, or has no room.
    ///
    /// # Safety
    /// What `entry` points to is alive, and its functions are sound to call with it, for as long as there is
    /// a ticket of [`Room::call_worker`]; and none is left when the room is dropped.
    pub(crate) unsafe fn take_in(&self, guest: Weak<dyn Guest>, entry: Entry) -> Result<Room> {
        let core = self.core();
        let place = core.take_in(guest)?;
        if let Some(pool) = &core.pool {
            // SAFETY: the place was free; the rest is the caller's promise.
            unsafe { pool.enter(place, entry) };
        }
        Ok(Room { core: core.clone(), place })
    }

    /// Returns the devices that queue work, if there are any. Then there are workers.
    pub(crate) fn queues(&self) -> Option<&Arc<Queues>> {
        self.core().queues.as_ref()
    }
}

impl Room {
    /// Chooses which of so many things that could be done now is done, on a simulated executor. Also returns
    /// an error, once, if the choices to replay do not fit. None on other executors.
    pub(crate) fn choose(&self, among: usize) -> Option<(usize, Option<Error>)> {
        self.core.rehearsal.as_ref().map(|rehearsal| rehearsal.choose(among))
    }

    /// Returns true if this thread is a worker and is running the body of a node, or of an operation.
    pub(crate) fn is_in_task(&self) -> bool {
        self.core.is_in_task()
    }

    /// Calls a worker, if there are any.
    pub(crate) fn call_worker(&self) {
        self.core.pool.iter().for_each(|pool| pool.submit(Ticket::new(self.place, 0, 1)));
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return std::mem::forget(self.core.clone());
        }
        if let Some(pool) = &self.core.pool {
            // SAFETY: no ticket is left, as who was taken in has promised.
            unsafe { pool.leave(self.place) };
        }
        self.core.let_out(self.place);
    }
}
