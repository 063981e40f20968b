//! Operations that end together: those of one flow. Once their scope is cancelled none begins any more, and futures are dropped where they stand.

use std::sync::Arc;

use super::later::Laters;
use crate::bridge::Lane;
use crate::error::Error;
use crate::exec::Cancel;
use crate::sync::{AtomicBool, OnceLock, Ordering};

/// What the operations of one flow share.
pub(crate) struct Scope {
    /// The flow that this one was begun in.
    outer: Option<Arc<Scope>>,
    is_cancelled: AtomicBool,
    pub(super) laters: Laters,
    /// Why it cannot go on: a push was refused.
    failure: OnceLock<Error>,
    /// Rung when it is cancelled.
    pub(crate) bell: Lane,
}

impl Scope {
    pub(crate) fn new(outer: Option<Arc<Scope>>) -> Arc<Self> {
        Arc::new(Self {
            outer,
            is_cancelled: AtomicBool::new(false),
            laters: Laters::default(),
            failure: OnceLock::new(),
            bell: Lane::new(),
        })
    }

    /// Returns true once it, or one that it was begun in, is cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        let mut scope = self;
        loop {
            // ORDERING: SeqCst: of "cancel, look for futures" and "add a future, look whether it is cancelled" one sees the other.
            if scope.is_cancelled.load(Ordering::SeqCst) {
                return true;
            }
            match &scope.outer {
                Some(outer) => scope = outer,
                None => return false,
            }
        }
    }

    /// Notes down that one of its operations was refused. The first counts.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// Cancels it. Does nothing to one that is.
    pub(crate) fn cancel(&self) {
        if !self.is_cancelled.swap(true, Ordering::SeqCst) {
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
