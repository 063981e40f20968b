//! The ranks of nodes, and what they exchange, as data.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::graph::communication::{Communication, Exchange, Peer, Peers, Ranks};

/// The ranks on which a node runs: a number, or a word.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected the number of a rank, \"same\" or \"each\"")]
pub(super) enum RanksForm {
    One(u32),
    All(AllForm),
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AllForm {
    Same,
    Each,
}

impl RanksForm {
    pub(super) fn of(ranks: Ranks) -> Self {
        match ranks {
            Ranks::One(rank) => Self::One(rank),
            Ranks::Same => Self::All(AllForm::Same),
            Ranks::Each => Self::All(AllForm::Each),
        }
    }

    pub(super) fn ranks(self) -> Ranks {
        match self {
            Self::One(rank) => Ranks::One(rank),
            Self::All(AllForm::Same) => Ranks::Same,
            Self::All(AllForm::Each) => Ranks::Each,
        }
    }
}

/// What a node exchanges. The words are those of the plan.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum ExchangeForm {
    AllReduce { operator: String },
    AllGather,
    ReduceScatter { operator: String },
    Broadcast { root: u32 },
    AllToAll,
    Barrier,
    SendRecv { to: PeerForm, from: PeerForm },
    SendTo { to: PeerForm },
    RecvFrom { from: PeerForm },
}

/// The other rank, for each rank.
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a rank, a list of ranks and nulls, {\"shift\": 1} or {\"beyond\": 0}")]
pub(super) enum PeerForm {
    One(u32),
    Table(Vec<Option<u32>>),
    Shift(ShiftForm),
    Beyond(BeyondForm),
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShiftForm {
    shift: i64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ring: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BeyondForm {
    beyond: u32,
}

impl PeerForm {
    fn of(peer: &Peer) -> Self {
        match &peer.0 {
            Peers::One(rank) => Self::One(*rank),
            Peers::Table(peers) => Self::Table(peers.to_vec()),
            Peers::Shift { by, wraps } => Self::Shift(ShiftForm { shift: *by, ring: *wraps }),
            Peers::Beyond(root) => Self::Beyond(BeyondForm { beyond: *root }),
        }
    }

    fn peer(&self) -> Peer {
        match self {
            Self::One(rank) => Peer::rank(*rank),
            Self::Table(peers) => Peer::table(&peers[..]),
            Self::Shift(ShiftForm { shift, ring: false }) => Peer::shift(*shift),
            Self::Shift(ShiftForm { shift, ring: true }) => Peer::ring(*shift),
            Self::Beyond(BeyondForm { beyond }) => Peer::beyond(*beyond),
        }
    }
}

impl ExchangeForm {
    pub(super) fn of(exchange: &Exchange) -> Self {
        match exchange {
            Exchange::AllReduce { operator } => Self::AllReduce { operator: operator.to_string() },
            Exchange::AllGather => Self::AllGather,
            Exchange::ReduceScatter { operator } => Self::ReduceScatter { operator: operator.to_string() },
            Exchange::Broadcast { root } => Self::Broadcast { root: *root },
            Exchange::AllToAll => Self::AllToAll,
            Exchange::Barrier => Self::Barrier,
            Exchange::SendRecv { to, from } => Self::SendRecv { to: PeerForm::of(to), from: PeerForm::of(from) },
            Exchange::SendTo { to } => Self::SendTo { to: PeerForm::of(to) },
            Exchange::RecvFrom { from } => Self::RecvFrom { from: PeerForm::of(from) },
        }
    }

    fn exchange(&self) -> Exchange {
        match self {
            Self::AllReduce { operator } => Exchange::AllReduce { operator: operator.into() },
            Self::AllGather => Exchange::AllGather,
            Self::ReduceScatter { operator } => Exchange::ReduceScatter { operator: operator.into() },
            Self::Broadcast { root } => Exchange::Broadcast { root: *root },
            Self::AllToAll => Exchange::AllToAll,
            Self::Barrier => Exchange::Barrier,
            Self::SendRecv { to, from } => Exchange::SendRecv { to: to.peer(), from: from.peer() },
            Self::SendTo { to } => Exchange::SendTo { to: to.peer() },
            Self::RecvFrom { from } => Exchange::RecvFrom { from: from.peer() },
        }
    }

    /// Returns the communication of values of this type.
    pub(super) fn communication(&self, of: Option<&String>, operator: Option<&String>) -> Arc<Communication> {
        let plain = Communication::new(self.exchange());
        let of = of.map_or(plain.of.clone(), Into::into);
        Arc::new(Communication { of, operator: operator.map(Into::into), ..plain })
    }
}
