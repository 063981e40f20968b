//! The time slice of a flow: how long it goes on within one poll. On an inline executor, where no wait is
//! pending, only this lets other tasks run.

use std::task::{Context, Poll};

use crate::device::host;
use crate::sync::{AtomicU32, Mutex, Ordering, lock};

/// The time slice of one poll, measured in batches of waits; that of a run is measured in batches of steps.
/// Waits of a clone of the flow, in another task or inside of an operation, count too, so it is approximate.
pub(super) struct WaitSlice {
    batches: Mutex<host::Slice>,
    /// The waits of this batch that are left.
    left: AtomicU32,
}

impl WaitSlice {
    pub(super) fn new() -> Self {
        Self { batches: Mutex::new(host::Slice::new()), left: AtomicU32::new(1) }
    }

    pub(super) fn begin(&self) {
        *lock(&self.batches) = host::Slice::new();
        // ORDERING: Relaxed: only the length of a slice depends on it.
        self.left.store(1, Ordering::Relaxed);
    }

    /// Counts a wait that is over at once. Pending if the flow has had its share: then its task is woken
    /// already, and the next share begins.
    #[inline]
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        // ORDERING: Relaxed, both: only the length of a slice depends on them.
        let left = self.left.load(Ordering::Relaxed);
        if left > 1 {
            self.left.store(left - 1, Ordering::Relaxed);
            return Poll::Ready(());
        }
        self.next_batch_of_waits(cx)
    }

    #[cold]
    fn next_batch_of_waits(&self, cx: &mut Context<'_>) -> Poll<()> {
        // A model has no clock, and all its executions must take the same path.
        let batch = if cfg!(anabranch_loom) { 1 } else { lock(&self.batches).next_batch() };
        if batch == 0 {
            self.begin();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // ORDERING: Relaxed: only the length of a slice depends on it.
        self.left.store(batch, Ordering::Relaxed);
        Poll::Ready(())
    }
}
