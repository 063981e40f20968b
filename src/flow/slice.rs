//! The time slice of a flow: how long it goes on within one poll. On an inline executor, where no wait is
//! pending, only this lets other tasks run.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::device::host::SLICE;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The time between two readings of the clock, if waits follow each other quickly; and the most waits.
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);
const WAITS_MAX: u32 = 256;

/// One poll's share of the thread. Waits of a clone of the flow, in another task or inside of an operation,
/// count with it: then it is a rough measure.
pub(super) struct Slice {
    origin: Instant,
    began_ns: AtomicU64,
    looked_ns: AtomicU64,
    /// The waits between two readings of the clock, and how many are left.
    waits: AtomicU32,
    left: AtomicU32,
}

impl Slice {
    pub(super) fn new() -> Self {
        Self {
            origin: Instant::now(),
            began_ns: AtomicU64::new(0),
            looked_ns: AtomicU64::new(0),
            waits: AtomicU32::new(1),
            left: AtomicU32::new(1),
        }
    }

    /// Begins a poll.
    pub(super) fn begin(&self) {
        let now = self.now();
        // ORDERING: Relaxed, all: only the length of a slice depends on them.
        self.began_ns.store(now, Ordering::Relaxed);
        self.looked_ns.store(now, Ordering::Relaxed);
        self.waits.store(1, Ordering::Relaxed);
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
        self.look(cx)
    }

    #[cold]
    fn look(&self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.now();
        // ORDERING: Relaxed, all: only the length of a slice depends on them.
        let (began, looked) = (self.began_ns.load(Ordering::Relaxed), self.looked_ns.load(Ordering::Relaxed));
        if now.saturating_sub(began) >= SLICE.as_nanos() as u64 {
            self.begin();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let waits = u64::from(self.waits.load(Ordering::Relaxed));
        let per_wait = (now.saturating_sub(looked) / waits).max(1);
        let waits = (BETWEEN_LOOKS.as_nanos() as u64 / per_wait).clamp(1, u64::from(WAITS_MAX)) as u32;
        self.looked_ns.store(now, Ordering::Relaxed);
        self.waits.store(waits, Ordering::Relaxed);
        self.left.store(waits, Ordering::Relaxed);
        Poll::Ready(())
    }

    fn now(&self) -> u64 {
        if cfg!(anabranch_loom) {
            // All executions of a model must take the same path.
            return 0;
        }
        self.origin.elapsed().as_nanos() as u64
    }
}
