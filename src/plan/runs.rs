//! The programs of a schedule as a list of runs. A run is a node on one of its streams, with its direct
//! predecessors.

use super::Schedule;
use crate::graph::NodeId;

/// A node on one of its streams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Run {
    pub(crate) node: NodeId,
    pub(crate) stream: u32,
}

/// All runs of a schedule, in issue order.
pub(crate) struct Runs<'a> {
    pub(crate) all: Vec<Run>,
    /// For each run, the run before it on its stream.
    pub(crate) before: Vec<Option<usize>>,
    schedule: &'a Schedule,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(schedule: &'a Schedule) -> Self {
        let streams_of = |&node: &NodeId| schedule.streams_of(node).map(move |stream| Run { node, stream });
        let all: Vec<Run> = schedule.order().iter().flat_map(streams_of).collect();
        let mut last = vec![None; schedule.streams() as usize];
        let before = all.iter().enumerate().map(|(number, run)| last[run.stream as usize].replace(number)).collect();
        Self { all, before, schedule }
    }

    /// Returns the runs that the stream of a run waits for. Runs have the numbers of the nodes' parts.
    pub(crate) fn waits(&self, run: usize) -> impl Iterator<Item = usize> + use<'a> {
        self.schedule.waits.row(run as u32).iter().map(|part| part.index())
    }

    /// Returns the runs directly before a run.
    pub(crate) fn before(&self, run: usize) -> impl Iterator<Item = usize> + use<'a> {
        self.before[run].into_iter().chain(self.waits(run))
    }
}
