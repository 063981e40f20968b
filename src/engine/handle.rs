//! Handles: futures of operations. A slot's state says which operation it is and whether somebody has a
//! handle to it; it is bumped at the operation's end, so a handle to an earlier one knows that it is done.
//! What went wrong is kept only as long as its handle.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::mem::{self, ManuallyDrop};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use super::hub::Hub;
use super::pace::poll_share;
use super::slots::{Slot, Spot};
use super::wakers::Wakers;
use crate::error::shielded;
use crate::error::{Error, Kind, Result};
use crate::runtime::WaiterKey;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Tells an operation from all others of its engine: its slot, and the slot's state.
pub(super) type Key = (u32, u64);

/// Somebody has a handle to the operation.
const HANDLED: u64 = 1;
/// Somebody waits for it.
const AWAITED: u64 = 2;
/// One operation more.
const OPERATION: u64 = 4;

/// An operation that was pushed: a future of its end.
///
/// # Errors
/// Why it failed, or did not run: [`Error::node`] names the operation.
///
/// # Cancellation
/// Dropping it changes nothing: the operation runs all the same.
#[must_use = "an operation's error is told through its handle; drop it on purpose with `drop`"]
pub struct Pushed(ManuallyDrop<State>);

enum State {
    Pending(Pending),
    Ended(Result<()>),
    Told,
}

struct Pending {
    hub: Arc<Hub>,
    slot: u32,
    /// Whether it is among those who wait.
    is_waiting: bool,
    /// The slot's state, without flags.
    state: u64,
    /// Without workers, who waits drives. In a box, because most need not wait.
    driver: Option<Box<WaiterKey>>,
}

/// An operation to which there is to be a handle: two words, that need no memory on the way to where that is
/// made.
#[derive(Clone, Copy)]
pub(super) struct Handled {
    /// One more than its number.
    pub(super) slot: NonZeroU32,
    /// The slot's state, without flags.
    pub(super) state: u64,
}

/// What operations' handles wait for, and what they are to be told.
pub(super) struct Watchers {
    wakers: Wakers,
    failures: Mutex<HashMap<(u32, u64), Error>>,
    /// The length of `failures`, so that nobody takes the lock where nothing failed.
    failed: AtomicU64,
}

impl Watchers {
    pub(super) fn new() -> Self {
        Self { wakers: Wakers::new(), failures: Mutex::default(), failed: AtomicU64::new(0) }
    }

    /// Returns what tells the slot's operation from all others that it ever had.
    pub(super) fn key(slot: &Slot) -> u64 {
        // ORDERING: Relaxed: the caller has the operation, so only its flags may change; or asks whether it
        // is pending, and need not know at once that it is not.
        slot.state.load(Ordering::Relaxed) & !(HANDLED | AWAITED)
    }

    /// Says that an operation has ended.
    pub(super) fn end(&self, Spot { number, slot }: Spot<'_>, outcome: Result<(), Error>) {
        // ORDERING: Relaxed: who has a handle drops it at any time; the swap tells.
        let state = slot.state.load(Ordering::Relaxed);
        let key: Key = (number, state & !(HANDLED | AWAITED));
        let is_kept = match outcome {
            Err(error) if state & HANDLED != 0 => {
                self.keep_failure(key, error);
                true
            }
            unheard => {
                let _ = shielded(|| drop(unheard));
                false
            }
        };
        if state & (HANDLED | AWAITED) == 0 {
            // ORDERING: Relaxed: nobody has a handle, so nobody else looks.
            return slot.state.store(key.1 + OPERATION, Ordering::Relaxed);
        }
        // ORDERING: AcqRel: who sees the end sees what was done and what went wrong; and this sees the waker
        // of who waits.
        let before = slot.state.swap(key.1 + OPERATION, Ordering::AcqRel);
        if is_kept && before & HANDLED == 0 {
            let unheard = self.failure(key);
            let _ = shielded(|| drop(unheard));
        }
        if before & AWAITED != 0 {
            let waker = self.wakers.of(number).take();
            let _ = shielded(|| waker.into_iter().for_each(Waker::wake));
        }
    }

    fn keep_failure(&self, key: (u32, u64), error: Error) {
        let mut failures = lock(&self.failures);
        failures.insert(key, error);
        // ORDERING: Relaxed: the operation's end is published behind it.
        self.failed.store(failures.len() as u64, Ordering::Relaxed);
    }

    /// Forgets what went wrong with an operation that has ended, and that nobody is told.
    #[inline(never)]
    fn forget_failure(&self, key: (u32, u64)) {
        let told_to_nobody = self.failure(key);
        let _ = shielded(|| drop(told_to_nobody));
    }

    /// Takes what went wrong with an operation that has ended.
    fn failure(&self, key: (u32, u64)) -> Option<Error> {
        if self.failed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut failures = lock(&self.failures);
        let failure = failures.remove(&key);
        self.failed.store(failures.len() as u64, Ordering::Relaxed);
        failure
    }
}

impl Pushed {
    #[inline(always)]
    fn of(state: State) -> Self {
        Self(ManuallyDrop::new(state))
    }

    /// The handle to an operation.
    #[inline(always)]
    pub(super) fn pending(hub: Arc<Hub>, handled: Handled) -> Self {
        let (slot, state) = handled.key();
        Self::of(State::Pending(Pending { hub, slot, state, is_waiting: false, driver: None }))
    }

    /// A handle to an operation that has ended already.
    pub(crate) fn ended(outcome: Result<()>) -> Self {
        Self::of(State::Ended(outcome))
    }
}

impl Handled {
    /// Says that there will be a handle to the operation that is about to be pushed in that slot.
    #[inline(always)]
    pub(super) fn new(Spot { number, slot }: Spot<'_>) -> Self {
        // ORDERING: Relaxed: nobody else knows the slot yet, and its last operation has left no flags.
        let state = slot.state.load(Ordering::Relaxed);
        slot.state.store(state | HANDLED, Ordering::Relaxed);
        Self { slot: NonZeroU32::MIN.saturating_add(number), state }
    }

    #[inline(always)]
    pub(super) fn key(self) -> Key {
        (self.slot.get() - 1, self.state)
    }

    /// Returns true for one operation of `many`, a power of two: slots are used in turn, and each counts its
    /// operations.
    #[inline(always)]
    pub(super) fn is_one_of(self, many: u64) -> bool {
        (u64::from(self.slot.get()) + self.state / OPERATION).is_multiple_of(many)
    }
}

impl Pending {
    fn key(&self) -> Key {
        (self.slot, self.state)
    }

    /// Returns an error if to wait here would be for ever.
    fn may_wait(&self) -> Result<()> {
        self.hub.may_wait()?;
        self.hub.may_wait_for(self.key())
    }

    fn has_ended(&self) -> bool {
        // ORDERING: Acquire: see `Watchers::end`.
        self.hub.slots.get(self.slot).state.load(Ordering::Acquire) & !(HANDLED | AWAITED) != self.state
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if !self.has_ended() && self.hub.workers == 0 {
            self.hub.drive(self.driver.get_or_insert_default(), cx);
        }
        if !self.has_ended() {
            let mut waker = Some(cx.waker().clone());
            let is_pending = self.wait_with(&mut waker);
            let _ = shielded(|| drop(waker));
            if is_pending {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.hub.watchers.failure(self.key()).map_or(Ok(()), Err))
    }

    /// Leaves a waker to be woken at the operation's end, and gets the one that was there. Returns false if
    /// it has ended.
    fn wait_with(&mut self, waker: &mut Option<Waker>) -> bool {
        let mut place = self.hub.watchers.wakers.of(self.slot);
        // With the place: whoever ends the operation sees the mark, and comes for the waker behind this; and
        // what is in the slot behind that has the place for itself.
        let is_pending = self.mark(AWAITED, true);
        if is_pending {
            mem::swap(&mut *place, waker);
            self.is_waiting = true;
        }
        is_pending
    }

    #[inline(never)]
    fn wait_no_longer(&mut self) {
        if let Some(driver) = &mut self.driver {
            self.hub.forget_driver(driver);
        }
        if self.is_waiting {
            let waker = {
                let mut place = self.hub.watchers.wakers.of(self.slot);
                // Whoever has ended the operation comes for it, or did: then it may be another's.
                if self.has_ended() { None } else { place.take() }
            };
            let _ = shielded(|| drop(waker));
        }
    }

    /// Says that there is no handle any more. Returns false if the operation has ended.
    #[inline]
    fn let_go(&self) -> bool {
        let state = &self.hub.slots.get(self.slot).state;
        // ORDERING: AcqRel: as in `mark`.
        let is_gone = state.compare_exchange(self.state | HANDLED, self.state, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        is_gone || self.is_waiting && self.mark(HANDLED, false)
    }

    /// Sets a flag of the operation's slot, if it is still there.
    fn mark(&self, flag: u64, is_set: bool) -> bool {
        let state = &self.hub.slots.get(self.slot).state;
        let change = |now: u64| {
            let is_ours = now & !(HANDLED | AWAITED) == self.state;
            is_ours.then_some(if is_set { now | flag } else { now & !flag })
        };
        // ORDERING: AcqRel: pairs with the swap in `Watchers::end`.
        state.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}

impl Drop for Pending {
    #[inline]
    fn drop(&mut self) {
        if self.hub.is_forked() {
            return;
        }
        if self.is_waiting || self.driver.is_some() {
            self.wait_no_longer();
        }
        if !self.let_go() {
            self.hub.watchers.forget_failure(self.key());
        }
    }
}

impl Drop for Pushed {
    #[inline(always)]
    fn drop(&mut self) {
        // Of what was run where it lay nothing is left to be dropped; where that is known, the drop is
        // nothing, too.
        if !matches!(*self.0, State::Ended(Ok(())) | State::Told) {
            self.drop_rest();
        }
    }
}

impl Pushed {
    #[inline(never)]
    fn drop_rest(&mut self) {
        // SAFETY: called by the drop only.
        unsafe { ManuallyDrop::drop(&mut self.0) }
    }
}

impl Future for Pushed {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let share = ready!(poll_share(cx));
        let state = &mut *self.0;
        if let State::Pending(pending) = state {
            // Who must not wait here may elsewhere.
            if !pending.has_ended() {
                pending.may_wait()?;
            }
            let Poll::Ready(outcome) = pending.poll(cx) else { return Poll::Pending };
            *state = State::Ended(outcome);
        }
        share.used();
        match mem::replace(state, State::Told) {
            State::Ended(outcome) => Poll::Ready(outcome.inspect_err(Error::note_told)),
            _ => Poll::Ready(Err(Kind::Spent.into())),
        }
    }
}

impl fmt::Debug for Pushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_ended = match &*self.0 {
            State::Pending(pending) => pending.has_ended(),
            State::Ended(_) | State::Told => true,
        };
        f.debug_struct("Pushed").field("has_ended", &has_ended).finish()
    }
}
