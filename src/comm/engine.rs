//! What carries operations from rank to rank.

use std::sync::Arc;

use super::health::Health;
use super::op::{Op, OpFuture, Place};
use crate::error::WorldFault;

/// Dropped once the transport has all parts of an operation.
pub(crate) type Issued = Box<dyn Send>;

/// An engine, as one rank has it. None of its methods blocks.
pub(crate) trait Engine: Send + Sync {
    /// Returns its name, for reports.
    fn name(&self) -> &'static str;

    fn place(&self) -> Place;

    fn health(&self) -> &Arc<Health>;

    /// Starts an operation. Collectives are started in the same order on all ranks: the next one is started
    /// when `issued` is dropped, so the future keeps it until the transport has all parts of this one.
    fn start(&self, op: Op, issued: Issued) -> OpFuture;

    /// Breaks the world for all ranks.
    fn break_by(&self, fault: WorldFault);

    /// Leaves the world: the last handle of this rank is gone.
    fn leave(&self);
}
