//! The work of an executor's workers for an engine.

use std::sync::Arc;

use super::engine_core::EngineCore;
use crate::device::host::Queue;
use crate::engine::order::Batch;
use crate::runtime::Visited;
use crate::sync::{Ordering, lock, spin_loop};

/// How often an idle worker checks for new operations before it leaves, and the spins between two checks:
/// some microseconds in all. A push in that time need not call the worker, and gets ahead of it, so that
/// dependent operations run in a row.
const LOOKS: u32 = if cfg!(anabranch_loom) { 0 } else { 8 };
const SPINS: u32 = 32;

impl Visited for EngineCore {
    /// Runs what is ready until nothing is, or until others wait for the worker.
    fn visit<'q, Q: Queue<'q>>(self: &Arc<Self>, queue: &mut Q) -> bool {
        let mut batch = Batch::new(&self.slots);
        loop {
            match self.next(&mut batch) {
                Some(operation) => {
                    // There is more than this worker takes: another may come.
                    if !self.ready.is_empty() && self.has_worker_to_call() {
                        let _ = self.call_workers();
                    }
                    self.run(operation, &mut batch);
                }
                None => {
                    self.give_back(&mut batch);
                    if self.look_again() {
                        continue;
                    }
                    self.visits.end();
                    if self.ready.is_still_empty() || !self.visit_again() {
                        break;
                    }
                }
            }
            if !queue.has_fuel() {
                self.pass_on(&mut batch);
                self.give_back(&mut batch);
                return true;
            }
        }
        self.leave_if_over();
        false
    }
}

impl EngineCore {
    /// Calls a worker for what was made ready, unless enough are there. Returns false if there are none any
    /// more.
    pub(super) fn call_workers(self: &Arc<Self>) -> bool {
        // ORDERING: Relaxed: see `Ready::is_still_empty`.
        if self.looking.0.load(Ordering::Relaxed) > 0 || !self.has_worker_to_call() {
            return true;
        }
        let registration = lock(&self.registration);
        let Some(registration) = &*registration else { return false };
        registration.call_worker(self, self.workers);
        true
    }

    /// Checks for a while whether more becomes ready.
    fn look_again(&self) -> bool {
        // ORDERING: Relaxed: a push that does not see it calls a worker in vain.
        self.looking.0.fetch_add(1, Ordering::Relaxed);
        let found = (0..LOOKS).any(|_| {
            (0..SPINS).for_each(|_| spin_loop());
            !self.ready.is_empty()
        });
        // ORDERING: Release: a push that still saw it came before, and the check behind the visit finds the
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
