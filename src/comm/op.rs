//! One operation between ranks, as engines carry it out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::native::{Element, Operation};
use super::wire::Form;
use crate::error::{BoxError, WorldFault};
use crate::graph::{Communication, Made, Shared};
use crate::name::Name;

/// An operation that is not started.
pub(crate) struct Op {
    /// The name of its node.
    pub(crate) name: Name,
    pub(crate) spec: Arc<Spec>,
    /// The value that this rank gives.
    pub(crate) given: Shared,
    /// The other rank, and the number of the message, of a send or a receive. None if this rank has no peer.
    pub(crate) peer: Option<Peering>,
}

/// The other rank of a send or a receive. Messages between two ranks with the same tag keep their order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Peering {
    pub(crate) rank: u32,
    pub(crate) tag: u32,
}

/// What an operation does, for all its executions.
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "a local world needs no bytes"))]
pub(crate) struct Spec {
    pub(crate) communication: Communication,
    /// The form of the value that a rank gives, or that it receives.
    pub(crate) form: Form,
    /// The form of what a transport can make itself, if it can.
    pub(crate) made: Option<Form>,
    /// The size of an element in bytes, of a value that is divided among the ranks.
    pub(crate) element: usize,
    /// The reduction, if transports know it.
    pub(crate) reduction: Option<(Element, Operation)>,
    /// Makes the value of a rank from what the transport has made.
    pub(crate) finish: fn(Option<Made>) -> Made,
    pub(crate) combine: Combine,
}

/// Makes the value of a rank from the values that the ranks gave: of all ranks, for a collective; of the one
/// sender, for a receive.
pub(crate) type Combine = Box<dyn Fn(Place, &[Shared]) -> Result<Made, BoxError> + Send + Sync>;

/// A rank, and the number of ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

/// The reason why an operation failed: the world is broken, or the values do not fit.
pub(crate) enum OpFault {
    World(WorldFault),
    Value(BoxError),
}

pub(crate) type OpFuture = Pin<Box<dyn Future<Output = Result<Made, OpFault>> + Send>>;

impl From<WorldFault> for OpFault {
    fn from(fault: WorldFault) -> Self {
        Self::World(fault)
    }
}

impl From<BoxError> for OpFault {
    fn from(error: BoxError) -> Self {
        Self::Value(error)
    }
}
