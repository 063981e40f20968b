//! Checks of the places where futures of an engine wait: a wait that could not end is an error. And the wait
//! until nothing is pending.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::engine_core::EngineCore;
use super::failures::Failures;
use crate::engine::order::{Key, is_polling, self_wait};
use crate::error::{Kind, Result};
use crate::runtime::{Idle, IdleWait, Idles, Registration, is_inside, is_outside, poll_share};
use crate::sync::lock;

impl EngineCore {
    /// Returns true in a child that was forked from the process of the executor's threads. There a lock may
    /// be held for ever by a thread that does not exist, so none is taken.
    #[inline]
    pub(in crate::engine) fn is_forked(&self) -> bool {
        // Without workers there are no threads that a child would lack.
        !self.is_inline() && self.origin.is_forked()
    }

    /// Returns an error in a forked child.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.is_forked() { Err(Kind::Forked.into()) } else { Ok(()) }
    }

    /// Returns an error inside of an operation that is not asynchronous: the wait would never end.
    pub(super) fn may_wait(&self) -> Result<()> {
        self.check_process()?;
        if is_inside(self.address()) {
            return Err(Kind::WaitsInside.into());
        }
        self.may_block()
    }

    /// Returns an error inside of a node's body, or of another engine's operation. There a pending wait would
    /// block a worker that its end may need.
    pub(super) fn may_block(&self) -> Result<()> {
        let is_in_task = |registration: &Registration<Self>| registration.core.is_in_task();
        let is_in_task = self.workers > 0 && !is_outside() && lock(&self.registration).as_ref().is_some_and(is_in_task);
        if is_in_task { Err(Kind::WaitsInTask.into()) } else { Ok(()) }
    }

    /// Returns an error if this thread polls the awaited operation, or one that keeps a variable from it.
    pub(super) fn may_wait_for(&self, awaited: Key) -> Result<()> {
        let exclusive = self.is_inline().then_some(&self.exclusive);
        self_wait(self.address(), &self.slots, exclusive, awaited).map_or(Ok(()), Err)
    }

    /// Returns true inside of any operation of this engine.
    pub(super) fn is_inside_any(&self) -> bool {
        is_inside(self.address()) || is_polling(self.address())
    }

    /// Returns an error inside of an operation, because the wait is for that operation, too.
    pub(super) fn may_wait_for_all(&self) -> Result<()> {
        self.check_process()?;
        if self.is_inside_any() { Err(Kind::WaitsForAllInside.into()) } else { Ok(()) }
    }

    /// Returns an error inside of an operation, because that operation takes up room itself.
    pub(super) fn may_wait_for_room(&self) -> Result<()> {
        if self.is_inside_any() { Err(Kind::WaitsForRoomInside { max: self.max_pending }.into()) } else { Ok(()) }
    }
}

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

impl Idles for EngineDrain {
    fn poll_idle(&self, wait: &mut IdleWait, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { core, failures } = self;
        core.may_wait_for_all()?;
        let share = ready!(poll_share(cx));
        core.drive(&mut wait.driver, cx);
        core.idle.register(&mut wait.lane, cx);
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
