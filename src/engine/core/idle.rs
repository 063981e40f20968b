//! The wait until nothing is pending on an engine.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::engine_core::EngineCore;
use super::failures::Failures;
use super::pace::poll_share;
use crate::error::Result;
use crate::runtime::{Drain, Idle, IdleWait};

/// An engine, and the failures that only [`Engine::idle`](crate::Engine::idle) reports.
pub(in crate::engine) struct EngineDrain {
    pub(in crate::engine) core: Arc<EngineCore>,
    pub(in crate::engine) failures: Arc<Failures>,
}

impl EngineDrain {
    pub(in crate::engine) fn idle(self: &Arc<Self>) -> Idle {
        let failures = if self.core.is_forked() { 0 } else { self.failures.begin_wait() };
        Idle::new(self.clone(), IdleWait { failures, ..IdleWait::default() })
    }
}

impl Drain for EngineDrain {
    fn poll_idle(&self, wait: &mut IdleWait, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { core, failures } = self;
        core.may_wait_for_all()?;
        let share = ready!(poll_share(cx));
        core.drive(&mut wait.driver, cx);
        // Point u64::MAX never passes: the lane is only rung.
        let _ = core.idle.poll(u64::MAX, &mut wait.lane, cx);
        if !core.is_idle() {
            core.may_block()?;
            return Poll::Pending;
        }
        core.idle.forget(&mut wait.lane);
        share.used();
        Poll::Ready(failures.next(&mut wait.failures).map_or(Ok(()), Err))
    }

    fn end_wait(&self, wait: &mut IdleWait) {
        if self.core.is_forked() {
            return;
        }
        self.failures.end_wait();
        self.core.idle.forget(&mut wait.lane);
        self.core.forget_driver(&mut wait.driver);
    }
}
