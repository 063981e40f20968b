//! The pace of pushes: a task that pushes in a loop, and never has to wait, lets others run now and then. As
//! in tokio's own resources, a future that is ready at once takes one unit of the task's budget. A unit for
//! each push would add a tenth to its cost, so one unit stands for many pushes.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::runtime::poll_unit;
use crate::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};

/// The time that a unit may take if pushes run their operations, and the most pushes that it stands for.
const UNIT: Duration = Duration::from_micros(8);
const PUSHES_MAX: u32 = 512;
/// The number of pushes that a unit stands for if workers run the operations.
pub(in crate::engine) const HANDED_OVER: u64 = 64;
/// After this number of units a push is pending once, because a runtime other than tokio may have no budget.
const UNITS_MAX: u32 = 512;

pub(in crate::engine) struct Pace {
    /// The first read of the clock.
    origin: OnceLock<Instant>,
    /// The last read of the clock, in nanoseconds after the first.
    looked_ns: AtomicU64,
    /// The pushes of the current unit, and the number of them that are left.
    pushes: AtomicU32,
    left: AtomicU32,
    /// The units since a push was pending.
    units: AtomicU32,
}

impl Pace {
    pub(in crate::engine) fn new() -> Self {
        Self {
            origin: OnceLock::new(),
            looked_ns: AtomicU64::new(0),
            pushes: AtomicU32::new(1),
            left: AtomicU32::new(1),
            units: AtomicU32::new(0),
        }
    }

    /// Counts an operation that was run by its push. Returns true at the end of a unit.
    #[inline(always)]
    pub(in crate::engine) fn is_due(&self) -> bool {
        // ORDERING: Relaxed, both: a measurement, which publishes nothing. Threads that push at the same time
        // may lose a count.
        let left = self.left.load(Ordering::Relaxed);
        if left <= 1 {
            // A push may be dropped unpolled. So a unit stays due until a poll of a push takes it.
            // A model takes the same path in each execution.
            return !cfg!(anabranch_loom);
        }
        self.left.store(left - 1, Ordering::Relaxed);
        false
    }

    /// Takes a unit, and sets the number of pushes of the next one from the time that this one took.
    #[inline(never)]
    pub(in crate::engine) fn poll_measured(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.measure();
        self.poll_unit(cx)
    }

    fn measure(&self) {
        let now = self.origin.get_or_init(Instant::now).elapsed().as_nanos() as u64;
        // ORDERING: Relaxed, all: a measurement, which publishes nothing. Two threads may mix their counts.
        let taken = now.saturating_sub(self.looked_ns.swap(now, Ordering::Relaxed));
        let per_push = (taken / u64::from(self.pushes.load(Ordering::Relaxed))).max(1);
        let pushes = (UNIT.as_nanos() as u64 / per_push).clamp(1, u64::from(PUSHES_MAX)) as u32;
        self.pushes.store(pushes, Ordering::Relaxed);
        self.left.store(pushes, Ordering::Relaxed);
    }

    /// Takes a unit. Returns `Pending` if the task has used up its budget; then its waker has been called.
    #[inline(never)]
    pub(in crate::engine) fn poll_unit(&self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(poll_unit(cx)).used();
        // ORDERING: Relaxed, both: a count, which publishes nothing. Two threads may lose a unit.
        let units = self.units.load(Ordering::Relaxed) + 1;
        self.units.store(units % UNITS_MAX, Ordering::Relaxed);
        if units == UNITS_MAX {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}
