//! Checks of the places where futures of an engine wait. A wait that could not end is an error.

use super::engine_core::EngineCore;
use crate::device::host::is_worker;
use crate::engine::order::{Key, SelfWait, is_polling, self_wait};
use crate::error::{Kind, Result};
use crate::runtime::{Registration, is_inside};
use crate::sync::lock;

impl EngineCore {
    /// Returns true in a child that was forked from the process of the executor's threads. There a lock may
    /// be held for ever by a thread that does not exist, so none is taken.
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
        let is_in_task = self.workers > 0 && is_worker() && lock(&self.registration).as_ref().is_some_and(is_in_task);
        if is_in_task { Err(Kind::WaitsInTask.into()) } else { Ok(()) }
    }

    /// Returns an error if this thread polls the awaited operation, or one that keeps a variable from it.
    pub(super) fn may_wait_for(&self, awaited: Key) -> Result<()> {
        let exclusive = self.is_inline().then_some(&self.exclusive);
        let Some(wait) = self_wait(self.address(), &self.slots, exclusive, awaited) else { return Ok(()) };
        Err(match wait {
            SelfWait::OwnEnd { operation } => Kind::WaitsForOwnEnd { operation },
            SelfWait::Behind { operation, awaited, variable } => Kind::WaitsForItself { operation, awaited, variable },
        }
        .into())
    }

    /// Returns true inside of any operation of this engine.
    fn is_inside_any(&self) -> bool {
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
