//! The end of something that a thread does for a future, and how such a thread waits for a transport that
//! tells of nothing.

use std::task::{Poll, Waker};
use std::time::Duration;

use crate::sync::{AtomicBool, Mutex, Ordering, lock, yield_now};

/// An end that comes once, from another thread.
pub(super) struct Done<T> {
    state: Mutex<State<T>>,
    /// Whether its future no longer looks for the end itself.
    is_left: AtomicBool,
}

struct State<T> {
    end: Option<T>,
    waker: Option<Waker>,
}

impl<T> Default for Done<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { end: None, waker: None }), is_left: AtomicBool::new(false) }
    }
}

impl<T> Done<T> {
    /// Returns the end, if it has come; else keeps the waker, if there is one.
    pub(super) fn poll(&self, waker: Option<&Waker>) -> Poll<T> {
        // Wakers are cloned and dropped outside of the lock: they run code of the executor.
        let waker = waker.cloned();
        let mut state = lock(&self.state);
        if let Some(end) = state.end.take() {
            return Poll::Ready(end);
        }
        let last = waker.and_then(|waker| state.waker.replace(waker));
        drop(state);
        drop(last);
        Poll::Pending
    }

    /// Notes that the future waits for its waker, or is gone.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    pub(super) fn leave(&self) {
        // ORDERING: SeqCst pairs with `rest` in `mpi/progress.rs`: the thread stores that it rests, and then
        // looks here. The caller's next step is to load that.
        self.is_left.store(true, Ordering::SeqCst);
    }

    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    pub(super) fn is_left(&self) -> bool {
        // ORDERING: SeqCst, as in `leave`.
        self.is_left.load(Ordering::SeqCst)
    }

    /// Waits for the end.
    #[cfg(any(feature = "mpi", feature = "nccl"))]
    pub(super) async fn get(&self) -> T {
        std::future::poll_fn(|cx| self.poll(Some(cx.waker()))).await
    }

    /// Sets the end, and wakes the future.
    pub(super) fn set(&self, end: T) {
        let waker = {
            let mut state = lock(&self.state);
            state.end = Some(end);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The time after which a thread sleeps between its tests, and the bounds of its sleep.
pub(super) const AWAKE: Duration = Duration::from_micros(200);
const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Waits between two tests: longer, the longer nothing has come.
pub(super) fn pause(waited: Duration, awake: Duration) {
    if waited < awake {
        yield_now();
    } else {
        std::thread::sleep((waited / 8).clamp(SLEEP_MIN, SLEEP_MAX));
    }
}
