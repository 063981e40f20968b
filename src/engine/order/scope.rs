//! Scopes: the operations of one flow, which are cancelled together. Once a scope is cancelled, no operation
//! of it begins, and their futures are dropped.
//!
//! ```text
//!  event                       before          after        then
//!  begin in a cancelled flow   GOING           CANCELLED
//!  cancel                      GOING           CANCELLED    cancels the flows within, drops the futures
//!  cancel                      else            unchanged
//!  cancel of an outer flow     GOING or OVER   CANCELLED    cancels the flows within, drops the futures
//!  cancel of an outer flow     CANCELLED       CANCELLED    nothing: the first cancel does it
//!  end                         GOING           OVER         the operations continue
//!  end                         else            unchanged
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use slab::Slab;

use super::body::PendingFuture;
use crate::error::{Error, Kind, Listener, Result, shielded};
use crate::runtime::{Lane, LazyId};
use crate::sync::{AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, lock};

/// The most operations of one flow that may be pending.
const PENDING_MAX: u64 = 65_536;

/// The state that the operations of one flow share.
pub(crate) struct Scope {
    pub(crate) id: LazyId,
    /// The flow in which this one was begun.
    pub(crate) outer: Option<Arc<Scope>>,
    /// The flows that were begun in this one, in reusable places. The drop of each removes it.
    inners: Mutex<Slab<Weak<Scope>>>,
    /// Its place among those of the outer flow: stored once by `new`, and read by the last drop.
    place: AtomicU32,
    state: AtomicU32,
    /// Its asynchronous operations that have begun, by slot.
    futures: Mutex<BTreeMap<u32, Arc<dyn PendingFuture>>>,
    /// The number of its pending operations.
    pending: AtomicU64,
    /// The error that ends it: a push was refused, for example.
    failure: OnceLock<Error>,
    /// Rung when it is cancelled, or ends with an error.
    pub(crate) stopped: Lane,
}

/// The number of the engine among the owners of ready operations: the next sweep runs what it owns. Those of
/// flows are addresses of their scopes.
pub(super) const ENGINE: usize = 0;

/// The flow's code runs.
const GOING: u32 = 0;
/// The flow, or one that it was begun in, was cancelled.
const CANCELLED: u32 = 1;
/// The flow's code has returned, and its operations continue.
const OVER: u32 = 2;

impl Scope {
    pub(crate) fn new(outer: Option<Arc<Scope>>) -> Arc<Self> {
        let scope = Arc::new(Self {
            id: LazyId::new(),
            outer,
            inners: Mutex::default(),
            place: AtomicU32::new(0),
            state: AtomicU32::new(GOING),
            futures: Mutex::default(),
            pending: AtomicU64::new(0),
            failure: OnceLock::new(),
            stopped: Lane::new(),
        });
        if let Some(outer) = &scope.outer {
            let place = lock(&outer.inners).insert(Arc::downgrade(&scope)) as u32;
            // ORDERING: Relaxed: only the last drop reads it, and that comes after the drop of this count.
            scope.place.store(place, Ordering::Relaxed);
            // A cancel of the outer flow stores its state before it locks the list. So either the cancel
            // finds this scope there, or this check sees the cancel.
            if outer.is_cancelled() {
                // ORDERING: SeqCst pairs with `is_cancelled`, as all changes of the state do.
                scope.state.store(CANCELLED, Ordering::SeqCst);
            }
        }
        scope
    }

    /// Returns the number of the flow among owners. It is unique, because a scope outlives its operations.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns the number of the owner of its operations: the engine once it is cancelled.
    pub(super) fn owner(&self) -> usize {
        if self.is_cancelled() { ENGINE } else { self.address() }
    }

    /// Returns true once it, or a flow that it was begun in, is cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: SeqCst pairs with the changes of the state. A cancel changes it, and then takes the
        // futures. An operation adds its future, and then calls this. So one of the two sees the other.
        self.state.load(Ordering::SeqCst) == CANCELLED
    }

    /// Returns an error if too many of its operations are pending.
    pub(crate) fn has_room(&self) -> Result<()> {
        // ORDERING: Relaxed: a count, which publishes nothing.
        if self.pending.load(Ordering::Relaxed) < PENDING_MAX { Ok(()) } else { Err(Kind::FlowBusy { max: PENDING_MAX }.into()) }
    }

    /// Counts an operation that was pushed.
    pub(crate) fn begin_one(&self) {
        // ORDERING: Relaxed: a count, which publishes nothing.
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an operation that has ended.
    pub(crate) fn end_one(&self) {
        // ORDERING: Relaxed: a count, which publishes nothing.
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds an asynchronous operation, whose future is dropped when this is cancelled.
    pub(crate) fn add_future(&self, number: u32, future: Arc<dyn PendingFuture>) {
        lock(&self.futures).insert(number, future);
    }

    pub(crate) fn remove_future(&self, number: u32) {
        let removed = lock(&self.futures).remove(&number);
        let _ = shielded(|| drop(removed));
    }

    /// Ends the flow with an error: one of its operations was refused, for example. Only the first error
    /// counts. Wakes the flow's task, which may wait for something else.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
        self.stopped.ring();
    }

    /// Returns the error that ends it. The caller reports it.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().inspect(|error| error.note_reported()).cloned()
    }

    /// Ends the flow: its code has returned, and a cancel has no effect from now on.
    pub(crate) fn end(&self) {
        // ORDERING: SeqCst, as all changes of the state. Relaxed on failure: it was cancelled, and nothing
        // follows.
        let _ = self.state.compare_exchange(GOING, OVER, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Cancels it, and all flows within it, even those that other tasks poll. Does nothing if it has ended or
    /// is cancelled.
    pub(crate) fn cancel(&self) {
        // ORDERING: SeqCst pairs with `is_cancelled`. Relaxed on failure: nothing follows.
        if self.state.compare_exchange(GOING, CANCELLED, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            let inners = self.cancel_inners();
            self.stop();
            inners.iter().for_each(|scope| scope.stop());
        }
    }

    /// Marks all flows within this one as cancelled, and returns them. A flow that is cancelled already has
    /// marked those within it, so nested drops take linear time.
    fn cancel_inners(&self) -> Vec<Arc<Scope>> {
        let (mut cancelled, mut open) = (Vec::new(), self.inners());
        while let Some(scope) = open.pop() {
            // ORDERING: SeqCst pairs with `is_cancelled`.
            if scope.state.swap(CANCELLED, Ordering::SeqCst) != CANCELLED {
                open.extend(scope.inners());
                cancelled.push(scope);
            }
        }
        cancelled
    }

    /// Returns all flows within it.
    pub(crate) fn all_within(&self) -> Vec<Arc<Scope>> {
        let mut all = self.inners();
        let mut next = 0;
        while next < all.len() {
            let inners = all[next].inners();
            all.extend(inners);
            next += 1;
        }
        all
    }

    fn inners(&self) -> Vec<Arc<Scope>> {
        lock(&self.inners).iter().filter_map(|(_, scope)| scope.upgrade()).collect()
    }

    /// Drops its futures, and wakes the task that awaits the flow.
    fn stop(&self) {
        let futures: Vec<Arc<dyn PendingFuture>> = lock(&self.futures).values().cloned().collect();
        futures.into_iter().for_each(PendingFuture::abandon);
        self.stopped.ring();
    }
}

impl Listener for Scope {
    /// Takes the error of an operation that could not begin, if its handle has not reported it.
    fn take(&self, error: Error) {
        self.fail(error);
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // A loop, because flows may be nested deeper than the stack allows.
        // ORDERING: Relaxed, both: `new` stored it, and the count of the `Arc` orders that before this drop.
        let (mut place, mut outer) = (self.place.load(Ordering::Relaxed), self.outer.take());
        while let Some(scope) = outer {
            lock(&scope.inners).remove(place as usize);
            place = scope.place.load(Ordering::Relaxed);
            outer = Arc::into_inner(scope).and_then(|mut scope| scope.outer.take());
        }
    }
}
