//! The records of programs, numbered program after program.

use super::programs::Programs;
use super::{Point, Step};
use crate::graph::NodeId;

/// All records.
pub(super) struct Records {
    /// The number of the first record of each program, and of all.
    starts: Vec<u32>,
    /// The node of each record.
    nodes: Vec<NodeId>,
}

impl Records {
    pub(super) fn new(programs: &Programs<'_>) -> Self {
        let (mut starts, mut nodes) = (vec![0], Vec::with_capacity(programs.records()));
        for program in 0..programs.count() {
            let mut last = NodeId(0);
            for step in programs.steps(program) {
                match step {
                    Step::Run(node) => last = *node,
                    Step::Record(_) => nodes.push(last),
                    _ => {}
                }
            }
            starts.push(nodes.len() as u32);
        }
        Self { starts, nodes }
    }

    /// Returns the node of a record.
    pub(super) fn node(&self, record: u32) -> NodeId {
        self.nodes[record as usize]
    }

    pub(super) fn count(&self) -> usize {
        self.starts[self.starts.len() - 1] as usize
    }

    /// Returns the number of a record.
    pub(super) fn of(&self, point: Point) -> u32 {
        self.starts[point.stream as usize] + point.seq - 1
    }

    /// Returns the record that a wait is for.
    pub(super) fn of_wait(&self, step: &Step) -> u32 {
        match step {
            Step::Wait(point) => self.of(*point),
            _ => unreachable!("only the waits before a node are asked"),
        }
    }
}
