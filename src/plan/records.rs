//! The records of programs, numbered program after program.

use super::programs::Programs;
use super::{Point, Step};
use crate::graph::{NodeId, Rows};

/// The nodes of each program's records.
pub(super) struct Records(Rows<NodeId>);

impl Records {
    pub(super) fn new(programs: &Programs<'_>) -> Self {
        let mut records = Rows::with_capacity(programs.count() as usize);
        for program in 0..programs.count() {
            let steps = programs.steps(program).windows(2);
            records.push(steps.filter_map(|pair| match pair {
                [Step::Run(node), Step::Record(_)] => Some(*node),
                _ => None,
            }));
        }
        Self(records)
    }

    pub(super) fn node(&self, record: u32) -> NodeId {
        self.0.items()[record as usize]
    }

    pub(super) fn count(&self) -> usize {
        self.0.items().len()
    }

    pub(super) fn of(&self, point: Point) -> u32 {
        self.0.range(point.stream).start as u32 + point.seq - 1
    }
}
