//! Operations that are futures: what is left of one when its closure has returned, and who polls that.
//!
//! ```text
//!            poll: Pending              wake
//! RUNNING ───────────────────▶ IDLE ─────────────▶ WOKEN ──▶ ready, as any operation ──▶ RUNNING
//!    │ wake                                          ▲
//!    └──▶ RUNNING|WOKEN ──────── poll: Pending ──────┘
//! ```
//! It is made ready only by the step into WOKEN out of IDLE, or by whoever polled it; so one thread at a time
//! polls it, and nobody who wakes it late touches its slot.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::body::{Ran, Work};
use super::home::Home;
use super::hub::Hub;
use super::scope::Scope;
use crate::error::BoxError;
use crate::error::shielded;
use crate::sync::{AtomicU32, Mutex, Ordering, lock};

/// What is left of an operation.
pub(super) type Rest = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

const IDLE: u32 = 0;
const RUNNING: u32 = 1;
const WOKEN: u32 = 2;

/// In whose hands a future is: of its waker, or of who runs it.
pub(crate) struct Parking(AtomicU32);

impl Parking {
    /// It is ready already.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(WOKEN))
    }

    /// A poll begins.
    pub(crate) fn begin(&self) {
        // ORDERING: AcqRel: whoever woke it has done something that this poll is to see.
        self.0.swap(RUNNING, Ordering::AcqRel);
    }

    /// It is not to park after this poll.
    fn keep_awake(&self) {
        self.0.fetch_or(WOKEN, Ordering::Relaxed);
    }

    /// A poll has ended. Returns true if it was woken meanwhile: then it is ready again.
    #[must_use]
    pub(crate) fn park(&self) -> bool {
        // ORDERING: AcqRel: who wakes it from now on sees its operation as this thread leaves it; and whoever
        // runs it again sees why it was woken meanwhile.
        let was_woken = self.0.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_err();
        if was_woken {
            // ORDERING: AcqRel: more may have woken it since, and the next poll, which reads this, is to see
            // what they did, too.
            self.0.swap(WOKEN, Ordering::AcqRel);
        }
        was_woken
    }

    /// Returns true if it is for the caller to make it ready.
    #[must_use]
    pub(crate) fn wake(&self) -> bool {
        // ORDERING: AcqRel: see `begin` and `park`.
        self.0.fetch_or(WOKEN, Ordering::AcqRel) == IDLE
    }
}

/// An operation whose closure has returned a future.
pub(super) struct Later {
    home: Home,
    number: u32,
    /// The flow that it is of.
    scope: Option<Arc<Scope>>,
    parking: Parking,
    /// None while it is polled, and once it is over.
    rest: Mutex<Option<Rest>>,
    /// The runtime in which it was begun, so that its timers and sockets work on whatever thread polls it.
    #[cfg(feature = "tokio")]
    runtime: Option<tokio::runtime::Handle>,
}

impl Later {
    /// It is ready already.
    pub(super) fn new(hub: &Arc<Hub>, number: u32, scope: Option<Arc<Scope>>, rest: Rest, runtime: Runtime) -> Arc<Self> {
        #[cfg(not(feature = "tokio"))]
        let Runtime {} = runtime;
        Arc::new(Self {
            home: Home::of(hub),
            number,
            scope,
            parking: Parking::new(),
            rest: Mutex::new(Some(rest)),
            #[cfg(feature = "tokio")]
            runtime: runtime.0,
        })
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
        #[cfg(feature = "tokio")]
        let _entered = self.runtime.as_ref().map(tokio::runtime::Handle::enter);
        let waker = Waker::from(self.clone());
        let polled = catch_unwind(AssertUnwindSafe(|| rest.as_mut().poll(&mut Context::from_waker(&waker))));
        match polled {
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

/// Where an operation is made, for its future.
pub(super) struct Runtime(#[cfg(feature = "tokio")] Option<tokio::runtime::Handle>);

impl Runtime {
    pub(super) fn current() -> Self {
        Self(
            #[cfg(feature = "tokio")]
            tokio::runtime::Handle::try_current().ok(),
        )
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
