//! Futures that no task polls: the threads that wake them do. For what must go on after a drop.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::{AtomicU32, Mutex, Ordering, lock, thread_local};

thread_local! {
    static IS_DETACHED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread polls a detached future. It has other work, so the poll may not wait.
#[cfg_attr(not(feature = "mpi"), allow(dead_code))]
pub(super) fn is_detached() -> bool {
    IS_DETACHED.with(Cell::get)
}

/// Sets the flag back, also if the work panics.
struct Back(bool);

impl Drop for Back {
    fn drop(&mut self) {
        IS_DETACHED.with(|is| is.set(self.0));
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Detached {
    /// None once it has ended.
    work: Mutex<Option<Work>>,
    /// The wakes that the polling thread has not seen. Zero while no thread polls.
    wakes: AtomicU32,
}

/// Polls a future now, and whenever it is woken, until it ends.
pub(crate) fn detach(work: impl Future<Output = ()> + Send + 'static) {
    Arc::new(Detached { work: Mutex::new(Some(Box::pin(work))), wakes: AtomicU32::new(0) }).wake();
}

impl Wake for Detached {
    fn wake(self: Arc<Self>) {
        // ORDERING: AcqRel: the thread that finds zero sees what the last polling thread has left.
        if self.wakes.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let waker = Waker::from(self.clone());
        loop {
            // ORDERING: Acquire, with the additions of wakes: the poll sees what was written before them.
            let seen = self.wakes.load(Ordering::Acquire);
            self.poll(&mut Context::from_waker(&waker));
            // ORDERING: AcqRel: Release hands the future to the next polling thread. If a wake has come
            // since, Acquire shows what was written before it.
            if self.wakes.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
        }
    }
}

impl Detached {
    fn poll(&self, cx: &mut Context<'_>) {
        let mut work = lock(&self.work);
        let back = Back(IS_DETACHED.with(|is| is.replace(true)));
        let ended = work.as_mut().is_some_and(|work| work.as_mut().poll(cx) == Poll::Ready(()));
        drop(back);
        let ended = if ended { work.take() } else { None };
        drop(work);
        drop(ended);
    }
}
