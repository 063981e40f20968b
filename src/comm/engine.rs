//! What carries operations from rank to rank.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::health::Health;
use super::op::{Op, OpFault, OpFuture, Place};
use crate::error::WorldFault;

/// Dropped once the transport has all parts of an operation.
pub(crate) type Issued = Box<dyn Send>;

/// An engine, as one rank has it. None of its methods blocks.
pub(crate) trait Engine: Send + Sync {
    /// Returns its name, for reports.
    fn name(&self) -> &'static str;

    fn place(&self) -> Place;

    fn health(&self) -> &Arc<Health>;

    /// Starts an operation. If it ends with a fault of the world, the caller breaks the world. Collectives
    /// are started in the same order on all ranks: the next one is started when `issued` is dropped, so the
    /// future keeps it until the transport has all parts of this one. A future that waits before the last
    /// part keeps it in an [`Issuing`].
    fn start(&self, op: Op, issued: Issued) -> OpFuture;

    /// Returns the channel on which ranks compare collectives. None if the engine compares each of them
    /// itself, or there is one rank.
    fn checks(&self) -> Option<Arc<dyn Checks>> {
        None
    }

    /// Breaks the world for all ranks.
    fn break_by(&self, fault: WorldFault);

    /// Leaves the world: the last handle of this rank is gone.
    fn leave(&self);
}

pub(crate) type CheckFuture<T> = Pin<Box<dyn Future<Output = Result<T, OpFault>> + Send>>;

/// The channel on which ranks compare what they are about to start. It is apart from the channel of the
/// operations: whatever these are, all ranks ask the same here, in the same order.
pub(crate) trait Checks: Send + Sync {
    /// Starts the comparison of a number with those of the other ranks, at this call. Returns whether all are
    /// the same.
    fn compare(&self, number: u64) -> CheckFuture<bool>;

    /// Returns the bytes of all ranks. Ranks call it when a comparison has found a difference.
    fn gather(&self, bytes: Vec<u8>) -> CheckFuture<Vec<Vec<u8>>>;
}

/// An operation of which the transport does not have all parts. The other ranks wait for all of them, so its
/// drop breaks the world before it lets the next operation start.
pub(crate) struct Issuing {
    /// None once it was dropped.
    issued: Option<Issued>,
    /// Breaks the world, for a reason.
    abandon: Option<Box<dyn FnOnce(String) + Send>>,
}

#[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "a local world gets an operation in one part"))]
impl Issuing {
    pub(crate) fn new(issued: Issued, abandon: impl FnOnce(String) + Send + 'static) -> Self {
        Self { issued: Some(issued), abandon: Some(Box::new(abandon)) }
    }

    /// Notes that the transport has all parts. The next operation may start.
    pub(crate) fn complete(&mut self) {
        self.abandon = None;
        drop(self.issued.take());
    }

    /// Breaks the world, if the transport does not have all parts.
    pub(crate) fn abandon(&mut self, why: String) {
        if let Some(abandon) = self.abandon.take() {
            abandon(why);
        }
        drop(self.issued.take());
    }
}

impl Drop for Issuing {
    fn drop(&mut self) {
        if self.abandon.is_some() {
            let event = if std::thread::panicking() { "panicked" } else { "was dropped" };
            self.abandon(format!("it {event} before all of its parts were started"));
        }
    }
}
