//! The clients of an executor: runs and engines. Workers do their work; a shutdown ends it.

use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use super::Idle;
use super::core::Core;
use crate::device::host::{Entry, Queue, Resume, Ticket};
use crate::error::Result;
use crate::sync::{AtomicU64, Line, Ordering};

/// A run or an engine, whose work an executor's workers do.
pub(crate) trait Client: Send + Sync + 'static {
    /// Returns the number of pending operations of an engine.
    fn pending(&self) -> usize {
        0
    }

    /// Returns a wait until no operation of an engine is pending; None for a run.
    fn idle(self: Arc<Self>) -> Option<Idle> {
        None
    }

    /// Takes in no further items: the executor drains.
    fn drain(&self) {}

    /// Ends the work that has not begun: the executor shuts down. The workers stay until the client has left
    /// its place.
    fn shut_down(self: Arc<Self>);
}

/// A client that workers visit: they work for it until it has nothing to do.
pub(crate) trait Visited: Client {
    /// Works for the client. Returns true if other clients wait for the worker, which continues this visit
    /// later. Otherwise the visit was [ended](Visits::end).
    fn visit<'q, Q: Queue<'q>>(self: &Arc<Self>, queue: &mut Q) -> bool;
}

/// The visits that are under way. Each has a ticket, and a count of the client.
///
/// ```text
///  count     event       count after
///  < max     begin       count + 1      a ticket is submitted
///  max       begin       (unchanged)    enough workers visit already
///  any       end         count - 1
/// ```
pub(crate) struct Visits(Line<AtomicU64>);

/// A visited client's place among the clients, until it is dropped.
pub(crate) struct Registration<C> {
    pub(crate) core: Arc<Core>,
    place: u16,
    /// Its slot in the pool. Those of runs come first.
    slot: u16,
    visits: Arc<Visits>,
    client: PhantomData<fn(C)>,
}

impl Visits {
    pub(crate) fn new() -> Self {
        Self(Line(AtomicU64::new(0)))
    }

    /// Returns their number, which may be old.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        // ORDERING: Relaxed: a caller that relies on it has a fence or a read-modify-write before it.
        self.0.0.load(Ordering::Relaxed)
    }

    /// Returns true if there are none. No visit can begin meanwhile.
    fn are_over(&self) -> bool {
        // ORDERING: AcqRel: Acquire pairs with `end`: the work of the visits is visible. A read-modify-write
        // reads the newest count.
        self.0.0.fetch_add(0, Ordering::AcqRel) == 0
    }

    /// Begins a visit, unless there are `max`. The caller has the registration.
    pub(crate) fn try_begin(&self, max: u64) -> bool {
        let more = |count| (count < max).then_some(count + 1);
        // ORDERING: SeqCst: of "end, check for ready work" and "make work ready, load the visits" one sees
        // the other.
        self.0.0.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn end(&self) {
        // ORDERING: SeqCst: see `try_begin`.
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<C: Visited> Registration<C> {
    /// # Errors
    /// If the executor is shut down, or has as many engines as it may have.
    pub(crate) fn new(core: &Arc<Core>, client: &Arc<C>, visits: &Arc<Visits>) -> Result<Self> {
        core.check_process()?;
        let weak: Weak<C> = Arc::downgrade(client);
        let place = core.add_engine(weak)?;
        let slot = core.max_in_flight as u16 + place;
        let registration = Self { core: core.clone(), place, slot, visits: visits.clone(), client: PhantomData };
        if let Some(pool) = &core.pool {
            // SAFETY: `add_engine` gave this place to this client alone, so no other entry is in the slot.
            // Each ticket has a count of the client, and none is left when this is dropped.
            unsafe { pool.enter(slot, Entry::new(Arc::as_ptr(client))) };
        }
        Ok(registration)
    }

    /// Calls a worker for a visit, unless there are `max`.
    pub(crate) fn call_worker(&self, client: &Arc<C>, max: u64) {
        if let Some(pool) = &self.core.pool
            && self.visits.try_begin(max)
        {
            // The ticket's count.
            std::mem::forget(client.clone());
            pool.submit(Ticket::new(self.slot, 0, 1));
        }
    }
}

impl<C> Drop for Registration<C> {
    fn drop(&mut self) {
        // If a visit is under way, which must not happen, the slot stays taken.
        let is_over = self.visits.are_over();
        debug_assert!(is_over, "a client leaves after its last visit");
        if self.core.is_forked() || !is_over {
            return std::mem::forget(self.core.clone());
        }
        if let Some(pool) = &self.core.pool {
            // SAFETY: `new` entered the slot, and without visits no ticket is left.
            unsafe { pool.leave(self.slot) };
        }
        self.core.remove_engine(self.place);
    }
}

impl<C: Visited> Resume for C {
    unsafe fn resume<'q, Q: Queue<'q>>(client: *const C, ticket: Ticket, queue: &mut Q) {
        // SAFETY: `call_worker` made a count of the client for the ticket, and this takes it over.
        let client = unsafe { Arc::from_raw(client) };
        if client.visit(queue) {
            // The ticket's count.
            std::mem::forget(client);
            return queue.defer(ticket);
        }
        // This may be the last count, and the drop of the client runs user code.
        let _ = crate::error::shielded(|| drop(client));
    }
}
