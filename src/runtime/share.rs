//! The share of a task: the work that its polls may do before the task lets others run.
//!
//! A future that is ready at once takes a unit of tokio's budget, as in tokio's own resources. Besides, cheap
//! work is done by the poll that awaits it, or by the push in front of that. Each thread counts the time of
//! such work. When that exceeds the executor's budget, workers do such work, until a future on this thread
//! has been pending once on that account. A future that a worker polls, and a call that a worker makes, has a
//! share of its own ([`own_share`]): what runs on that worker afterwards must not be pending for it.
//!
//! ```text
//!  spent          event                                   spent after
//!  below SPENT    work in a poll or a push                that much more, or SPENT from the budget on
//!  below SPENT    poll of a future                        (unchanged)
//!  SPENT          poll of a future                        0: it wakes its task, and is pending
//! ```

use std::cell::Cell;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::sync::thread_local;

/// The budget is spent.
const SPENT: u64 = u64::MAX;

thread_local! {
    /// The ns of the work that polls and pushes have done on this thread.
    static WORKED: Cell<u64> = const { Cell::new(0) };
}

/// Returns whether polls on this thread may do more work.
#[inline]
pub(crate) fn may_work() -> bool {
    WORKED.try_with(|worked| worked.get() != SPENT).unwrap_or(false)
}

/// Adds work that a poll or a push has done.
#[inline]
pub(crate) fn add_work(ns: u64, budget: Duration) {
    // A model takes the same path in each execution.
    let ns = if cfg!(anabranch_loom) { 0 } else { ns };
    let _ = WORKED.try_with(|worked| {
        let sum = worked.get().saturating_add(ns);
        worked.set(if u128::from(sum) < budget.as_nanos() { sum } else { SPENT });
    });
}

/// Gives `work` a share of its own.
pub(crate) fn own_share<R>(work: impl FnOnce() -> R) -> R {
    let outer = WORKED.try_with(|worked| worked.replace(0));
    let done = work();
    let _ = WORKED.try_with(|worked| outer.map(|outer| worked.set(outer)));
    done
}

/// Waits until the task has a share left. Otherwise a task whose futures are all ready at once would never
/// let others run.
#[inline]
pub(crate) fn poll_share(cx: &mut Context<'_>) -> Poll<Share> {
    ready!(poll_work(cx));
    poll_unit(cx)
}

/// Waits until polls and pushes on this thread may do work.
#[inline]
pub(crate) fn poll_work(cx: &mut Context<'_>) -> Poll<()> {
    if may_work() { Poll::Ready(()) } else { let_others_run(cx) }
}

#[cold]
fn let_others_run(cx: &mut Context<'_>) -> Poll<()> {
    // A thread that is being torn down has no budget.
    if WORKED.try_with(|worked| worked.set(0)).is_err() {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Waits until the task has a unit of its runtime's budget left.
#[inline]
pub(crate) fn poll_unit(cx: &mut Context<'_>) -> Poll<Share> {
    #[cfg(feature = "tokio")]
    return tokio::task::coop::poll_proceed(cx).map(Share);
    #[cfg(not(feature = "tokio"))]
    {
        let _ = cx;
        Poll::Ready(Share())
    }
}

/// One unit of a task's budget, given back if it is not used.
pub(crate) struct Share(#[cfg(feature = "tokio")] tokio::task::coop::RestoreOnPending);

impl Share {
    #[inline]
    pub(crate) fn used(self) {
        // The drop would give the unit back. `forget` has the effect of `made_progress`, and costs less.
        #[cfg(feature = "tokio")]
        std::mem::forget(self.0);
    }
}

#[cfg(all(test, not(anabranch_loom)))]
mod tests {
    use super::*;
    use std::task::Waker;

    // Seen to fail with a poll that does not begin a new share.
    #[test]
    fn a_thread_that_has_done_its_work_lets_others_run_once() {
        let mut cx = Context::from_waker(Waker::noop());
        let budget = Duration::from_micros(20);
        for _ in 0..3 {
            add_work(19_999, budget);
            assert!(may_work() && poll_share(&mut cx).is_ready());
            add_work(1, budget);
            assert!(!may_work() && poll_share(&mut cx).is_pending());
        }
        assert!(may_work() && poll_share(&mut cx).is_ready());
        add_work(0, Duration::ZERO);
        assert!(!may_work());
    }
}
