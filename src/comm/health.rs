//! Whether the world of a rank is whole. Every pending operation waits for its own end and for this, so none
//! is left when the world breaks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;
use slab::Slab;

use crate::error::WorldFault;
use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Default)]
struct State {
    fault: Option<WorldFault>,
    /// The tasks of the pending operations.
    waiting: Slab<Waker>,
}

impl Health {
    /// Returns the first fault.
    pub(crate) fn fault(&self) -> Option<WorldFault> {
        lock(&self.0).fault.clone()
    }

    /// Breaks the world, and ends all pending operations. Later faults change nothing.
    /// Returns whether it was whole before.
    pub(crate) fn break_by(&self, fault: WorldFault) -> bool {
        let (was_whole, waiting) = {
            let mut state = lock(&self.0);
            let was_whole = state.fault.is_none();
            state.fault.get_or_insert(fault);
            (was_whole, std::mem::take(&mut state.waiting))
        };
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
        was_whole
    }

    /// Waits for `of`, and ends with the fault if the world breaks before.
    pub(crate) fn watch<F: Future>(self: &Arc<Self>, of: F) -> Watched<'_, F> {
        Watched { watch: Watch { health: self, key: None }, of }
    }
}

pin_project! {
    /// A future that ends when the world breaks. By hand, because an async block would have the future twice:
    /// as what it captures, and as what it polls.
    #[must_use = "futures do nothing until they are polled"]
    pub(crate) struct Watched<'h, F> {
        // Dropped first: the drop of the other future may break the world, and need not wake this task.
        watch: Watch<'h>,
        #[pin]
        of: F,
    }
}

impl<F: Future> Future for Watched<'_, F> {
    type Output = Result<F::Output, WorldFault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.of.poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => this.watch.poll(cx.waker()).map(Err),
        }
    }
}

/// The place of one pending operation among those that wait.
struct Watch<'h> {
    health: &'h Health,
    key: Option<usize>,
}

impl Watch<'_> {
    fn poll(&mut self, waker: &Waker) -> Poll<WorldFault> {
        {
            let state = lock(&self.health.0);
            if let Some(fault) = &state.fault {
                return Poll::Ready(fault.clone());
            }
            if self.key.is_some_and(|key| state.waiting[key].will_wake(waker)) {
                return Poll::Pending;
            }
        }
        // Wakers are cloned and dropped outside of the lock: they run code of the executor.
        let waker = waker.clone();
        let mut state = lock(&self.health.0);
        if let Some(fault) = &state.fault {
            return Poll::Ready(fault.clone());
        }
        let last = match self.key {
            Some(key) => Some(std::mem::replace(&mut state.waiting[key], waker)),
            None => {
                self.key = Some(state.waiting.insert(waker));
                None
            }
        };
        drop(state);
        drop(last);
        Poll::Pending
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        // A broken world has taken all wakers.
        let waker = self.key.and_then(|key| lock(&self.health.0).waiting.try_remove(key));
        drop(waker);
    }
}
