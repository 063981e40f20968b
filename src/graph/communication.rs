//! Communication between ranks as a graph describes it: what a node exchanges, with which ranks, and where
//! nodes run. For policies, checks and pictures; the room `comm` carries it out.

use std::fmt;
use std::sync::Arc;

use crate::name::Name;

/// The ranks on which a node runs.
///
/// # Examples
/// ```
/// use anabranch::Graph;
/// use anabranch::graph::Ranks;
///
/// let mut g = Graph::new();
/// let limit = g.task("limit", (), || 1e-6);
/// g.node(&limit).replicated();
/// assert_eq!(g.shape().nodes()[0].ranks, Some(Ranks::Same));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Ranks {
    /// On all ranks, which all make the same value.
    Same,
    /// On all ranks, each of which makes a value of its own.
    Each,
    /// On one rank only.
    One(u32),
}

impl Ranks {
    /// Returns whether a node with these ranks runs on `rank`. A node without any set runs on all.
    pub(crate) fn has(ranks: Option<Self>, rank: u32) -> bool {
        Self::one(ranks).is_none_or(|one| one == rank)
    }

    /// Returns the rank, if it is one.
    pub(crate) fn one(ranks: Option<Self>) -> Option<u32> {
        if let Some(Self::One(rank)) = ranks { Some(rank) } else { None }
    }
}

/// What a node of communication does: the exchange, and the type of the value that it exchanges.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Communication {
    /// The exchange.
    pub exchange: Exchange,
    /// The name of the type of the value that a rank gives.
    pub of: Name,
    /// The name of the type of the operator, if there is one: two operators may have the same name.
    pub(crate) operator: Option<Name>,
}

/// An exchange between ranks. The words are those of MPI and NCCL.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Exchange {
    /// All ranks get the combination of the values of all ranks.
    AllReduce {
        /// The name of the operator.
        operator: Name,
    },
    /// All ranks get the values of all ranks, in the order of the ranks.
    AllGather,
    /// Each rank gets its part of the combination of the values of all ranks.
    ReduceScatter {
        /// The name of the operator.
        operator: Name,
    },
    /// All ranks get the value of one rank.
    Broadcast {
        /// The rank that gives it.
        root: u32,
    },
    /// Each rank gives each rank a part of its value.
    AllToAll,
    /// No rank goes on before all ranks have come here.
    Barrier,
    /// Each rank gives its value to a peer, and gets that of a peer, at once.
    SendRecv {
        /// The rank that receives the value.
        to: Peer,
        /// The rank whose value is received.
        from: Peer,
    },
    /// A rank gives its value to another one.
    SendTo {
        /// The rank that receives it.
        to: Peer,
    },
    /// A rank gets a value of another one.
    RecvFrom {
        /// The rank that sends it.
        from: Peer,
    },
}

/// The other rank of a send or a receive, for each rank. Every rank builds the same graph, so a graph says
/// for all ranks which rank sends to which.
///
/// # Examples
/// Neighbours in a line, and in a ring:
/// ```
/// use anabranch::graph::Peer;
///
/// assert_eq!((Peer::next().of(1, 4), Peer::next().of(3, 4)), (Some(2), None));
/// assert_eq!((Peer::ring(-1).of(0, 4), Peer::ring(2).of(3, 4)), (Some(3), Some(1)));
/// assert_eq!(Peer::table([Some(1), None]).of(0, 2), Some(1));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Peer(pub(super) Peers);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Peers {
    One(u32),
    Shift {
        by: i64,
        wraps: bool,
    },
    Table(Arc<[Option<u32>]>),
    /// This rank, for all others.
    Beyond(u32),
}

impl Peer {
    /// The same rank, for all ranks.
    pub fn rank(rank: u32) -> Self {
        Self(Peers::One(rank))
    }

    /// The rank behind. The last rank has none.
    pub fn next() -> Self {
        Self::shift(1)
    }

    /// The rank before. Rank 0 has none.
    pub fn previous() -> Self {
        Self::shift(-1)
    }

    /// The rank `by` behind, or none if there is no such rank.
    pub fn shift(by: i64) -> Self {
        Self(Peers::Shift { by, wraps: false })
    }

    /// The rank `by` behind in a ring, in which rank 0 is behind the last rank.
    pub fn ring(by: i64) -> Self {
        Self(Peers::Shift { by, wraps: true })
    }

    /// The peer of each rank, in the order of the ranks. Ranks behind the end of the table have none.
    pub fn table(peers: impl Into<Arc<[Option<u32>]>>) -> Self {
        Self(Peers::Table(peers.into()))
    }

    /// The rank `root`, for all other ranks.
    pub(crate) fn beyond(root: u32) -> Self {
        Self(Peers::Beyond(root))
    }

    /// Returns the peer of `rank` among `size` ranks. None if it has none. The peer may be no rank of the
    /// world, if a table or [`Peer::rank`] says so.
    pub fn of(&self, rank: u32, size: u32) -> Option<u32> {
        match &self.0 {
            Peers::One(peer) => Some(*peer),
            Peers::Shift { by, wraps } => {
                let (size, at) = (i64::from(size), i64::from(rank).checked_add(*by)?);
                let at = if *wraps { at.checked_rem_euclid(size)? } else { at };
                u32::try_from(at).ok().filter(|_| at < size)
            }
            Peers::Table(peers) => *peers.get(rank as usize)?,
            Peers::Beyond(root) => (*root != rank).then_some(*root),
        }
    }
}

impl From<u32> for Peer {
    fn from(rank: u32) -> Self {
        Self::rank(rank)
    }
}

impl Communication {
    /// Returns a communication of values of any type, for shapes.
    pub fn new(exchange: Exchange) -> Self {
        Self { exchange, of: Self::ANY.into(), operator: None }
    }

    /// The name of the type of values in shapes.
    pub(super) const ANY: &str = "values";

    /// Returns whether all ranks take part.
    pub fn is_collective(&self) -> bool {
        !matches!(self.exchange, Exchange::SendTo { .. } | Exchange::RecvFrom { .. })
    }

    /// Returns whether all ranks get the same value.
    pub fn gives_same(&self) -> bool {
        use Exchange::{AllGather, AllReduce, Barrier, Broadcast};
        matches!(self.exchange, AllReduce { .. } | AllGather | Broadcast { .. } | Barrier)
    }
}

/// Words of a plan: `all-reduce (+) of f64`.
impl fmt::Display for Communication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.exchange {
            Exchange::Barrier => f.write_str("barrier"),
            exchange => write!(f, "{exchange} of {}", self.of),
        }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduce { operator } => write!(f, "all-reduce ({operator})"),
            Self::AllGather => f.write_str("all-gather"),
            Self::ReduceScatter { operator } => write!(f, "reduce-scatter ({operator})"),
            Self::Broadcast { root } => write!(f, "broadcast by rank {root}"),
            Self::AllToAll => f.write_str("all-to-all"),
            Self::Barrier => f.write_str("barrier"),
            Self::SendRecv { to, from } => write!(f, "send to {to} and receive from {from}"),
            Self::SendTo { to } => write!(f, "send to {to}"),
            Self::RecvFrom { from } => write!(f, "receive from {from}"),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Peers::One(rank) | Peers::Beyond(rank) => write!(f, "rank {rank}"),
            Peers::Shift { by, wraps: false } => write!(f, "rank {by:+}"),
            Peers::Shift { by, wraps: true } => write!(f, "rank {by:+} in the ring"),
            Peers::Table(_) => f.write_str("a table of ranks"),
        }
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("all ranks, one value"),
            Self::Each => f.write_str("all ranks, a value each"),
            Self::One(rank) => write!(f, "rank {rank}"),
        }
    }
}
