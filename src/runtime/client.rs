//! The clients of an executor: runs and engines. Workers do their work; a shutdown ends it.

use std::sync::{Arc, Weak};

use super::core::Core;
use crate::device::host::{Entry, Ticket};
use crate::error::{Error, Result};

/// What an executor's workers work for.
pub(crate) trait Client: Send + Sync + 'static {
    /// The executor shuts down: ends what has not begun. The workers stay until the client has left its
    /// place.
    fn shut_down(self: Arc<Self>);
}

/// An engine's place among the clients, until it is dropped.
pub(crate) struct Registration {
    core: Arc<Core>,
    place: u32,
}

impl Registration {
    /// Registers an engine. Workers, if there are any, call `entry` for it.
    ///
    /// # Errors
    /// If the executor is shut down, or has as many engines as it may have.
    ///
    /// # Safety
    /// As long as a ticket of [`Registration::call_worker`] exists, `entry` points to a live object for which
    /// its functions may be called. No ticket is left when the registration is dropped.
    pub(crate) unsafe fn new(core: &Arc<Core>, engine: Weak<dyn Client>, entry: Entry) -> Result<Self> {
        core.check_process()?;
        let place = core.add_engine(engine)?;
        let registration = Self { core: core.clone(), place };
        if let Some(pool) = &core.pool {
            // SAFETY: `add_engine` gave this place to this engine alone, so no other entry is in the slot;
            // the caller keeps what `entry` points to alive.
            unsafe { pool.enter(registration.slot(), entry) };
        }
        Ok(registration)
    }

    /// Returns the engine's slot in the pool. Those of runs come first.
    fn slot(&self) -> u16 {
        (self.core.max_in_flight() + self.place as usize) as u16
    }

    /// Calls a worker, if there are any.
    pub(crate) fn call_worker(&self) {
        self.core.pool.iter().for_each(|pool| pool.submit(Ticket::new(self.slot(), 0, 1)));
    }

    /// Chooses what a simulated executor does next; None on other executors. See
    /// [`Choices::choose`](super::Choices::choose).
    pub(crate) fn choose(&self, among: usize) -> Option<(usize, Option<Error>)> {
        self.core.choices.as_ref().map(|choices| choices.choose(among))
    }

    /// Returns true if this thread is a worker and is inside of a body.
    pub(crate) fn is_in_task(&self) -> bool {
        self.core.is_in_task()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return std::mem::forget(self.core.clone());
        }
        if let Some(pool) = &self.core.pool {
            // SAFETY: `new` entered the slot, and its caller promised that no ticket is left now.
            unsafe { pool.leave(self.slot()) };
        }
        self.core.remove_engine(self.place);
    }
}
