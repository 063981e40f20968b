//! Sends and receives: the n-th send from one rank to another in a graph belongs to the n-th receive there
//! from that rank, in the order in which the nodes were added. Loops and branches have pairs of their own.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use super::units::Unit;
use crate::error::{Kind, Result};
use crate::graph::{Exchange, NodeId, NodeShape, Ranks};

/// The ends of messages from one rank to another.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) sends: SmallVec<[NodeId; 4]>,
    pub(super) receives: SmallVec<[NodeId; 4]>,
}

/// Returns the ends of all messages in a graph, by (sender, receiver).
///
/// # Errors
/// If a peer is no rank.
pub(super) fn ends(unit: &Unit, size: u32) -> Result<BTreeMap<(u32, u32), Ends>> {
    let mut all: BTreeMap<(u32, u32), Ends> = BTreeMap::new();
    for (node, shape) in unit.communications() {
        let Some((peer, sends)) = peer_of(shape) else { continue };
        for rank in ranks_of(shape, size) {
            let Some(peer) = peer.of(rank, size) else { continue };
            if peer >= size {
                let fault = format!("has the peer {peer} on rank {rank}, but {}", there_are(size));
                return Err(Kind::Body { node: unit.full_name(node), fault }.into());
            }
            if sends {
                all.entry((rank, peer)).or_default().sends.push(node);
            } else {
                all.entry((peer, rank)).or_default().receives.push(node);
            }
        }
    }
    Ok(all)
}

/// Returns the ranks on which a node runs.
pub(super) fn ranks_of(shape: &NodeShape, size: u32) -> Range<u32> {
    Ranks::one(shape.ranks).map_or(0..size, |rank| rank..rank + 1)
}

/// Returns the peer of a send or a receive, and whether it is a send.
pub(super) fn peer_of(shape: &NodeShape) -> Option<(&crate::graph::Peer, bool)> {
    match &shape.communication.as_deref()?.exchange {
        Exchange::SendTo { to } => Some((to, true)),
        Exchange::RecvFrom { from } => Some((from, false)),
        _ => None,
    }
}

/// The usual mistake behind a send or a receive that is alone.
const ALL_BUILD_ALL: &str =
    "Every rank builds all nodes: `node(&x).rank(0)` or `Peer::table` say which ranks send, and which receive";

/// Checks that each send has its receive, of the same type, and each receive its send; and that roots exist.
///
/// # Errors
/// Names the node, and both ranks.
pub(crate) fn check_pairs(units: &[Unit], size: u32) -> Result<()> {
    for unit in units {
        check_roots(unit, size)?;
        check_exchanges(unit, size)?;
        for ((from, to), Ends { sends, receives }) in ends(unit, size)? {
            let paired = sends.len().min(receives.len());
            if let Some(&send) = sends.get(paired) {
                let fault = format!(
                    "sends to rank {to} on rank {from}, and no node of the same graph receives it there: {} from rank {from} to rank {to} against {}. {ALL_BUILD_ALL}",
                    counted(sends.len(), "send"),
                    counted(receives.len(), "receive")
                );
                return Err(Kind::Body { node: unit.full_name(send), fault }.into());
            }
            if let Some(&receive) = receives.get(paired) {
                let fault = format!(
                    "receives from rank {from} on rank {to}, and no node of the same graph sends it there: {} from rank {from} to rank {to} against {}. {ALL_BUILD_ALL}",
                    counted(receives.len(), "receive"),
                    counted(sends.len(), "send")
                );
                return Err(Kind::Body { node: unit.full_name(receive), fault }.into());
            }
            for (&send, &receive) in sends.iter().zip(&receives) {
                let of = |node: NodeId| unit.shape.nodes()[node.index()].communication.as_ref().map(|is| &is.of);
                if let (Some(sent), Some(received)) = (of(send), of(receive))
                    && sent != received
                {
                    let fault = format!(
                        "receives a `{received}` from rank {from} on rank {to}, but '{}' sends it a `{sent}` there",
                        unit.full_name(send)
                    );
                    return Err(Kind::Body { node: unit.full_name(receive), fault }.into());
                }
            }
        }
    }
    Ok(())
}

/// Checks that broadcasts begin at ranks of the world.
fn check_roots(unit: &Unit, size: u32) -> Result<()> {
    let root_of = |shape: &NodeShape| match shape.communication.as_deref()?.exchange {
        Exchange::Broadcast { root } => Some(root),
        _ => None,
    };
    let found = unit.communications().find_map(|(node, shape)| Some((node, root_of(shape).filter(|root| *root >= size)?)));
    found.map_or(Ok(()), |(node, root)| {
        let fault = format!("has the root {root}, but {}", there_are(size));
        Err(Kind::Body { node: unit.full_name(node), fault }.into())
    })
}

/// Checks that each rank that sends in an exchange has a peer that receives from it there, and the reverse.
fn check_exchanges(unit: &Unit, size: u32) -> Result<()> {
    for (node, shape) in unit.communications() {
        let Some(Exchange::SendRecv { to, from }) = shape.communication.as_deref().map(|of| &of.exchange) else { continue };
        for rank in 0..size {
            let fault = if let Some(peer) = to.of(rank, size).filter(|&peer| from.of(peer, size) != Some(rank) || peer >= size) {
                format!("sends to rank {peer} on rank {rank}, but does not receive from rank {rank} there")
            } else if let Some(peer) = from.of(rank, size).filter(|&peer| to.of(peer, size) != Some(rank) || peer >= size) {
                format!("receives from rank {peer} on rank {rank}, but does not send to rank {rank} there")
            } else {
                continue;
            };
            return Err(Kind::Body { node: unit.full_name(node), fault }.into());
        }
    }
    Ok(())
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Returns how many ranks there are, for messages.
pub(crate) fn there_are(ranks: u32) -> String {
    if ranks == 1 { "there is 1 rank, number 0".into() } else { format!("there are {ranks} ranks, from 0 on") }
}
