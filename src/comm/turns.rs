//! The order in which operations are started: each has a ticket, and starts when all tickets before it have
//! passed. Every rank gives the same tickets to the same operations, so collectives meet in the same order.
//!
//! ```text
//!  ticket     event                              next
//!  waits      all tickets before it have passed  its turn
//!  its turn   its operation is started           passed     the next ticket's turn
//!  waits      its operation will not be started  passed     the next ticket's turn comes when it is reached
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(crate) struct Turns(Mutex<State>);

/// A ticket. Its drop lets the next one have its turn.
pub(crate) struct Turn {
    of: Arc<Turns>,
    ticket: u64,
}

impl Turn {
    pub(crate) fn new(of: &Arc<Turns>, ticket: u64) -> Self {
        Self { of: of.clone(), ticket }
    }

    /// Waits for the turn.
    pub(crate) async fn come(&self) {
        self.of.come(self.ticket).await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.of.pass(self.ticket);
    }
}

#[derive(Default)]
struct State {
    /// The ticket whose turn it is.
    now: u64,
    /// Tickets behind it that have passed already.
    passed: BTreeSet<u64>,
    /// The tasks that wait for the turn of a ticket.
    waiting: BTreeMap<u64, Vec<Waker>>,
}

impl Turns {
    /// Waits for the turn of a ticket.
    pub(crate) async fn come(&self, ticket: u64) {
        poll_fn(|cx| self.poll(ticket, cx)).await;
    }

    fn poll(&self, ticket: u64, cx: &mut Context<'_>) -> Poll<()> {
        {
            let state = lock(&self.0);
            if ticket <= state.now {
                return Poll::Ready(());
            }
            if state.waiting.get(&ticket).is_some_and(|all| all.iter().any(|waker| waker.will_wake(cx.waker()))) {
                return Poll::Pending;
            }
        }
        // Wakers are cloned and dropped outside of the lock: they run code of the executor.
        let waker = cx.waker().clone();
        let mut state = lock(&self.0);
        if ticket <= state.now {
            return Poll::Ready(());
        }
        state.waiting.entry(ticket).or_default().push(waker);
        Poll::Pending
    }

    /// Lets the next ticket have its turn.
    fn pass(&self, ticket: u64) {
        let woken = {
            let mut state = lock(&self.0);
            if ticket != state.now {
                state.passed.insert(ticket);
                return;
            }
            state.now += 1;
            while state.passed.first() == Some(&state.now) {
                state.passed.pop_first();
                state.now += 1;
            }
            if state.waiting.is_empty() {
                return;
            }
            let behind = state.now + 1;
            let later = state.waiting.split_off(&behind);
            std::mem::replace(&mut state.waiting, later)
        };
        // Those of tickets that have passed wait no more.
        woken.into_values().flatten().for_each(Waker::wake);
    }
}
