//! The wait until nothing is pending on an engine.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::failures::Failures;
use super::hub::Hub;
use super::pace::poll_share;
use crate::error::Result;
use crate::runtime::{Drain, Idle, IdleWait};

/// An engine and the failures that only [`Engine::idle`](super::Engine::idle) gives.
pub(super) struct EngineDrain {
    pub(super) hub: Arc<Hub>,
    pub(super) failures: Arc<Failures>,
}

impl EngineDrain {
    pub(super) fn idle(self: &Arc<Self>) -> Idle {
        let failures = if self.hub.is_forked() { 0 } else { self.failures.begin_wait() };
        Idle::new(self.clone(), IdleWait { failures, ..IdleWait::default() })
    }
}

impl Drain for EngineDrain {
    fn poll_idle(&self, wait: &mut IdleWait, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { hub, failures } = self;
        hub.may_wait_for_all()?;
        let share = ready!(poll_share(cx));
        hub.drive(&mut wait.driver, cx);
        // Point u64::MAX never passes: the lane is only rung.
        let _ = hub.idle.poll(u64::MAX, &mut wait.lane, cx);
        if !hub.is_idle() {
            hub.may_block()?;
            return Poll::Pending;
        }
        hub.idle.forget(&mut wait.lane);
        share.used();
        Poll::Ready(failures.tell(&mut wait.failures).map_or(Ok(()), Err))
    }

    fn end_wait(&self, wait: &mut IdleWait) {
        if self.hub.is_forked() {
            return;
        }
        self.failures.end_wait();
        self.hub.idle.forget(&mut wait.lane);
        self.hub.forget_driver(&mut wait.driver);
    }
}
