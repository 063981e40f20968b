//! Asynchronous operations: what is left of one when its closure has returned a future, and what its wakers
//! do.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::body::{Ran, Work};
use super::home::Home;
use super::hub::Hub;
use super::scope::Scope;
use crate::error::BoxError;
use crate::error::shielded;
use crate::runtime::{AsyncContext, Parking};
use crate::sync::{Mutex, Ordering, lock};

/// What is left of an operation.
pub(super) type Rest = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// An operation whose closure has returned a future.
pub(super) struct Later {
    home: Home,
    number: u32,
    /// The flow that it is of.
    scope: Option<Arc<Scope>>,
    parking: Parking,
    /// None while it is polled, and once it is over.
    rest: Mutex<Option<Rest>>,
    context: AsyncContext,
}

impl Later {
    /// It is ready already.
    pub(super) fn new(hub: &Arc<Hub>, number: u32, scope: Option<Arc<Scope>>, rest: Rest, context: AsyncContext) -> Arc<Self> {
        Arc::new(Self { home: Home::of(hub), number, scope, parking: Parking::new(), rest: Mutex::new(Some(rest)), context })
    }

    fn poll(self: &Arc<Self>) -> Poll<Result<(), BoxError>> {
        self.parking.begin();
        if self.home.with(|hub| hub.is_closed.load(Ordering::Relaxed)).unwrap_or(true) {
            // It was woken to be ended, behind the look whether the engine is closed: so that it does not
            // park.
            self.parking.keep_awake();
        }
        let Some(mut rest) = lock(&self.rest).take() else {
            // Its flow was cancelled behind the same look: it is to be ended, too.
            self.parking.keep_awake();
            return Poll::Pending;
        };
        let waker = Waker::from(self.clone());
        match self.context.poll(|| rest.as_mut().poll(&mut Context::from_waker(&waker))) {
            Ok(Poll::Pending) => {
                *lock(&self.rest) = Some(rest);
                Poll::Pending
            }
            Ok(ready) => {
                let dropped = shielded(|| drop(rest));
                dropped.map_or_else(|message| panic!("dropping its future: {message}"), |()| ready)
            }
            Err(panic) => {
                // Two panics at once would end the process.
                let _ = shielded(|| drop(rest));
                resume_unwind(panic)
            }
        }
    }

    /// Drops the future, unless it is being polled, and has its operation end.
    fn abandon(self: Arc<Self>) {
        let rest = lock(&self.rest).take();
        let _ = shielded(|| drop(rest));
        self.wake();
    }

    /// Lets go of it until it is woken. Its operation may be running, or over, elsewhere when this returns.
    pub(super) fn park(&self) {
        if self.parking.park() {
            self.home.with(|hub| {
                hub.add_ready(self.number);
                self.end_if_over(hub);
            });
        }
    }

    /// It is ready: ends it if its flow is over, and perhaps nobody polls anything of the engine again.
    fn end_if_over(&self, hub: &Arc<Hub>) {
        // Of "make it ready, look whether the flow is cancelled" and "cancel the flow, look for what is
        // ready" one side sees the other.
        if let Some(scope) = self.scope.as_ref().filter(|scope| scope.is_cancelled()) {
            hub.sweep(&[scope]);
        }
    }
}

impl Wake for Later {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
        // Perhaps the last that holds the engine: what it drops then is foreign.
        let _ = shielded(|| drop(self));
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.parking.wake() {
            self.home.with(|hub| {
                hub.make_ready(self.number);
                self.end_if_over(hub);
            });
        }
    }
}

/// What an operation's body is from its future's first poll on. Dropped undone, it drops the future, whoever
/// else may wake it.
pub(super) struct Resume(Option<Arc<Later>>);

impl Resume {
    pub(super) fn new(later: Arc<Later>) -> Self {
        Self(Some(later))
    }
}

impl Work for Resume {
    unsafe fn run(mut self) -> Result<Ran, BoxError> {
        let later = self.0.take().expect("it is there until it is run");
        match later.poll() {
            Poll::Ready(outcome) => outcome.map(|()| Ran::Over),
            Poll::Pending => Ok(Ran::Parked(later)),
        }
    }
}

impl Drop for Resume {
    fn drop(&mut self) {
        let Some(later) = self.0.take() else { return };
        // The flow's list has a reference to it, and it has one to the flow: this breaks the cycle.
        later.scope.iter().for_each(|scope| scope.laters.remove(later.number));
        let rest = lock(&later.rest).take();
        drop(rest);
    }
}

/// The operations of an engine, or of one flow on it, that are futures and are not over.
#[derive(Default)]
pub(super) struct Laters(Mutex<BTreeMap<u32, Arc<Later>>>);

impl Laters {
    pub(super) fn add(&self, later: &Arc<Later>) {
        lock(&self.0).insert(later.number, later.clone());
    }

    pub(super) fn remove(&self, number: u32) {
        let removed = lock(&self.0).remove(&number);
        let _ = shielded(|| drop(removed));
    }

    /// Drops the future of each, and has it end.
    pub(super) fn drop_all(&self) {
        let laters: Vec<Arc<Later>> = lock(&self.0).values().cloned().collect();
        laters.into_iter().for_each(Later::abandon);
    }

    /// Has each polled, or dropped if that is what it comes to.
    pub(super) fn wake_all(&self) {
        let laters: Vec<Arc<Later>> = lock(&self.0).values().cloned().collect();
        laters.into_iter().for_each(Later::wake);
    }
}
