//! Inspections of the pending operations, on demand. No operation is pushed meanwhile. Threads that run
//! operations continue, but wait before they clear a slot or free a variable.
//!
//! ```text
//!  a thread that ends an operation          an inspection
//!  mark the slot: LEFT in `holds`, or       begin: `is_on` becomes true
//!  no `refs`                                heavy side of the barrier
//!  light side of the barrier                look at the mark of a slot: read no operation of a slot
//!  wait if `is_on`                          without refs, and no variable of an operation that has left
//!  clear the slot, or free the variable     end: `is_on` becomes false
//! ```
//!
//! At least one of the two sides sees the other. The thread that marks an operation and the one that frees
//! its variable may differ: then the variable's queue orders the mark before the free.

use crate::device::host::Barrier;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// The state that inspections and threads that run operations share.
pub(crate) struct Inspection {
    is_on: AtomicBool,
    turn: Mutex<()>,
    barrier: Barrier,
}

pub(crate) struct Inspecting<'i> {
    inspection: &'i Inspection,
    _turn: MutexGuard<'i, ()>,
}

impl Drop for Inspecting<'_> {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire in `pass`: the inspection has read all by then. A thread
        // that still sees true waits for the lock.
        self.inspection.is_on.store(false, Ordering::Release);
    }
}

impl Inspection {
    pub(crate) fn new(barrier: Barrier) -> Self {
        Self { is_on: AtomicBool::new(false), turn: Mutex::new(()), barrier }
    }

    /// Waits until no inspection reads the operation or variable that the caller has marked.
    #[inline(always)]
    pub(crate) fn pass(&self) {
        self.barrier.light();
        // ORDERING: Acquire pairs with the Release in the drop of `Inspecting`.
        if self.is_on.load(Ordering::Acquire) {
            self.wait();
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        drop(lock(&self.turn));
    }

    /// Begins an inspection. Returns None if the system refuses the barrier.
    pub(crate) fn begin(&self) -> Option<Inspecting<'_>> {
        let turn = lock(&self.turn);
        // ORDERING: Relaxed: the barrier orders it before the loads of the marks.
        self.is_on.store(true, Ordering::Relaxed);
        let inspecting = Inspecting { inspection: self, _turn: turn };
        self.barrier.heavy().then_some(inspecting)
    }
}
