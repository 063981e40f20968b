//! The proof that ranks do not wait for each other in a cycle. It orders all executions: each node once on
//! each rank. A collective is started on a rank after those before it, and ends when all ranks have started
//! it. A receive ends after the send that belongs to it. A send ends when it is issued, over all engines: it
//! waits for no receive, whatever its size is. If there is such an order, no rank waits for ever.

use std::collections::HashSet;
use std::ops::Range;

use super::pairs::{Ends, ends, ranks_of};
use super::units::{communication_in, units};
use crate::error::{Kind, Result};
use crate::graph::{Edge, Graph, NodeId};

/// Checks that no ranks wait for each other in a cycle.
///
/// # Errors
/// Names the nodes of a cycle, with their ranks.
pub(crate) fn check_waits(graph: &Graph, size: u32) -> Result<()> {
    for unit in units(graph) {
        let ends = ends(unit, size)?;
        // Without messages, all ranks have the same order, which is one for all.
        if !ends.is_empty() {
            Executions::new(unit, size, ends.iter()).check(unit)?;
        }
    }
    Ok(())
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
    fn new<'e>(unit: &Graph, size: u32, ends: impl Iterator<Item = (&'e (u32, u32), &'e Ends)>) -> Self {
        let meetings = meetings(unit);
        let shapes = unit.shape().nodes();
        let mut is_meeting = vec![false; shapes.len()];
        meetings.iter().for_each(|node| is_meeting[node.index()] = true);
        let ranks: Vec<Range<u32>> = shapes.iter().map(|shape| ranks_of(shape, size)).collect();
        let mut first = vec![0];
        for (ranks, is_meeting) in ranks.iter().zip(&is_meeting) {
            first.push(first[first.len() - 1] + ranks.len() + usize::from(*is_meeting));
        }
        let count = first[shapes.len()];
        let mut all = Self { first, ranks, behind: vec![Vec::new(); count], open: vec![0; count] };
        for &Edge { source, target, .. } in unit.shape().edges() {
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

    /// Removes what waits for nothing, until all is removed or a cycle is left.
    fn check(mut self, unit: &Graph) -> Result<()> {
        let mut ready: Vec<usize> = (0..).zip(&self.open).filter(|(_, open)| **open == 0).map(|(at, _)| at).collect();
        while let Some(at) = ready.pop() {
            for behind in std::mem::take(&mut self.behind[at]) {
                self.open[behind] -= 1;
                if self.open[behind] == 0 {
                    ready.push(behind);
                }
            }
        }
        match self.open.iter().position(|open| *open > 0) {
            Some(left) => Err(self.cycle(unit, left)),
            None => Ok(()),
        }
    }

    /// Returns the error for a cycle that `left` waits for.
    fn cycle(&self, unit: &Graph, left: usize) -> crate::error::Error {
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

/// Returns the nodes that all ranks meet in: collectives, and loops and branches with communication inside.
fn meetings(unit: &Graph) -> Vec<NodeId> {
    let controls = unit.controls.iter().filter(|control| communication_in(unit, control).is_some());
    let controls: HashSet<NodeId> = controls.map(|control| control.node).collect();
    let is_collective = |node: NodeId| {
        let communication = &unit.shape().nodes()[node.index()].communication;
        communication.as_ref().is_some_and(|communication| communication.is_collective())
    };
    let order = unit.shape().topological_order().into_iter();
    order.filter(|&node| is_collective(node) || controls.contains(&node)).collect()
}
