//! Scopes: the operations of one flow, which are cancelled together. Once a scope is cancelled none of them
//! begins, and their futures are dropped.
//!
//! ```text
//!  state       event     next
//!  GOING       cancel    CANCELLED
//!  GOING       end       OVER         its operations go on
//!  any         cancel of the outer flow    CANCELLED
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::error::{Error, Kind, Result, Untold, shielded};
use crate::runtime::Lane;
use crate::sync::{AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, lock};

/// How many operations of one flow may be pending.
const PENDING_MAX: u64 = 65_536;

/// What the operations of one flow share.
pub(crate) struct Scope {
    /// The flow that this one was begun in.
    outer: Option<Arc<Scope>>,
    /// The flows that were begun in this one. Each takes itself out when it is dropped.
    inners: Mutex<Inners>,
    /// Its place among those of the outer flow: stored once by `new`, and read by the last drop.
    place: AtomicU32,
    state: AtomicU32,
    /// Its asynchronous operations that have begun, by slot.
    futures: Mutex<BTreeMap<u32, Arc<dyn Abandon>>>,
    /// How many of its operations are pending.
    pending: AtomicU64,
    /// Why it cannot go on: a push was refused.
    failure: OnceLock<Error>,
    /// Rung when it is cancelled.
    pub(crate) bell: Lane,
}

/// What ends a ready operation if only polls run those, and there may be none.
pub(crate) enum Owner<'s> {
    None,
    /// The engine: the next sweep runs it.
    Engine,
    /// A flow: once that is cancelled, the next sweep runs it.
    Flow(&'s Scope),
}

/// The engine's number among the addresses of scopes.
pub(super) const ENGINE: usize = 0;

impl Owner<'_> {
    pub(super) fn number(self) -> Option<usize> {
        match self {
            Owner::None => None,
            Owner::Engine => Some(ENGINE),
            Owner::Flow(scope) => Some(if scope.is_cancelled() { ENGINE } else { scope.address() }),
        }
    }
}

/// An asynchronous operation that is cancelled with its scope.
pub(crate) trait Abandon: Send + Sync {
    /// Drops its future, unless that is being polled, and has the operation end.
    fn abandon(self: Arc<Self>);
}

/// Flows that were begun in another, in reusable places.
#[derive(Default)]
struct Inners {
    places: Vec<Option<Weak<Scope>>>,
    free: Vec<u32>,
}

impl Inners {
    fn add(&mut self, inner: Weak<Scope>) -> u32 {
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        if place as usize == self.places.len() {
            self.places.push(None);
        }
        self.places[place as usize] = Some(inner);
        place
    }

    fn remove(&mut self, place: u32) {
        self.places[place as usize] = None;
        self.free.push(place);
    }
}

/// Neither of those below yet.
const GOING: u32 = 0;
const CANCELLED: u32 = 1;
/// The flow's code is over, and what it has pushed goes on.
const OVER: u32 = 2;

impl Scope {
    pub(crate) fn new(outer: Option<Arc<Scope>>) -> Arc<Self> {
        let scope = Arc::new(Self {
            outer,
            inners: Mutex::default(),
            place: AtomicU32::new(0),
            state: AtomicU32::new(GOING),
            futures: Mutex::default(),
            pending: AtomicU64::new(0),
            failure: OnceLock::new(),
            bell: Lane::new(),
        });
        if let Some(outer) = &scope.outer {
            let place = lock(&outer.inners).add(Arc::downgrade(&scope));
            // ORDERING: Relaxed: only the last drop reads it, and that comes after the drop of this count.
            scope.place.store(place, Ordering::Relaxed);
            // A cancel of the outer flow stores its state before it locks the list. So either the cancel
            // finds this scope there, or this check sees the cancel.
            if outer.is_cancelled() {
                scope.state.store(CANCELLED, Ordering::SeqCst);
            }
        }
        scope
    }

    /// Returns the number of the flow among owners. It is unique: a scope lives as long as one of its
    /// operations.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns true once it, or one that it was begun in, is cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: SeqCst: of "cancel, look for futures" and "add a future, look whether it is cancelled"
        // one sees the other.
        self.state.load(Ordering::SeqCst) == CANCELLED
    }

    /// Returns an error if too many of its operations are pending.
    pub(crate) fn has_room(&self) -> Result<()> {
        // ORDERING: Relaxed, here and below: it is a count.
        if self.pending.load(Ordering::Relaxed) < PENDING_MAX { Ok(()) } else { Err(Kind::FlowBusy { max: PENDING_MAX }.into()) }
    }

    pub(crate) fn begin_one(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_one(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds an asynchronous operation, to be dropped when this is cancelled.
    pub(crate) fn add_future(&self, number: u32, future: Arc<dyn Abandon>) {
        lock(&self.futures).insert(number, future);
    }

    pub(crate) fn remove_future(&self, number: u32) {
        let removed = lock(&self.futures).remove(&number);
        let _ = shielded(|| drop(removed));
    }

    /// Records that one of its operations was refused; only the first counts. Wakes the flow's task, which
    /// may be waiting for something else.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
        self.bell.ring();
    }

    /// Returns that, to be told.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().inspect(|error| error.note_told()).cloned()
    }

    /// The flow's code has ended well: to cancel it does nothing from now on.
    pub(crate) fn end(&self) {
        let _ = self.state.compare_exchange(GOING, OVER, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Cancels it, and all flows within it, also those that other tasks poll. Does nothing if it is
    /// cancelled, or over.
    pub(crate) fn cancel(&self) {
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
        lock(&self.inners).places.iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Drops its futures, and wakes the task that awaits the flow.
    fn stop(&self) {
        let futures: Vec<Arc<dyn Abandon>> = lock(&self.futures).values().cloned().collect();
        futures.into_iter().for_each(Abandon::abandon);
        self.bell.ring();
    }
}

impl Untold for Scope {
    /// One of its operations could not begin, and its handle did not report that.
    fn hear(&self, error: Error) {
        self.fail(error);
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // One by one, however deep they are nested.
        let (mut place, mut outer) = (self.place.load(Ordering::Relaxed), self.outer.take());
        while let Some(scope) = outer {
            lock(&scope.inners).remove(place);
            place = scope.place.load(Ordering::Relaxed);
            outer = Arc::into_inner(scope).and_then(|mut scope| scope.outer.take());
        }
    }
}
