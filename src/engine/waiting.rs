//! Where a caller may wait for an engine. A wait that could not end is an error instead.

use super::hub::Hub;
use super::within;
use crate::device::host::is_worker;
use crate::error::{Kind, Result};
use crate::runtime::{Registration, is_inside};
use crate::sync::lock;

impl Hub {
    /// Returns true in a child that was forked from the process that has the executor's threads. No lock may
    /// be taken there: it may be held by a thread that the child does not have.
    pub(super) fn is_forked(&self) -> bool {
        // Without workers there are no threads that a child would lack.
        !self.is_inline() && self.origin.is_forked()
    }

    /// Returns an error in such a child.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.is_forked() { Err(Kind::Forked.into()) } else { Ok(()) }
    }

    /// Returns an error if who asks would wait for ever: inside of an operation that is no future.
    pub(super) fn may_wait(&self) -> Result<()> {
        self.check_process()?;
        if is_inside(self.address()) {
            return Err(Kind::WaitsInside.into());
        }
        self.may_block()
    }

    /// Returns an error if a caller that is pending may keep a worker from what it waits for: inside of a
    /// node's body, or of another engine's operation.
    pub(super) fn may_block(&self) -> Result<()> {
        let is_in_task = self.workers > 0 && is_worker() && lock(&self.room).as_ref().is_some_and(Registration::is_in_task);
        if is_in_task { Err(Kind::WaitsInTask.into()) } else { Ok(()) }
    }

    /// Returns true inside of any operation, which is one of those that take up room, or are to be over.
    fn is_inside_any(&self) -> bool {
        is_inside(self.address()) || within::is_polling(self.address())
    }

    pub(super) fn may_wait_for_all(&self) -> Result<()> {
        self.check_process()?;
        if self.is_inside_any() { Err(Kind::WaitsForAllInside.into()) } else { Ok(()) }
    }

    pub(super) fn may_wait_for_room(&self) -> Result<()> {
        if self.is_inside_any() { Err(Kind::WaitsForRoomInside { max: self.max_pending }.into()) } else { Ok(()) }
    }
}
