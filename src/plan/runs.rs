//! What a schedule's programs say, run by run: a node on one of its streams, and what comes directly before
//! it.

use super::{Schedule, Step};
use crate::graph::NodeId;

/// A node on one of its streams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Run {
    pub(crate) node: NodeId,
    pub(crate) stream: u32,
}

/// All runs of a schedule, in issue order.
pub(crate) struct Runs {
    pub(crate) all: Vec<Run>,
    /// For each run the one before it on its stream.
    pub(crate) before: Vec<Option<u32>>,
    /// For each run those that its stream waits for.
    pub(crate) waits: Vec<Vec<u32>>,
}

impl Runs {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let (mut all, mut first) = (Vec::new(), vec![0; schedule.order().len()]);
        for &node in schedule.order() {
            first[node.index()] = all.len();
            all.extend(schedule.streams_of(node).map(|stream| Run { node, stream }));
        }
        let number = |node: NodeId, stream: u32| {
            let further = all[first[node.index()]..].iter().take_while(|run| run.stream != stream);
            (first[node.index()] + further.count()) as u32
        };
        let (mut before, mut waits) = (vec![None; all.len()], vec![Vec::new(); all.len()]);
        // For each stream, the run behind which each of its points is recorded.
        let mut points: Vec<Vec<u32>> = vec![Vec::new(); schedule.streams() as usize];
        for stream in 0..schedule.streams() {
            let mut last = None;
            for step in schedule.steps(stream) {
                match *step {
                    Step::Run(node) => {
                        let run = number(node, stream);
                        before[run as usize] = last.replace(run);
                    }
                    Step::Record(_) => points[stream as usize].extend(last),
                    Step::Wait(_) | Step::Release(_) => {}
                }
            }
        }
        for stream in 0..schedule.streams() {
            let mut gathered = Vec::new();
            for step in schedule.steps(stream) {
                match *step {
                    Step::Wait(point) => gathered.push(points[point.stream as usize][point.seq as usize - 1]),
                    Step::Run(node) => waits[number(node, stream) as usize] = std::mem::take(&mut gathered),
                    Step::Record(_) | Step::Release(_) => {}
                }
            }
        }
        Self { all, before, waits }
    }

    /// Returns what comes directly before a run.
    pub(crate) fn before(&self, run: usize) -> impl Iterator<Item = usize> + '_ {
        self.before[run].iter().chain(&self.waits[run]).map(|&run| run as usize)
    }
}
