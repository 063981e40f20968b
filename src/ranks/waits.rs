//! The proof that ranks do not wait for each other in a cycle. It orders all executions: each node once on
//! each rank. A collective is started on a rank after those before it, and ends when all ranks have started
//! it. A receive ends after the send that belongs to it. If there is such an order, no rank waits for ever.

use std::collections::HashSet;

use super::pairs::{Ends, ends};
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

/// All executions of a graph's nodes, by number: node `n` on rank `r` is n + r × nodes. The end of a
/// collective comes behind those, by its node.
struct Executions {
    nodes: u32,
    size: u32,
    behind: Vec<Vec<u32>>,
    open: Vec<u32>,
}

impl Executions {
    fn new<'e>(unit: &Graph, size: u32, ends: impl Iterator<Item = (&'e (u32, u32), &'e Ends)>) -> Self {
        let nodes = unit.shape().nodes().len() as u32;
        let count = (nodes * (size + 1)) as usize;
        let mut all = Self { nodes, size, behind: vec![Vec::new(); count], open: vec![0; count] };
        let meetings = meetings(unit);
        let mut is_meeting = vec![false; nodes as usize];
        meetings.iter().for_each(|node| is_meeting[node.index()] = true);
        for rank in 0..size {
            for &Edge { source, target, .. } in unit.shape().edges() {
                let source = if is_meeting[source.index()] { all.end(source) } else { all.at(source, rank) };
                all.add(source, all.at(target, rank));
            }
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

    fn at(&self, node: NodeId, rank: u32) -> u32 {
        node.index() as u32 + rank * self.nodes
    }

    fn end(&self, meeting: NodeId) -> u32 {
        self.at(meeting, self.size)
    }

    fn add(&mut self, before: u32, behind: u32) {
        self.behind[before as usize].push(behind);
        self.open[behind as usize] += 1;
    }

    /// Removes what waits for nothing, until all is removed or a cycle is left.
    fn check(mut self, unit: &Graph) -> Result<()> {
        let mut ready: Vec<u32> = (0..).zip(&self.open).filter(|(_, open)| **open == 0).map(|(at, _)| at).collect();
        while let Some(at) = ready.pop() {
            for behind in std::mem::take(&mut self.behind[at as usize]) {
                self.open[behind as usize] -= 1;
                if self.open[behind as usize] == 0 {
                    ready.push(behind);
                }
            }
        }
        match self.open.iter().position(|open| *open > 0) {
            Some(left) => Err(self.cycle(unit, left as u32)),
            None => Ok(()),
        }
    }

    /// Returns the error for a cycle that `left` waits for.
    fn cycle(&self, unit: &Graph, left: u32) -> crate::error::Error {
        let before = |at: u32| (0..).zip(&self.behind).find(|(_, behind)| behind.contains(&at)).map(|(before, _)| before);
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
        let name = |at: u32| {
            let (node, rank) = (NodeId(at % self.nodes), at / self.nodes);
            let name = unit.full_name(node);
            if rank == self.size { format!("{name} (all ranks)") } else { format!("{name} (rank {rank})") }
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
