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
use crate::graph::{Edge, NodeId, Rows};
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
            Executions::new(unit, size, ends.iter())?.order(unit)
        };
        units.iter().map(order).collect::<Result<_>>().map(Self)
    }

    /// Returns the order of each unit on each rank. A unit whose order is that of all ranks has it once.
    pub(super) fn by_rank(&self, ranks: u32) -> Vec<Rows<NodeId>> {
        let of_unit = |starts: &Vec<Start>| {
            let is_common = starts.iter().all(|(_, at)| at.is_none());
            let rows = if is_common { 1 } else { ranks };
            let on = |at: Option<u32>| at.map_or(0..rows, |rank| rank..rank + 1);
            Rows::sorted(rows as usize, starts.iter().flat_map(|&(node, at)| on(at).map(move |rank| (rank, node))))
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
    first: Vec<u32>,
    ranks: Vec<Range<u32>>,
    /// For each execution, those that wait for it.
    behind: Rows<u32>,
    /// The number of those that each waits for.
    open: Vec<u32>,
}

impl Executions {
    fn new<'e>(unit: &Unit, size: u32, ends: impl Iterator<Item = (&'e (u32, u32), &'e Ends)>) -> Result<Self> {
        let meetings = unit.meetings();
        let shapes = unit.shape.nodes();
        let mut is_meeting = vec![false; shapes.len()];
        meetings.iter().for_each(|node| is_meeting[node.index()] = true);
        let ranks: Vec<Range<u32>> = shapes.iter().map(|shape| ranks_of(shape, size)).collect();
        let counts = ranks.iter().zip(&is_meeting).map(|(ranks, is_meeting)| ranks.len() + usize::from(*is_meeting));
        check_count(counts.clone().sum())?;
        let mut first = vec![0];
        counts.for_each(|count| first.push(first[first.len() - 1] + count as u32));
        let (mut all, mut pairs) = (Self { first, ranks, behind: Rows::with_capacity(0), open: Vec::new() }, Vec::new());
        for &Edge { source, target, .. } in unit.shape.edges() {
            let shared = all.ranks[source.index()].start.max(all.ranks[target.index()].start)
                ..all.ranks[source.index()].end.min(all.ranks[target.index()].end);
            for rank in shared {
                let source = if is_meeting[source.index()] { all.end(source) } else { all.at(source, rank) };
                pairs.push((source, all.at(target, rank)));
            }
        }
        for rank in 0..size {
            pairs.extend(meetings.windows(2).map(|pair| (all.at(pair[0], rank), all.at(pair[1], rank))));
            pairs.extend(meetings.iter().map(|&node| (all.at(node, rank), all.end(node))));
        }
        for (&(from, to), Ends { sends, receives }) in ends {
            pairs.extend(sends.iter().zip(receives).map(|(&send, &receive)| (all.at(send, from), all.at(receive, to))));
        }
        check_count(pairs.len())?;
        let count = all.first[shapes.len()] as usize;
        all.open = vec![0; count];
        pairs.iter().for_each(|(_, behind)| all.open[*behind as usize] += 1);
        all.behind = Rows::sorted(count, pairs.iter().copied());
        Ok(all)
    }

    fn at(&self, node: NodeId, rank: u32) -> u32 {
        self.first[node.index()] + rank - self.ranks[node.index()].start
    }

    fn end(&self, meeting: NodeId) -> u32 {
        self.first[meeting.index()] + self.ranks[meeting.index()].len() as u32
    }

    /// Returns the node of each execution.
    fn nodes(&self) -> Vec<u32> {
        let executions = self.first.windows(2).zip(0..);
        executions.flat_map(|(of_node, node)| std::iter::repeat_n(node, (of_node[1] - of_node[0]) as usize)).collect()
    }

    /// Returns the rank of an execution of a node. None for the end of all ranks.
    fn rank(&self, at: u32, node: NodeId) -> Option<u32> {
        let ranks = &self.ranks[node.index()];
        Some(ranks.start + at - self.first[node.index()]).filter(|rank| ranks.contains(rank))
    }

    /// Orders the executions, those of nodes that come first in the graph first. Returns the order of those
    /// that communicate.
    fn order(mut self, unit: &Unit) -> Result<Vec<Start>> {
        let mut place = vec![0; unit.shape.nodes().len()];
        unit.shape.topological_order().iter().zip(0..).for_each(|(node, at)| place[node.index()] = at);
        let nodes = self.nodes();
        let place_of = |at: u32| place[nodes[at as usize] as usize];
        let mut ready = Ready { newest: vec![NONE; place.len()], below: vec![NONE; nodes.len()], first: 0 };
        let free = (0..nodes.len() as u32).filter(|at| self.open[*at as usize] == 0);
        free.rev().for_each(|at| ready.push(place_of(at), at));
        let mut order = Vec::new();
        while let Some(at) = ready.pop() {
            let node = NodeId(nodes[at as usize]);
            let communicates = unit.shape.nodes()[node.index()].communication.is_some();
            let meets = unit.is_collective(node) || unit.inside.contains_key(&node);
            match self.rank(at, node) {
                // What follows a collective waits for all ranks, so its end has its place.
                None => order.push((node, None)),
                Some(rank) => order.extend((communicates && !meets).then_some((node, Some(rank)))),
            }
            for &behind in self.behind.row(at) {
                self.open[behind as usize] -= 1;
                if self.open[behind as usize] == 0 {
                    ready.push(place_of(behind), behind);
                }
            }
        }
        match self.open.iter().position(|open| *open > 0) {
            Some(left) => Err(self.cycle(unit, &nodes, left as u32)),
            None => Ok(order),
        }
    }

    /// Returns the error for a cycle that `left` waits for.
    fn cycle(&self, unit: &Unit, nodes: &[u32], left: u32) -> crate::error::Error {
        // All that is left has something left before it, so the walk comes back to itself.
        let is_left = |at: &u32| self.open[*at as usize] > 0;
        let mut before = vec![NONE; nodes.len()];
        for at in (0..nodes.len() as u32).filter(is_left) {
            for &behind in self.behind.row(at).iter().filter(|behind| is_left(behind)) {
                before[behind as usize] = at.min(before[behind as usize]);
            }
        }
        let (mut at, mut step_of, mut path) = (left, vec![NONE; nodes.len()], Vec::new());
        while step_of[at as usize] == NONE {
            step_of[at as usize] = path.len() as u32;
            path.push(at);
            at = before[at as usize];
        }
        path.drain(..step_of[at as usize] as usize);
        path.reverse();
        path.push(path[0]);
        let name = |at: u32| {
            let node = NodeId(nodes[at as usize]);
            let (name, rank) = (unit.full_name(node), self.rank(at, node));
            rank.map_or_else(|| format!("{name} (all ranks)"), |rank| format!("{name} (rank {rank})"))
        };
        Kind::Cycle { path: path.into_iter().map(|at| name(at).into()).collect() }.into()
    }
}

const NONE: u32 = u32::MAX;

/// Checks that nodes, or edges, of all ranks together have numbers.
fn check_count(got: usize) -> Result<()> {
    let (what, limit) = ("the number of nodes or edges of all ranks together".into(), NONE as usize);
    if got < limit { Ok(()) } else { Err(Kind::Limit { what, got, limit }.into()) }
}

/// Executions that wait for nothing, by the places of their nodes. Those of one place are a stack.
struct Ready {
    /// For each place, the execution on top.
    newest: Vec<u32>,
    /// For each execution, the one below it.
    below: Vec<u32>,
    /// No place before this one has any.
    first: usize,
}

impl Ready {
    fn push(&mut self, place: usize, execution: u32) {
        self.below[execution as usize] = std::mem::replace(&mut self.newest[place], execution);
        self.first = self.first.min(place);
    }

    /// Removes one of the first place that has any.
    fn pop(&mut self) -> Option<u32> {
        while *self.newest.get(self.first)? == NONE {
            self.first += 1;
        }
        let top = self.newest[self.first];
        self.newest[self.first] = self.below[top as usize];
        Some(top)
    }
}
