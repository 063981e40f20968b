//! What a run with observers keeps: when its nodes have ended, and what has begun.

use std::time::Instant;

use crate::graph::NodeId;
use crate::runtime::{Begun, LaneId, Origins, RunId};
use crate::sync::{AtomicU64, Mutex, OnceLock};

/// What a run with observers has besides.
pub(super) struct ObservedRun {
    /// The run or the flow that made it.
    pub(super) around: Option<RunId>,
    pub(super) origins: Origins,
    /// When it was first polled.
    pub(super) ready: OnceLock<Instant>,
    pub(super) begun: Mutex<Option<Begun>>,
}

/// When the nodes of an iteration have ended, as [`Observers`](crate::runtime::Observers) keep times; 0 for
/// never. Threads that read one come after the thread that stored it, as a plan orders nodes.
pub(super) struct Times {
    pub(super) began: AtomicU64,
    /// By node.
    pub(super) ended: Box<[AtomicU64]>,
    /// By inner graph: when its iteration began.
    pub(super) inner: Box<[AtomicU64]>,
    /// Its item, of a run over many items.
    pub(super) item: Mutex<Option<Begun>>,
    /// The nodes that devices which take times work on.
    pub(super) submitted: Mutex<Vec<SubmittedNode>>,
}

/// A node whose work was submitted to a device.
pub(super) struct SubmittedNode {
    pub(super) node: NodeId,
    pub(super) begun: Begun,
    pub(super) is_ok: bool,
    /// The step of its segment.
    pub(super) step: u32,
    pub(super) lane: LaneId,
}
