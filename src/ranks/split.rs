//! What crosses from rank to rank when each node runs where the graph says: the transfers that a graph needs
//! in addition.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use super::pairs::there_are;
use super::units::Unit;
use crate::error::{Kind, Result};
use crate::graph::{Edge, EdgeKind, Exchange, NodeId, Peer, Ranks, Shape};
use crate::name::Name;

/// A transfer: what a node of one rank has made goes to other ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    pub(crate) source: NodeId,
    /// The number of the source's value. None if others only wait for the source.
    pub(crate) output: Option<u32>,
    pub(crate) from: u32,
    pub(crate) to: Reach,
}

/// The ranks that a transfer goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Reach {
    One(u32),
    /// All but the one where the value is.
    Others,
}

/// The transfers of a graph, and which of its edges each of them serves.
#[derive(Default)]
pub(crate) struct Transfers {
    /// In the order of their sources, values and ranks.
    pub(crate) all: Vec<Transfer>,
    number: HashMap<(NodeId, Option<u32>, Reach), u32>,
}

impl Transfers {
    pub(crate) fn of(shape: &Shape) -> Self {
        let crossing: BTreeSet<_> = shape.edges().iter().filter_map(|edge| crosses(shape, edge)).collect();
        let has = |source, output, reach| crossing.contains(&(source, output, reach));
        // One transfer to all ranks serves each of them, and a value tells that its node has ended.
        let is_served = |&(source, output, reach): &(NodeId, Option<u32>, Reach)| {
            let of_source = || crossing.range((source, Some(0), Reach::One(0))..=(source, Some(u32::MAX), Reach::Others));
            let by_value = output.is_none() && of_source().any(|&(_, _, other)| other == reach || other == Reach::Others);
            by_value || (reach != Reach::Others && has(source, output, Reach::Others))
        };
        let mut transfers = Self::default();
        for &(source, output, to) in crossing.iter().filter(|crossing| !is_served(crossing)) {
            let from = one(shape, source).expect("only nodes of one rank need transfers");
            transfers.number.insert((source, output, to), transfers.all.len() as u32);
            transfers.all.push(Transfer { source, output, from, to });
        }
        transfers
    }

    /// Returns the number of the transfer that an edge needs, if it needs one.
    pub(crate) fn serving(&self, shape: &Shape, edge: &Edge) -> Option<u32> {
        let (source, output, reach) = crosses(shape, edge)?;
        let exact = [reach, Reach::Others].into_iter().find_map(|reach| self.number.get(&(source, output, reach)));
        exact.copied().or_else(|| {
            let serves = |at: &Transfer| at.source == source && (at.to == reach || at.to == Reach::Others);
            let start = self.all.partition_point(|at| at.source < source);
            self.all[start..].iter().position(serves).map(|at| (start + at) as u32)
        })
    }
}

/// A node that a graph gets for a transfer.
pub(crate) struct Added {
    /// The number of the transfer.
    pub(crate) transfer: usize,
    pub(crate) name: Name,
    pub(crate) end: End,
}

/// What the node of a transfer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Sends the value to a rank.
    Send(u32),
    /// Receives it, on the ranks that the transfer goes to.
    Receive,
    /// Brings it to all ranks.
    Broadcast,
}

impl Added {
    /// Returns the ranks of the node, and what it exchanges.
    pub(crate) fn exchange(&self, transfer: &Transfer) -> (Ranks, Exchange) {
        let from = transfer.from;
        match (self.end, transfer.to) {
            (End::Send(to), _) => (Ranks::One(from), Exchange::SendTo { to: Peer::rank(to) }),
            (End::Receive, Reach::One(to)) => (Ranks::One(to), Exchange::RecvFrom { from: Peer::rank(from) }),
            (End::Receive, Reach::Others) => (Ranks::Same, Exchange::RecvFrom { from: Peer::beyond(from) }),
            (End::Broadcast, _) => (Ranks::Same, Exchange::Broadcast { root: from }),
        }
    }
}

impl Transfers {
    /// Returns the nodes that the transfers need, in the order in which they are added to the graph: the
    /// sends of a transfer before its receive. A value goes to all other ranks by messages, if a broadcast
    /// would need a place among loops and branches that communicate (`is_by_messages`).
    pub(crate) fn added(&self, shape: &Shape, size: u32, is_by_messages: bool) -> Vec<Added> {
        let mut names: HashSet<Name> = shape.nodes().iter().map(|node| node.name.clone()).collect();
        let mut added = Vec::with_capacity(2 * self.all.len());
        for (transfer, at) in self.all.iter().zip(0..) {
            let mut add = |end, whither: fmt::Arguments<'_>| {
                let name = new_name(shape, transfer, whither, &mut names);
                added.push(Added { transfer: at, name, end });
            };
            let from = transfer.from;
            let sends = match transfer.to {
                Reach::One(to) => to..to + 1,
                Reach::Others if is_by_messages => 0..size,
                Reach::Others => {
                    add(End::Broadcast, format_args!("to all ranks"));
                    continue;
                }
            };
            sends.filter(|to| *to != from).for_each(|to| add(End::Send(to), format_args!("to rank {to}")));
            add(End::Receive, format_args!("from rank {from}"));
        }
        added
    }
}

/// Returns a name that no node has.
fn new_name(shape: &Shape, transfer: &Transfer, whither: fmt::Arguments<'_>, names: &mut HashSet<Name>) -> Name {
    let source = &shape.nodes()[transfer.source.index()].name;
    let mut name: Name = match transfer.output {
        None | Some(0) => format!("{source} {whither}").into(),
        Some(output) => format!("{source} {output} {whither}").into(),
    };
    while !names.insert(name.clone()) {
        name = format!("{name}'").into();
    }
    name
}

/// Returns what an edge takes to which ranks, if it goes from one rank to others.
fn crosses(shape: &Shape, edge: &Edge) -> Option<(NodeId, Option<u32>, Reach)> {
    let from = one(shape, edge.source)?;
    let reach = match one(shape, edge.target) {
        Some(to) if to == from => return None,
        Some(to) => Reach::One(to),
        None => Reach::Others,
    };
    let output = if let EdgeKind::Data { output, .. } = edge.kind { Some(output) } else { None };
    Some((edge.source, output, reach))
}

fn one(shape: &Shape, node: NodeId) -> Option<u32> {
    Ranks::one(shape.nodes()[node.index()].ranks)
}

/// Checks that the nodes with a rank are such that can have one.
///
/// # Errors
/// If there is no such rank, all ranks take part in the node, or it is inside a loop or a branch.
pub(crate) fn check_places(units: &[Unit], size: u32) -> Result<()> {
    for unit in units {
        check_exchangers(unit)?;
        let placed = unit.shape.ids().filter_map(|node| Some((node, one(&unit.shape, node)?)));
        for (node, rank) in placed {
            let fault = |fault: String| Err(Kind::Body { node: unit.full_name(node), fault }.into());
            if rank >= size {
                return fault(format!("is to run on rank {rank}, but {}", there_are(size)));
            }
            if !unit.is_outermost() {
                return fault("is to run on one rank, but is inside a loop or a branch: give that a rank instead".into());
            }
            if unit.is_collective(node) {
                return fault(format!("is to run on rank {rank} only, but all ranks take part in it"));
            }
            if let Some(inside) = unit.inside.get(&node) {
                return fault(format!("is to run on rank {rank} only, but communicates inside ('{inside}')"));
            }
        }
    }
    Ok(())
}

/// Checks that what communicates is one node on the host.
fn check_exchangers(unit: &Unit) -> Result<()> {
    for (node, shape) in unit.communications() {
        let fault = if shape.control.is_some() {
            "is a loop or a branch, and exchanges values: let a node inside of it, or behind it, exchange them"
        } else if shape.devices().len() > 1 {
            "exchanges values on several devices: give it one"
        } else {
            continue;
        };
        return Err(Kind::Body { node: unit.full_name(node), fault: fault.into() }.into());
    }
    Ok(())
}

/// Checks that no loop or branch takes a value of its own rank which other ranks read.
///
/// # Errors
/// Names the node that makes the value.
pub(super) fn check_takes(shape: &Shape) -> Result<()> {
    let taken: HashMap<(NodeId, u32), NodeId> = shape.taken_values().map(|(taker, value)| (value, taker)).collect();
    for edge in shape.edges().iter().filter(|edge| crosses(shape, edge).is_some()) {
        let EdgeKind::Data { output, .. } = edge.kind else { continue };
        let Some(&taker) = taken.get(&(edge.source, output)) else { continue };
        let (from, at) = (one(shape, edge.source), one(shape, taker));
        if at.is_none() || at == from {
            let taker = shape.name_of(taker);
            let fault =
                format!("is read on other ranks, and '{taker}' takes it on its own rank: let '{taker}' read it, and copy it");
            return Err(Kind::Body { node: shape.name_of(edge.source).clone(), fault }.into());
        }
    }
    Ok(())
}
