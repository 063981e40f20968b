//! The numbers that hosts give to programs.

use super::Step;
use super::causes::Causes;
use super::programs::Programs;
use super::records::Records;
use crate::graph::NodeId;

/// The programs in the order of their numbers.
pub(super) struct Numbering {
    pub(super) order: Vec<u32>,
    pub(super) roots: u32,
    /// Each phase that has roots, with the number of them, in order of phases.
    pub(super) roots_of: Vec<(u32, u32)>,
    /// For each program after the roots that one record starts, this record.
    pub(super) started_by: Vec<u32>,
}

impl Numbering {
    /// Numbers the roots first. Then come the programs that a single record starts, record after record, so
    /// that one ticket names all of them. Then come the programs behind a gate. Each group is in the order of
    /// the programs' first nodes in the graph: nodes that were added together run at about the same time, and
    /// so are close in memory. In the order of streams, a random graph of 10⁶ nodes took six times as long.
    ///
    /// `phase` returns the phase of a node, in a pipeline. The roots of a phase have consecutive numbers.
    pub(super) fn new(programs: &Programs<'_>, records: &Records, causes: &Causes<'_>, phase: impl Fn(NodeId) -> u32) -> Self {
        let (mut roots, mut started, mut gated) = (Vec::new(), Vec::new(), Vec::new());
        let first = |program: &u32| {
            let steps = programs.steps(*program).iter();
            let node = steps.filter_map(|step| if let Step::Run(node) = step { Some(*node) } else { None }).next();
            (node.map(&phase), node)
        };
        for program in 0..programs.count() {
            match programs.steps(program) {
                // The stream has only additional parts of nodes. The host runs nothing on it.
                [] => {}
                [Step::Wait(_), Step::Wait(_), ..] => gated.push(program),
                [Step::Wait(point), Step::Run(node), ..] => {
                    let record = records.of(*point);
                    started.push((records.node(record), causes.of(record, *node), program));
                }
                [Step::Wait(_), ..] => unreachable!("a node follows its waits"),
                _ => roots.push(program),
            }
        }
        roots.sort_by_cached_key(first);
        gated.sort_by_cached_key(first);
        started.sort_unstable();
        let count = roots.len() as u32;
        let phases = roots.chunk_by(|one, other| first(one).0 == first(other).0);
        let roots_of = phases.map(|roots| (first(&roots[0]).0.unwrap_or(0), roots.len() as u32)).collect();
        let started_by = started.iter().map(|&(_, cause, _)| cause).collect();
        let order = roots.into_iter().chain(started.into_iter().map(|(.., program)| program)).chain(gated).collect();
        Self { order, roots: count, roots_of, started_by }
    }
}
