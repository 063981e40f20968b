//! A stream's progress and its waiters. `reached` only grows; one load of it retires all earlier waiters.
//!
//! ```text
//!  waiter        event                     next          then
//!  none          poll, point reached       none          ready
//!  none          poll, point not reached   registered    checks the point again, then is pending
//!  registered    poll                      registered    the new waker replaces the old one
//!  registered    signal, ring              none          the waker is woken, outside of the lock
//!  registered    forget                    none          the waker is dropped, outside of the lock
//! ```

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use crate::error::shielded;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence, lock};

/// The progress of one stream: point `n` has passed when `reached >= n`. Point 0 has always passed.
///
/// Each is an allocation of its own, so two lanes share no cache line; a larger alignment would only slow
/// the allocation down.
pub(crate) struct Lane {
    reached: AtomicU64,
    /// Whether there may be waiters. Saves a signalling thread the lock.
    is_awaited: AtomicBool,
    waiters: Mutex<Waiters>,
}

/// The waiters of a lane. Most lanes have one at a time: it needs no allocation.
struct Waiters {
    one: Option<(Place, Waker)>,
    others: BTreeMap<Place, Waker>,
    last_key: u64,
}

/// The point that is awaited, and a number.
type Place = (u64, u64);

impl Waiters {
    /// Adds a waiter, or gives it a new waker. Returns the old one.
    fn insert(&mut self, place: Place, waker: Waker) -> Option<Waker> {
        match &mut self.one {
            Some((own, old)) if *own == place => Some(std::mem::replace(old, waker)),
            None if !self.others.contains_key(&place) => {
                self.one = Some((place, waker));
                None
            }
            _ => self.others.insert(place, waker),
        }
    }

    fn remove(&mut self, place: Place) -> Option<Waker> {
        match self.one.take_if(|one| one.0 == place) {
            Some((_, waker)) => Some(waker),
            None => self.others.remove(&place),
        }
    }

    /// Takes the waiters of points up to `n`, or all.
    fn take(&mut self, n: Option<u64>) -> (Option<Waker>, BTreeMap<Place, Waker>) {
        let one = self.one.take_if(|one| n.is_none_or(|n| one.0.0 <= n));
        let later = n.map_or_else(BTreeMap::new, |n| self.others.split_off(&(n + 1, 0)));
        (one.map(|one| one.1), std::mem::replace(&mut self.others, later))
    }

    fn is_empty(&self) -> bool {
        self.one.is_none() && self.others.is_empty()
    }
}

/// One future's place among a lane's waiters. Give it back with [`Lane::forget`] when the future is dropped.
#[derive(Debug, Default)]
pub(crate) struct WaiterKey(Option<Place>);

impl Lane {
    pub(crate) fn new() -> Self {
        Self {
            reached: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            waiters: Mutex::new(Waiters { one: None, others: BTreeMap::new(), last_key: 0 }),
        }
    }

    /// Makes it a lane of which no point has passed. It has no waiter, and no other thread uses it.
    pub(crate) fn renew(&self) {
        // ORDERING: Relaxed: what hands it to another thread comes after this.
        self.reached.store(0, Ordering::Relaxed);
    }

    /// Marks a point as passed that no thread waits for, or will before it sees that.
    pub(crate) fn pass(&self, n: u64) {
        // ORDERING: Release, as in `signal`.
        self.reached.store(n, Ordering::Release);
    }

    /// Returns true if point `n` has passed; everything done before it was signalled is then visible.
    pub(crate) fn has_reached(&self, n: u64) -> bool {
        // ORDERING: Acquire pairs with the Release in `signal`.
        self.reached.load(Ordering::Acquire) >= n
    }

    /// Marks point `n` and all earlier points as passed, and wakes their waiters. No lock is held meanwhile.
    pub(crate) fn signal(&self, n: u64) {
        self.signal_by(n, &mut Waker::wake);
    }

    /// As [`Lane::signal`], for a caller that wakes in its own way.
    pub(crate) fn signal_by(&self, n: u64, wake: &mut dyn FnMut(Waker)) {
        // ORDERING: Release publishes the work before the point; a maximum, because two signallers may
        // overtake each other.
        self.reached.fetch_max(n, Ordering::Release);
        self.wake_if_awaited(Some(n), wake);
    }

    /// Wakes all waiters although no point has passed: there is something else to check.
    pub(crate) fn ring(&self) {
        self.wake_if_awaited(None, &mut Waker::wake);
    }

    #[inline(always)]
    fn wake_if_awaited(&self, n: Option<u64>, wake: &mut dyn FnMut(Waker)) {
        // ORDERING: pairs with the fence in `poll`. Of "store `reached` or the reason, load is_awaited" and
        // "register, check again" at least one side sees the other. So a waiter is woken here, or sees the
        // point or the reason itself.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: the fence orders it.
        if self.is_awaited.load(Ordering::Relaxed) {
            self.wake(n, wake);
        }
    }

    /// Waits for the next ring, on a lane that is only rung.
    pub(crate) fn register(&self, key: &mut WaiterKey, cx: &mut Context<'_>) {
        // Point u64::MAX never passes.
        let polled = self.poll(u64::MAX, key, cx);
        debug_assert!(polled.is_pending());
    }

    /// Waits for point `n`: load, register the current waker, load again.
    pub(crate) fn poll(&self, n: u64, key: &mut WaiterKey, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_reached(n) {
            self.forget(key);
            return Poll::Ready(());
        }
        // Cloned before the lock and dropped after it, because both may run user code.
        let waker = cx.waker().clone();
        let replaced = {
            let mut waiters = lock(&self.waiters);
            let place = *key.0.get_or_insert_with(|| {
                waiters.last_key += 1;
                (n, waiters.last_key)
            });
            let replaced = waiters.insert(place, waker);
            // ORDERING: Relaxed: the fence below orders it before the second check. It changes only under the
            // lock.
            self.is_awaited.store(true, Ordering::Relaxed);
            replaced
        };
        drop_waker(replaced);
        // ORDERING: pairs with the fence in `wake_if_awaited`.
        fence(Ordering::SeqCst);
        if self.has_reached(n) {
            self.forget(key);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    pub(crate) fn is_awaited(&self) -> bool {
        // ORDERING: Relaxed: the reactor's fence before it parks orders its last check.
        if !self.is_awaited.load(Ordering::Relaxed) {
            return false;
        }
        // A waiter that was forgotten leaves the flag set.
        let waiters = lock(&self.waiters);
        let is_awaited = !waiters.is_empty();
        // ORDERING: Relaxed: it changes only under the lock.
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
        is_awaited
    }

    /// Returns the last point that has a waiter.
    pub(crate) fn last_awaited(&self) -> Option<u64> {
        let waiters = lock(&self.waiters);
        let one = waiters.one.as_ref().map(|one| one.0.0);
        one.max(waiters.others.last_key_value().map(|(place, _)| place.0))
    }

    /// Takes a waiter out, if it is still there.
    #[inline(always)]
    pub(crate) fn forget(&self, key: &mut WaiterKey) {
        if key.0.is_some() {
            self.take_out(key);
        }
    }

    #[cold]
    fn take_out(&self, key: &mut WaiterKey) {
        if let Some(place) = key.0.take() {
            let removed = lock(&self.waiters).remove(place);
            drop_waker(removed);
        }
    }

    /// Wakes the waiters of points up to `n`, or all.
    fn wake(&self, n: Option<u64>, wake: &mut dyn FnMut(Waker)) {
        let (one, others) = {
            let mut waiters = lock(&self.waiters);
            let woken = waiters.take(n);
            // ORDERING: Relaxed: it changes only under the lock.
            self.is_awaited.store(!waiters.is_empty(), Ordering::Relaxed);
            woken
        };
        for waker in one.into_iter().chain(others.into_values()) {
            // A waker that panics harms no other waiter.
            let _ = shielded(|| wake(waker));
        }
    }
}

fn drop_waker(waker: Option<Waker>) {
    if let Some(waker) = waker {
        let _ = shielded(|| drop(waker));
    }
}
