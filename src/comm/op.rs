//! One operation between ranks, as engines carry it out.

use std::borrow::Cow;
use std::collections::hash_map::DefaultHasher;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;

use super::given::Given;
use super::native::{Element, Operation};
use super::wire::Form;
use crate::error::{BoxError, WorldFault};
use crate::graph::{Communication, Exchange, Made, Shared};
use crate::name::Name;

/// An operation that is not started.
#[derive(Clone)]
pub(crate) struct Op {
    /// The name of its node.
    pub(crate) name: Name,
    pub(crate) spec: Arc<Spec>,
    /// The value that this rank gives.
    pub(crate) given: Given,
    /// The other rank, and the number of the message, of a send or a receive. None if this rank has no peer.
    pub(crate) peer: Option<Peering>,
}

impl Op {
    pub(crate) fn new(name: Name, spec: Arc<Spec>, given: Shared, peer: Option<Peering>) -> Self {
        Self { name, spec, given: Given::new(given), peer }
    }

    /// Encodes the value of this rank, if others get it. This calls code of the user.
    pub(crate) fn encode(&mut self, place: Place) -> Result<(), BoxError> {
        let gives = match self.spec.communication.exchange {
            Exchange::Barrier | Exchange::RecvFrom { .. } => false,
            Exchange::Broadcast { root } => root == place.rank,
            Exchange::SendTo { .. } => self.peer.is_some(),
            _ => true,
        };
        if gives { self.given.encode(&self.spec.form) } else { Ok(()) }
    }

    pub(crate) fn is_collective(&self) -> bool {
        self.spec.communication.is_collective()
    }

    /// Returns the number of bytes that this rank gives, if all ranks must give equally many.
    pub(crate) fn common_bytes(&self) -> Option<usize> {
        use Exchange::{AllReduce, AllToAll, ReduceScatter};
        let is_common = matches!(self.spec.communication.exchange, AllReduce { .. } | ReduceScatter { .. } | AllToAll);
        is_common.then(|| self.given.bytes().len())
    }

    /// Returns the bytes that this rank gives, if a comparison can carry the operation: all ranks know that
    /// they give equally few. A barrier gives none, so any comparison carries it.
    pub(crate) fn carried(&self, place: Place, room: usize) -> Option<Cow<'_, [u8]>> {
        use Exchange::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, ReduceScatter};
        let own = || Cow::Borrowed(self.given.bytes());
        let bytes = match (&self.spec.communication.exchange, self.spec.form.bytes) {
            (Barrier, _) => return Some(Cow::default()),
            (AllReduce { .. } | ReduceScatter { .. } | AllToAll, _) | (AllGather, Some(_)) => own(),
            (Broadcast { root }, Some(_)) if *root == place.rank => own(),
            (Broadcast { .. }, Some(bytes)) => Cow::Owned(vec![0; bytes]),
            _ => return None,
        };
        (room > 0 && bytes.len() <= room).then_some(bytes)
    }

    /// Makes the value of this rank from its bytes and those that a comparison has carried from all ranks.
    pub(crate) fn combine_carried(&self, place: Place, own: &[u8], carried: &[Vec<u8>]) -> Result<Made, BoxError> {
        let decoded = |rank: u32| (self.spec.form.decode)(if rank == place.rank { own } else { &carried[rank as usize] });
        match (&self.spec.communication.exchange, &self.spec.fold) {
            (Exchange::Barrier, _) => (self.spec.combine)(place, &[]),
            (Exchange::Broadcast { root }, _) => decoded(*root),
            (Exchange::AllReduce { .. }, Some(fold)) if place.size == 2 => fold(place, &self.given, decoded(1 - place.rank)?),
            _ => {
                let all = (0..place.size).map(|rank| Ok(Given::new(Shared::from(decoded(rank)?))));
                (self.spec.combine)(place, &all.collect::<Result<Vec<_>, BoxError>>()?)
            }
        }
    }

    /// Returns a number that is the same for the same operation, whatever its size is.
    pub(crate) fn kind(&self) -> u64 {
        let Communication { exchange, of, operator } = &self.spec.communication;
        hash_of((&self.name, exchange, of, operator))
    }

    /// Returns its name, what it does, and its size, for messages.
    pub(crate) fn text(&self) -> String {
        text_of(&self.name, &self.spec, self.common_bytes())
    }
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
    /// The size of an element in bytes, of a value of which all ranks give equally much. Else 1.
    pub(crate) element: usize,
    /// The reduction, if transports know it.
    pub(crate) reduction: Option<(Element, Operation)>,
    /// Makes the value of a rank from what the transport has made.
    pub(crate) finish: fn(Option<Made>) -> Made,
    pub(crate) combine: Combine,
    /// How two ranks combine their values, if the operation is a reduction.
    pub(crate) fold: Option<Fold>,
    /// How device memory is exchanged, if the value is that.
    #[cfg(feature = "nccl")]
    pub(crate) on_device: Option<super::nccl::OnDevice>,
}

/// Makes the value of a rank from the values that the ranks gave: of all ranks, for a collective; of the one
/// sender, for a receive.
pub(crate) type Combine = Box<dyn Fn(Place, &[Given]) -> Result<Made, BoxError> + Send + Sync>;

/// Makes the value of one of two ranks from the value that it gave, and from what the other rank has sent:
/// the elements of which this rank gets the combination. It uses the memory of the latter.
pub(crate) type Fold = Box<dyn Fn(Place, &Given, Made) -> Result<Made, BoxError> + Send + Sync>;

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

/// Returns the name of an operation, what it does, and its size, for messages.
pub(super) fn text_of(name: &Name, spec: &Spec, common_bytes: Option<usize>) -> String {
    let size = common_bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
    format!("'{name}', {}{size}", spec.communication)
}

/// Returns a hash that is the same on all ranks.
pub(super) fn hash_of(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
