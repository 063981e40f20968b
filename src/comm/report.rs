//! What each rank says about a collective when a comparison has found a difference, and what follows from the
//! reports of all ranks: the same on all of them.

use std::sync::Arc;

use super::engine::Checks;
use super::op::{Op, OpFault, Spec, hash_of, text_of};
use crate::error::WorldFault;
use crate::name::Name;
use crate::ranks::Order;

/// The nodes in whose place a rank has none.
const NO_NODE: &str = "no further node";

/// A collective of one rank: an operation, or the first run of a plan.
pub(super) struct Report {
    of: Reported,
    /// A hash of what it does, without its size.
    kind: u64,
    /// The number of bytes and of elements, if all ranks must give equally many.
    size: (u64, u64),
    /// Whether this rank has started it.
    pub(super) is_started: bool,
}

enum Reported {
    Op(Name, Arc<Spec>, Option<usize>),
    Plan(Arc<Order>),
}

/// The report of a rank, as it comes from there.
struct Said {
    text: String,
    kind: u64,
    size: (u64, u64),
    is_started: bool,
    /// The hashes of the nodes of a plan.
    nodes: Vec<u64>,
}

impl Report {
    pub(super) fn of(op: &Op) -> Self {
        let common = op.common_bytes();
        let bytes = common.unwrap_or(0);
        let size = (bytes as u64, (bytes / op.spec.element) as u64);
        Self { of: Reported::Op(op.name.clone(), op.spec.clone(), common), kind: op.kind(), size, is_started: false }
    }

    pub(super) fn of_plan(order: &Arc<Order>) -> Self {
        Self { of: Reported::Plan(order.clone()), kind: hash_of("plan"), size: (0, 0), is_started: false }
    }

    fn plan(&self) -> Option<&Arc<Order>> {
        if let Reported::Plan(order) = &self.of { Some(order) } else { None }
    }

    /// Returns its name, what it does, and its size.
    fn text(&self) -> String {
        match &self.of {
            Reported::Op(name, spec, common) => text_of(name, spec, *common),
            Reported::Plan(order) => {
                let first = order.nodes.first().map_or("no nodes".into(), |(name, _)| format!("the first node '{name}'"));
                format!("the comparison of the graphs before the first run of a plan, with {first}")
            }
        }
    }

    /// Returns a number that is the same on all ranks if they begin the same.
    pub(super) fn hash(&self) -> u64 {
        hash_of((self.kind, self.size, self.plan().map(|order| order.digest())))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let (text, flags) = (self.text(), u64::from(self.is_started));
        let mut words = vec![text.len() as u64, self.kind, self.size.0, self.size.1, flags];
        words.extend(self.plan().into_iter().flat_map(|order| order.nodes.iter().map(|(_, hash)| *hash)));
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        words.chain(text.bytes()).collect()
    }
}

impl Said {
    /// Returns the report of these bytes. None if they are none.
    fn of(bytes: &[u8]) -> Option<Self> {
        let length = u64::from_le_bytes(*bytes.first_chunk()?) as usize;
        let (words, text) = bytes.split_at_checked(bytes.len().checked_sub(length)?)?;
        let mut words = words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).skip(1);
        let (kind, size) = (words.next()?, (words.next()?, words.next()?));
        let is_started = words.next()? != 0;
        Some(Self { text: String::from_utf8_lossy(text).into_owned(), kind, size, is_started, nodes: words.collect() })
    }

    fn differs(&self, other: &Self) -> bool {
        (self.kind, self.size, &self.nodes) != (other.kind, other.size, &other.nodes)
    }
}

/// Asks all ranks for their reports. Returns the error that follows from them, the same on all ranks.
pub(super) async fn judge(number: u64, checks: &dyn Checks, own: Report) -> Result<OpFault, OpFault> {
    let all = checks.gather(own.to_bytes()).await?;
    let all: Option<Vec<Said>> = all.iter().map(|bytes| Said::of(bytes)).collect();
    let all = all.ok_or(WorldFault::Transport { what: "a rank has sent a report that cannot be read".into() })?;
    if let Some(order) = own.plan()
        && all.iter().all(|said| said.kind == own.kind)
    {
        return judge_plans(&all, checks, order).await;
    }
    let first = &all[0];
    let found = (0..).zip(&all).find(|(_, said)| said.differs(first));
    let Some((rank, second)) = found else {
        let what = "a comparison has found a difference that no rank reports".into();
        return Ok(WorldFault::Transport { what }.into());
    };
    if all.iter().all(|said| said.kind == first.kind && !said.is_started) {
        // No rank has started it, so the world stays whole.
        return Ok(super::combine::lengths_differ(first.size.1, rank, second.size.1).into());
    }
    Ok(disagreement(number, (0, first.text.clone()), (rank, second.text.clone())).into())
}

/// Returns the error of two ranks that have begun different collectives.
pub(super) fn disagreement(number: u64, mut first: (u32, String), mut second: (u32, String)) -> WorldFault {
    if first.0 > second.0 {
        std::mem::swap(&mut first, &mut second);
    }
    if first.1 == second.1 {
        second.1 = "the same by its name and types, with another operator".into();
    }
    WorldFault::Disagree { place: format!("collective {number}, counted from 0"), first, second }
}

async fn judge_plans(all: &[Said], checks: &dyn Checks, order: &Order) -> Result<OpFault, OpFault> {
    let (at, rank) = first_difference(all);
    let name = order.nodes.get(at).map_or(NO_NODE.into(), |(name, _)| format!("'{name}'"));
    let names = checks.gather(name.into_bytes()).await?;
    let said = |rank: usize| String::from_utf8_lossy(&names[rank]).into_owned();
    let (first, mut second) = (said(0), said(rank));
    if first == second {
        second = "a node of this name with another type, other edges, or another place".into();
    }
    let place = format!("node {at} of the graph, counted from 0");
    Ok(WorldFault::Disagree { place, first: (0, first), second: (rank as u32, second) }.into())
}

/// Returns the first place where the nodes of a rank differ from those of rank 0, and the rank.
fn first_difference(all: &[Said]) -> (usize, usize) {
    let first = &all[0].nodes;
    let differs = |nodes: &Vec<u64>| (0..).find(|&at| nodes.get(at) != first.get(at) || at >= nodes.len()).unwrap_or(0);
    let found = all.iter().enumerate().skip(1).filter(|(_, said)| said.nodes != *first);
    found.map(|(rank, said)| (differs(&said.nodes), rank)).min().unwrap_or((0, 0))
}
