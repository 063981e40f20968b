//! The poller of futures: of async nodes and of asynchronous operations. It decides which thread may poll a
//! future, and in which context it is polled.
//!
//! ```text
//!  state            event        next            the caller then
//!  any              begin        RUNNING         polls the future
//!  RUNNING          try_park     IDLE            leaves it to its wakers
//!  RUNNING|WOKEN    try_park     (unchanged)     makes it ready again
//!  IDLE             wake         WOKEN           makes it ready
//!  RUNNING          wake         RUNNING|WOKEN   nothing: the running poll makes it ready
//!  else             wake         (unchanged)     nothing: it is ready already
//! ```
//! A future is made ready only by the step from IDLE to WOKEN, or by the thread that parks it. So one thread
//! at a time polls it, and a late waker touches nothing else.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use super::share::own_share;
use crate::sync::{AtomicU32, Ordering, thread_local};

const IDLE: u32 = 0;
const RUNNING: u32 = 1;
const WOKEN: u32 = 2;

pub(crate) struct Parking(AtomicU32);

impl Parking {
    /// Returns the state of a future that is ready to be polled.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(WOKEN))
    }

    pub(crate) fn begin(&self) {
        // ORDERING: AcqRel pairs with `wake`: the poll sees all that was done before the earlier wakes.
        self.0.swap(RUNNING, Ordering::AcqRel);
    }

    /// Makes the next `try_park` fail.
    pub(crate) fn keep_awake(&self) {
        // ORDERING: Relaxed: the thread that polls the future parks it, too.
        self.0.fetch_or(WOKEN, Ordering::Relaxed);
    }

    /// Ends a poll that was pending. Returns false if the future was woken meanwhile: the caller makes it
    /// ready again. Otherwise it is parked, and another thread may poll it before this returns.
    #[must_use]
    pub(crate) fn try_park(&self) -> bool {
        // ORDERING: AcqRel pairs with `wake`: a later waker sees the future as this thread leaves it.
        // Acquire: after a failure, `begin` acquires again.
        self.0.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Wakes the future. Returns true if the caller makes it ready.
    #[must_use]
    pub(crate) fn wake(&self) -> bool {
        // ORDERING: AcqRel pairs with `begin` and `try_park`.
        self.0.fetch_or(WOKEN, Ordering::AcqRel) == IDLE
    }
}

/// The tokio runtime of a future, so that its timers and sockets work on whatever thread polls it.
#[derive(Clone, Default)]
pub(crate) struct AsyncContext(#[cfg(feature = "tokio")] Option<tokio::runtime::Handle>);

impl AsyncContext {
    /// Returns the runtime that the caller is in, if it is in one.
    pub(crate) fn current() -> Self {
        Self(
            #[cfg(feature = "tokio")]
            tokio::runtime::Handle::try_current().ok(),
        )
    }

    pub(crate) fn enter<T>(&self, act: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tokio")]
        let _entered = self.0.as_ref().map(tokio::runtime::Handle::enter);
        act()
    }

    /// Polls a future in this context. A panic of the future is an error. `has_others` is whether this thread
    /// may have other work.
    pub(crate) fn poll<T>(&self, has_others: bool, poll: impl FnOnce() -> Poll<T>) -> std::thread::Result<Poll<T>> {
        let outer = HAS_OTHERS.try_with(Cell::get).unwrap_or(None);
        let set = |has_others| _ = HAS_OTHERS.try_with(|now| now.set(has_others));
        set(Some(has_others || outer == Some(true)));
        let polled = own_share(|| self.enter(|| catch_unwind(AssertUnwindSafe(poll))));
        set(outer);
        polled
    }
}

thread_local! {
    /// Whether the thread that polls a future may have other work. None outside of such a poll.
    static HAS_OTHERS: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Returns whether this thread polls a future of an executor that has nothing else for it now. If such a
/// future wakes itself, it is most likely polled again soon. The executor does not know what the code around
/// it does: the flow that pushes an operation, or the other futures of its task.
#[cfg_attr(not(feature = "mpi"), allow(dead_code))]
pub(crate) fn has_nothing_else() -> bool {
    HAS_OTHERS.try_with(|has_others| has_others.get() == Some(false)).unwrap_or(false)
}
