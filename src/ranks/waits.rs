//! The proof that ranks do not wait for each other in a cycle. It orders all executions: each node once on
//! each rank. A collective is started on a rank after those before it, and ends when all ranks have started
//! it. A receive ends after the send that belongs to it. A send ends when it is issued, over all engines: it
//! waits for no receive, whatever its size is. If there is such an order, no rank waits for ever.
//!
//! Streams add waits that no graph shows: a kernel waits for the kernel before it on its stream. So the
//! communication of each rank starts in the common order also on its streams ([`Shape::set_starts`]): what
//! leads to an operation never comes, on a stream, behind what follows a later one. Then a wait between two
//! operations of a rank always goes from the earlier one to the later one, in an order that all ranks have
//! in common, so there is no cycle whatever the policies of the ranks are. In this order, a collective has
//! the place of its end, which all ranks wait for; its starts can all be moved there, because only its end
//! and the starts of later ones wait for them.
//!
//! [`Shape::set_starts`]: crate::graph::Shape::set_starts

use std::collections::HashMap;
use std::ops::Range;

use super::pairs::{Ends, ends, ranks_of};
use super::units::Unit;
use crate::error::{Kind, Result};
use crate::graph::{Edge, NodeId};
use crate::name::Name;

/// The common order of all ranks in which communication may start, for each unit.
pub(crate) struct Starts(Vec<Vec<Start>>);

/// The start of a node that communicates, on a rank. Without a rank, it has this place on all ranks.
type Start = (NodeId, Option<u32>);

impl Starts {
    /// Finds an order.
    ///
    /// # Errors
    /// If ranks wait for each other in a cycle. Names its nodes, with their ranks.
    pub(crate) fn new(units: &[Unit], size: u32) -> Result<Self> {
        let order = |unit: &Unit| {
            let ends = ends(unit, size)?;
            if ends.is_empty() {
                // All ranks have the same order.
                return Ok(unit.meetings().into_iter().map(|node| (node, None)).collect());
            }
            Executions::new(unit, size, ends.iter()).order(unit)
        };
        units.iter().map(order).collect::<Result<_>>().map(Self)
    }

    /// Returns the order of each unit on each rank. A unit whose order is that of all ranks has it once.
    pub(super) fn by_rank(&self, ranks: u32) -> Vec<Vec<Vec<NodeId>>> {
        let of_unit = |starts: &Vec<Start>| {
            let is_common = starts.iter().all(|(_, at)| at.is_none());
            let mut all: Vec<Vec<NodeId>> = vec![Vec::new(); if is_common { 1 } else { ranks as usize }];
            for &(node, at) in starts {
                match at {
                    Some(rank) => all[rank as usize].push(node),
                    None => all.iter_mut().for_each(|starts| starts.push(node)),
                }
            }
            all
        };
        self.0.iter().map(of_unit).collect()
    }

    /// Returns the place of each node of a rank in the order, by its full name.
    pub(crate) fn of(&self, rank: u32, units: &[Unit]) -> HashMap<Name, usize> {
        let own = units.iter().zip(&self.0).flat_map(|(unit, starts)| {
            let own = starts.iter().filter(move |(_, at)| at.is_none_or(|at| at == rank));
            own.map(|(node, _)| unit.full_name(*node))
        });
        own.zip(0..).collect()
    }
}

/// All executions of a graph's nodes, by number. Those of one node are side by side, in the order of its
/// ranks; the end of a collective, or of a loop or branch that communicates, comes behind them.
struct Executions {
    /// The number of each node's first execution, and of all executions.
    first: Vec<usize>,
    ranks: Vec<Range<u32>>,
    behind: Vec<Vec<usize>>,
    open: Vec<u32>,
}

impl Executions {
    fn new<'e>(unit: &Unit, size: u32, ends: impl Iterator<Item = (&'e (u32, u32), &'e Ends)>) -> Self {
        let meetings = unit.meetings();
        let shapes = unit.shape.nodes();
        let mut is_meeting = vec![false; shapes.len()];
        meetings.iter().for_each(|node| is_meeting[node.index()] = true);
        let ranks: Vec<Range<u32>> = shapes.iter().map(|shape| ranks_of(shape, size)).collect();
        let mut first = vec![0];
        for (ranks, is_meeting) in ranks.iter().zip(&is_meeting) {
            first.push(first[first.len() - 1] + ranks.len() + usize::from(*is_meeting));
        }
        let count = first[shapes.len()];
        let mut all = Self { first, ranks, behind: vec![Vec::new(); count], open: vec![0; count] };
        for &Edge { source, target, .. } in unit.shape.edges() {
            let shared = all.ranks[source.index()].start.max(all.ranks[target.index()].start)
                ..all.ranks[source.index()].end.min(all.ranks[target.index()].end);
            for rank in shared {
                let source = if is_meeting[source.index()] { all.end(source) } else { all.at(source, rank) };
                all.add(source, all.at(target, rank));
            }
        }
        for rank in 0..size {
            meetings.windows(2).for_each(|pair| all.add(all.at(pair[0], rank), all.at(pair[1], rank)));
            meetings.iter().for_each(|&node| all.add(all.at(node, rank), all.end(node)));
        }
        for (&(from, to), Ends { sends, receives }) in ends {
            for (&send, &receive) in sends.iter().zip(receives) {
                all.add(all.at(send, from), all.at(receive, to));
            }
        }
        all
    }

    fn at(&self, node: NodeId, rank: u32) -> usize {
        self.first[node.index()] + (rank - self.ranks[node.index()].start) as usize
    }

    fn end(&self, meeting: NodeId) -> usize {
        self.first[meeting.index()] + self.ranks[meeting.index()].len()
    }

    fn add(&mut self, before: usize, behind: usize) {
        self.behind[before].push(behind);
        self.open[behind] += 1;
    }

    /// Returns the node of an execution, and its rank. None for the end of all ranks.
    fn of(&self, at: usize) -> (NodeId, Option<u32>) {
        let node = self.first.partition_point(|first| *first <= at) - 1;
        let rank = self.ranks[node].start + (at - self.first[node]) as u32;
        (NodeId(node as u32), Some(rank).filter(|rank| self.ranks[node].contains(rank)))
    }

    /// Orders the executions, those of nodes that come first in the graph first. Returns the order of those
    /// that communicate.
    fn order(mut self, unit: &Unit) -> Result<Vec<Start>> {
        let mut place = vec![0; unit.shape.nodes().len()];
        unit.shape.topological_order().iter().zip(0..).for_each(|(node, at)| place[node.index()] = at);
        let free: Vec<usize> = (0..).zip(&self.open).filter(|(_, open)| **open == 0).map(|(at, _)| at).collect();
        let mut ready = Ready { at: vec![Vec::new(); place.len()], first: 0 };
        let place_of = |all: &Self, at: usize| place[all.of(at).0.index()];
        free.into_iter().rev().for_each(|at| ready.push(place_of(&self, at), at));
        let mut order = Vec::new();
        while let Some(at) = ready.pop() {
            let (node, rank) = self.of(at);
            let communicates = unit.shape.nodes()[node.index()].communication.is_some();
            let meets = unit.is_collective(node) || unit.inside.contains_key(&node);
            match rank {
                // What follows a collective waits for all ranks, so its end has its place.
                None => order.push((node, None)),
                Some(rank) => order.extend((communicates && !meets).then_some((node, Some(rank)))),
            }
            for behind in std::mem::take(&mut self.behind[at]) {
                self.open[behind] -= 1;
                if self.open[behind] == 0 {
                    ready.push(place_of(&self, behind), behind);
                }
            }
        }
        match self.open.iter().position(|open| *open > 0) {
            Some(left) => Err(self.cycle(unit, left)),
            None => Ok(order),
        }
    }

    /// Returns the error for a cycle that `left` waits for.
    fn cycle(&self, unit: &Unit, left: usize) -> crate::error::Error {
        let before = |at: usize| (0..).zip(&self.behind).find(|(_, behind)| behind.contains(&at)).map(|(before, _)| before);
        let mut path = vec![left];
        // All that is left has something left before it, so the walk comes back to itself.
        while let Some(next) = before(path[path.len() - 1]) {
            if let Some(start) = path.iter().position(|at| *at == next) {
                path.drain(..start);
                break;
            }
            path.push(next);
        }
        path.reverse();
        path.push(path[0]);
        let name = |at: usize| {
            let (node, rank) = self.of(at);
            let name = unit.full_name(node);
            rank.map_or_else(|| format!("{name} (all ranks)"), |rank| format!("{name} (rank {rank})"))
        };
        Kind::Cycle { path: path.into_iter().map(|at| name(at).into()).collect() }.into()
    }
}

/// Executions that wait for nothing, by the places of their nodes.
struct Ready {
    at: Vec<Vec<usize>>,
    /// No place before this one has any.
    first: usize,
}

impl Ready {
    fn push(&mut self, place: usize, execution: usize) {
        self.at[place].push(execution);
        self.first = self.first.min(place);
    }

    /// Removes one of the first place that has any.
    fn pop(&mut self) -> Option<usize> {
        while self.at.get(self.first)?.is_empty() {
            self.first += 1;
        }
        self.at[self.first].pop()
    }
}
