//! Which asynchronous operation this thread polls, so that one that would wait for itself gets an error instead.
//!
//! What it pushes stands behind it wherever both use a variable and one of them writes it; and where both only read, if a third that writes stands between them. To wait for that
//! inside of it would be for ever. Whether it is so is known when what it pushed has entered its queues.

use std::borrow::Cow;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;

use super::op::Job;
use crate::error::{Error, Kind};
use crate::sync::{OnceLock, thread_local};

/// Tells an operation from all others of its engine: its slot, and the slot's state.
pub(super) type Key = (u32, u64);

#[derive(Clone, Copy)]
struct Polled {
    hub: usize,
    key: Key,
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
    pub(super) fn enter(hub: usize, key: Key, job: &Job) -> Self {
        let polled = Polled { hub, key, job: NonNull::from(job) };
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

/// What an operation has in common with the asynchronous one that pushes it.
pub(super) struct Common {
    with: Key,
    operation: Cow<'static, str>,
    /// Those of its variables that both read.
    read: SmallVec<[u16; 2]>,
    /// A variable for which it waits until the other is over.
    behind: OnceLock<Cow<'static, str>>,
}

impl Common {
    /// Returns what there is, if this thread polls an operation of that engine.
    pub(super) fn of(hub: usize, job: &Job) -> Option<Arc<Self>> {
        let polled = polled(hub)?;
        // SAFETY: who polls an operation keeps it until it has returned, and this thread is in there.
        let outer = unsafe { polled.job.as_ref() };
        let common = Self { with: polled.key, operation: outer.name.to_cow(), read: SmallVec::new(), behind: OnceLock::new() };
        Some(Arc::new(common.compare(outer, job)))
    }

    fn compare(mut self, outer: &Job, job: &Job) -> Self {
        for (place, asked) in job.asked.iter().enumerate() {
            let Some(own) = outer.asked.iter().find(|own| own.address() == asked.address()) else { continue };
            if own.request.is_write() || asked.request.is_write() {
                // SAFETY: the operation that is polled stands in the variable's queue.
                let _ = self.behind.set(unsafe { own.place() }.name.to_cow());
            } else {
                self.read.push(place as u16);
            }
        }
        self
    }

    /// Called when the operation stands in all its queues, and has not begun. Returns true if it is known only now to wait for the other.
    pub(super) fn look(&self, job: &Job) -> bool {
        let held_up = self.read.iter().map(|&place| &job.asked[place as usize]).find(|asked| !asked.request.is_granted());
        // SAFETY: it stands in the variable's queue.
        held_up.is_some_and(|asked| self.behind.set(unsafe { asked.place() }.name.to_cow()).is_ok())
    }

    /// Returns an error if this thread polls the other, and to wait there would be for ever.
    pub(super) fn may_wait(&self, hub: usize) -> Result<(), Error> {
        match (polled(hub), self.behind.get()) {
            (Some(polled), Some(variable)) if polled.key == self.with => {
                Err(Kind::WaitsForItself { operation: self.operation.clone(), variable: variable.clone() }.into())
            }
            _ => Ok(()),
        }
    }
}
