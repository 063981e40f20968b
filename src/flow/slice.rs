//! How long a flow goes on within one poll. Where nothing is ever pending, as on an inline executor, only
//! this lets other tasks run.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::device::host::SLICE;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How often the clock is read, if waits follow each other quickly, and at least: every so many waits.
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);
const WAITS_MAX: u32 = 256;

/// One poll's share of the thread. Who waits with a clone of the flow in another task, or inside of an
/// operation, counts with it: then it is a rough measure.
pub(super) struct Slice {
    origin: Instant,
    began_ns: AtomicU64,
    looked_ns: AtomicU64,
    /// Waits between two looks at the clock, and how many are left.
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

    /// A poll begins.
    pub(super) fn begin(&self) {
        let now = self.now();
        // ORDERING: Relaxed, here and below: a measure, which nothing depends on.
        self.began_ns.store(now, Ordering::Relaxed);
        self.looked_ns.store(now, Ordering::Relaxed);
        self.waits.store(1, Ordering::Relaxed);
        self.left.store(1, Ordering::Relaxed);
    }

    /// Counts a wait that is over at once. Pending if the flow has had its share: then it is woken already,
    /// and the next share begins.
    #[inline]
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
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
            // Each execution of a model is to take the same way again.
            return 0;
        }
        self.origin.elapsed().as_nanos() as u64
    }
}
