//! The visits of an executor's workers to an engine: they run its operations.

use std::sync::Arc;
use std::task::Waker;

use super::engine_core::EngineCore;
use crate::device::host::Queue;
use crate::engine::order::{Batch, Runnable};
use crate::error::shielded;
use crate::runtime::Visited;
use crate::sync::{Ordering, lock, spin_loop};

/// The number of times that an idle worker checks for new operations before it leaves, and the spins between
/// two checks: some microseconds in all. Pushes in that time need not call a worker. So they get ahead of it,
/// and it runs dependent operations in a row.
const LOOKS: u32 = if cfg!(anabranch_loom) { 0 } else { 8 };
const SPINS: u32 = 32;
/// After an operation that is known to be cheap, so many are run before the cost of the next one is looked
/// at.
const TIMED: u32 = 16;

impl Visited for EngineCore {
    /// Runs ready operations until none is left, or until other work waits for the worker.
    fn visit<'q, Q: Queue<'q>>(self: &Arc<Self>, queue: &mut Q) -> bool {
        let (mut batch, mut untimed) = (Batch::new(&self.slots).leaving_waker(), TIMED);
        loop {
            match self.next(&mut batch) {
                Some(operation) => {
                    if let Some(waker) = queue.take_left() {
                        self.wake_first(waker, operation, &mut batch);
                        continue;
                    }
                    // There are more operations than this one, so another worker may come.
                    if !self.ready.is_empty() && self.has_worker_to_call() {
                        let _ = self.call_workers();
                    }
                    if untimed < TIMED {
                        untimed += 1;
                        self.run(operation, &mut batch);
                    } else if self.run_timed(operation, &mut batch) {
                        untimed = 0;
                    }
                    if let Some(waker) = batch.take_waker() {
                        self.wake(waker, &batch, queue);
                    }
                }
                None => {
                    if let Some(wakes) = batch.give_back() {
                        if wakes.space || wakes.idle || self.lanes.is_some() {
                            // Foreign code or a driver follows.
                            queue.wake_left();
                        }
                        self.have_given_back(wakes);
                    }
                    let is_ready = self.look_again();
                    queue.wake_left();
                    if !is_ready {
                        self.visits.end();
                        if self.ready.is_still_empty() || !self.visit_again() {
                            break;
                        }
                    }
                }
            }
            if !queue.has_fuel() {
                self.pass_on(&mut batch);
                queue.wake_left();
                self.give_back(&mut batch);
                return true;
            }
        }
        self.leave_if_over();
        false
    }
}

impl EngineCore {
    /// Calls a worker for ready operations, unless there are enough. Returns false if the engine has left the
    /// executor, so that no worker comes any more.
    pub(super) fn call_workers(self: &Arc<Self>) -> bool {
        // ORDERING: Relaxed: a worker that stops looking checks `Ready::is_still_empty` after that. So it
        // finds the operation that the caller has added.
        if self.looking.0.load(Ordering::Relaxed) > 0 || !self.has_worker_to_call() {
            return true;
        }
        let registration = lock(&self.registration);
        let Some(registration) = &*registration else { return false };
        registration.call_worker(self, self.workers);
        true
    }

    /// Calls a waker before an operation is run. Another worker may run it meanwhile.
    #[cold]
    fn wake_first(self: &Arc<Self>, waker: Waker, operation: Runnable, batch: &mut Batch<'_>) {
        batch.ready.push(operation);
        self.pass_on(batch);
        let _ = self.call_workers();
        let _ = shielded(|| waker.wake());
    }

    /// Wakes the task that awaits an operation.
    fn wake<'q>(&self, waker: Waker, batch: &Batch<'_>, queue: &mut impl Queue<'q>) {
        if batch.ready.is_empty() && self.ready.is_empty() {
            queue.wake(waker);
        } else {
            let _ = shielded(|| waker.wake());
        }
    }

    /// Checks for some microseconds whether an operation becomes ready.
    fn look_again(&self) -> bool {
        // ORDERING: Relaxed: a push that does not see it calls a worker in vain.
        self.looking.0.fetch_add(1, Ordering::Relaxed);
        let found = (0..LOOKS).any(|_| {
            (0..SPINS).for_each(|_| spin_loop());
            !self.ready.is_empty()
        });
        // ORDERING: Release: if a push still saw the old count, `is_still_empty` after the visit finds its
        // operation.
        self.looking.0.fetch_sub(1, Ordering::Release);
        found
    }

    /// Begins another visit in place of the one that has just ended.
    pub(super) fn visit_again(&self) -> bool {
        let registration = lock(&self.registration);
        registration.is_some() && self.visits.try_begin(self.workers)
    }

    fn has_worker_to_call(&self) -> bool {
        self.visits.count() < self.workers
    }
}
