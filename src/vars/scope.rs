//! Operations that end together: those of one flow. Once their scope is cancelled none begins any more, and futures are dropped where they stand.

use std::sync::Arc;

use super::later::Laters;
use crate::bridge::Lane;
use crate::error::{Error, Kind, Result};
use crate::exec::Cancel;
use crate::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};

/// How many operations of one flow may be pending.
const PENDING_MAX: u64 = 65_536;

/// What the operations of one flow share.
pub(crate) struct Scope {
    /// The flow that this one was begun in.
    outer: Option<Arc<Scope>>,
    fate: AtomicU32,
    pub(super) laters: Laters,
    /// How many of its operations are pending.
    pending: AtomicU64,
    /// Why it cannot go on: a push was refused.
    failure: OnceLock<Error>,
    /// Rung when it is cancelled.
    pub(crate) bell: Lane,
}

/// Neither of those below yet.
const GOING: u32 = 0;
const CANCELLED: u32 = 1;
/// The flow's code is over, and what it has pushed goes on.
const OVER: u32 = 2;

impl Scope {
    pub(crate) fn new(outer: Option<Arc<Scope>>) -> Arc<Self> {
        Arc::new(Self {
            outer,
            fate: AtomicU32::new(GOING),
            laters: Laters::default(),
            pending: AtomicU64::new(0),
            failure: OnceLock::new(),
            bell: Lane::new(),
        })
    }

    /// Returns true once it, or one that it was begun in, is cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        let mut scope = self;
        loop {
            // ORDERING: SeqCst: of "cancel, look for futures" and "add a future, look whether it is cancelled" one sees the other.
            if scope.fate.load(Ordering::SeqCst) == CANCELLED {
                return true;
            }
            match &scope.outer {
                Some(outer) => scope = outer,
                None => return false,
            }
        }
    }

    /// Returns an error if too many of its operations are pending.
    pub(crate) fn has_room(&self) -> Result<()> {
        // ORDERING: Relaxed, here and below: it is a count.
        if self.pending.load(Ordering::Relaxed) < PENDING_MAX { Ok(()) } else { Err(Kind::FlowBusy { max: PENDING_MAX }.into()) }
    }

    pub(super) fn begin_one(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_one(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes down that one of its operations was refused. The first counts.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
    }

    /// Returns that, to be told.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().inspect(|error| error.note_told()).cloned()
    }

    /// The flow's code has ended well: to cancel it does nothing from now on.
    pub(crate) fn end(&self) {
        let _ = self.fate.compare_exchange(GOING, OVER, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Cancels it. Does nothing to one that is, or is over.
    pub(crate) fn cancel(&self) {
        if self.fate.compare_exchange(GOING, CANCELLED, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            self.laters.drop_all();
            self.bell.ring();
        }
    }
}

impl Cancel for Scope {
    fn cancel(&self) {
        self.cancel();
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // One by one, however deep they are nested.
        let mut outer = self.outer.take();
        while let Some(scope) = outer {
            outer = Arc::into_inner(scope).and_then(|mut scope| scope.outer.take());
        }
    }
}
