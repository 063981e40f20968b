//! List scheduling: whenever a lane is free, the ready node of the highest priority starts on it. Fast, and
//! not always the best (Graham, "Bounds on multiprocessing timing anomalies", 1969). O((n + m) log n).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::iteration::{Iteration, Lanes, Placed, Timetable};

/// A priority; the larger one comes first, of equal ones the lower node.
pub(super) type Priority = (u64, u64);

/// What happens next: at this time, a node ends (false) or its predecessors have ended (true).
type Event = Reverse<(u64, bool, usize)>;

struct Lister<'i> {
    iteration: &'i Iteration<'i>,
    priorities: &'i [Priority],
    /// By node: how many predecessors are not placed.
    missing: Vec<usize>,
    /// By node: when its placed predecessors have ended.
    earliest: Vec<u64>,
    events: BinaryHeap<Event>,
    /// By resource: the nodes that could start now.
    ready: Vec<BinaryHeap<(Priority, Reverse<usize>)>>,
    /// By resource: when each lane is free.
    free: Vec<BinaryHeap<Reverse<(u64, usize)>>>,
    placed: Vec<Placed>,
}

/// Returns the schedule that these priorities give.
pub(super) fn list(iteration: &Iteration<'_>, lanes: &Lanes, priorities: &[Priority]) -> Timetable {
    let (nodes, resources) = (iteration.nodes(), iteration.checked.resources.len());
    let mut lister = Lister {
        iteration,
        priorities,
        missing: (0..nodes).map(|node| iteration.sources(node).len()).collect(),
        earliest: vec![0; nodes],
        events: BinaryHeap::new(),
        ready: vec![BinaryHeap::new(); resources],
        free: (0..resources).map(|resource| lanes.of(resource).map(|lane| Reverse((0, lane))).collect()).collect(),
        placed: Vec::with_capacity(nodes),
    };
    (0..nodes).filter(|&node| lister.missing[node] == 0).for_each(|node| lister.events.push(Reverse((0, true, node))));
    lister.run();
    iteration.timetable(lister.placed)
}

impl Lister<'_> {
    fn run(&mut self) {
        let mut touched = Vec::new();
        while let Some(&Reverse((now, ..))) = self.events.peek() {
            while let Some(Reverse((_, is_ready, node))) = self.event_at(now) {
                let resource = self.iteration.resource(node);
                if is_ready {
                    self.ready[resource].push((self.priorities[node], Reverse(node)));
                }
                touched.push(resource);
            }
            for resource in touched.drain(..) {
                self.start(resource, now);
            }
        }
    }

    /// Takes the next event, if it is at this time.
    fn event_at(&mut self, now: u64) -> Option<Event> {
        if self.events.peek()?.0.0 == now { self.events.pop() } else { None }
    }

    /// Starts nodes while there is a free lane and a ready node.
    fn start(&mut self, resource: usize, now: u64) {
        while self.free[resource].peek().is_some_and(|Reverse((free, _))| *free <= now) {
            let Some((_, Reverse(node))) = self.ready[resource].pop() else { return };
            let Some(Reverse((_, lane))) = self.free[resource].pop() else { return };
            let end = now + self.iteration.cost(node);
            self.free[resource].push(Reverse((end, lane)));
            self.placed.push(Placed { node, lane, start: now, end });
            self.events.push(Reverse((end, false, node)));
            let iteration = self.iteration;
            for target in iteration.targets(node) {
                self.missing[target] -= 1;
                self.earliest[target] = self.earliest[target].max(end);
                if self.missing[target] == 0 {
                    self.events.push(Reverse((self.earliest[target], true, target)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phases::Work;
    use crate::phases::check::check;

    /// `cases/pipelines.json`, "phase-2 passes first": the longest path first gives the other schedule.
    #[test]
    fn late_phases_first_make_a_longer_period_and_a_smaller_latency() {
        let mut work = Work::new();
        let (cpu, gpu) = (work.resource("CPU", 1), work.resource("GPU", 1));
        let nodes = [("n0", cpu), ("n1", gpu), ("n2", gpu), ("n3", cpu)].map(|(name, on)| work.node(name, on, 1.0));
        nodes.windows(2).for_each(|pair| work.edge(pair[0], pair[1], 1));
        let checked = check(&work).expect("it is valid");
        let iteration = Iteration::new(&checked, vec![1, 1, 1, 2]);
        let offset = |node| iteration.offset(node);
        let listed = |priority: &dyn Fn(usize) -> u64| {
            let priorities: Vec<Priority> = (0..4).map(|node| (priority(node), 0)).collect();
            list(&iteration, &Lanes::new(&checked), &priorities)
        };
        let us = |ps: u64| ps / 1_000_000;
        let longest = listed(&|node| iteration.tails[node]);
        assert_eq!((us(longest.period), us(longest.latency)), (3, 5));
        let timetable = listed(&offset);
        assert_eq!((us(timetable.period), us(timetable.latency)), (4, 4));
        // From the start of the schedule iteration.
        let end = timetable.placed.iter().map(|placed| offset(placed.node) * timetable.period + placed.end).max();
        assert_eq!(end.map(us), Some(5));
    }
}
