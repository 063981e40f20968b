//! The exact search for the schedule of one iteration: branch and bound over the order in which nodes are
//! placed. Its depth is the number of nodes, which [`EXACT_NODES_MAX`] bounds.
//!
//! All semi-active schedules are reached, because each has an order of starts. A branch is left if it cannot
//! be better than the best schedule so far.

use super::iteration::{Iteration, Lanes, Placed, Timetable, by_lane};

/// Above this number of nodes nothing is searched exactly.
pub(super) const EXACT_NODES_MAX: usize = 24;

/// The steps that searches may still take. Steps and not time, so that the result is always the same.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) steps: u64,
    /// Whether a search ended because no steps were left.
    pub(super) is_exceeded: bool,
}

impl Budget {
    pub(super) fn new(steps: u64) -> Self {
        Self { steps, is_exceeded: false }
    }

    /// Takes a step. Returns false if none is left.
    pub(super) fn step(&mut self) -> bool {
        self.is_exceeded |= self.steps == 0;
        self.steps = self.steps.saturating_sub(1);
        !self.is_exceeded
    }
}

/// What a search makes small.
#[derive(Clone, Copy)]
enum Goal {
    Period,
    /// The latency, among the schedules of this period.
    Latency(u64),
}

struct Search<'s> {
    iteration: &'s Iteration<'s>,
    lanes: &'s Lanes,
    budget: &'s mut Budget,
    goal: Goal,
    /// Only schedules below it count.
    limit: u64,
    /// No schedule is below it.
    floor: u64,
    /// The offsets of the first phase and of the last one.
    ends: (u64, u64),
    best: Option<Vec<Placed>>,
    placed: Vec<Placed>,
    /// By node: a node before it that is the same to every schedule.
    twins: Vec<Option<usize>>,
    /// By node: how many predecessors are not placed; `PLACED` if the node is placed itself.
    missing: Vec<usize>,
    /// By node: when its placed predecessors have ended.
    earliest: Vec<u64>,
    /// By lane: when it is free.
    free: Vec<u64>,
    /// By resource: the costs of the nodes that are not placed.
    remaining: Vec<u64>,
}

const PLACED: usize = usize::MAX;

/// Returns the shortest schedule, if one is shorter than `limit`. `floor` is a known lower bound.
pub(super) fn shortest(
    iteration: &Iteration<'_>,
    lanes: &Lanes,
    (floor, limit): (u64, u64),
    budget: &mut Budget,
) -> Option<Timetable> {
    Search::new(iteration, lanes, Goal::Period, (floor, limit), budget).run()
}

/// Returns the schedule of this period with the smallest latency, if that is below `limit`.
pub(super) fn soonest(
    iteration: &Iteration<'_>,
    lanes: &Lanes,
    period: u64,
    (floor, limit): (u64, u64),
    budget: &mut Budget,
) -> Option<Timetable> {
    Search::new(iteration, lanes, Goal::Latency(period), (floor, limit), budget).run()
}

impl<'s> Search<'s> {
    fn new(
        iteration: &'s Iteration<'s>,
        lanes: &'s Lanes,
        goal: Goal,
        (floor, limit): (u64, u64),
        budget: &'s mut Budget,
    ) -> Self {
        let nodes = iteration.nodes();
        let offsets = || (0..nodes).map(|node| iteration.offset(node));
        Self {
            iteration,
            lanes,
            budget,
            goal,
            limit,
            floor,
            ends: (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0)),
            best: None,
            placed: Vec::with_capacity(nodes),
            twins: (0..nodes).map(|node| (0..node).rev().find(|&twin| iteration.are_twins(twin, node))).collect(),
            missing: (0..nodes).map(|node| iteration.sources(node).len()).collect(),
            earliest: vec![0; nodes],
            free: vec![0; lanes.count()],
            remaining: iteration.checked.loads(),
        }
    }

    fn run(mut self) -> Option<Timetable> {
        if self.floor < self.limit {
            self.branch();
        }
        self.best.map(|placed| self.iteration.timetable(placed))
    }

    fn branch(&mut self) {
        if self.placed.len() == self.iteration.nodes() {
            let found = self.iteration.timetable(self.placed.clone());
            let (is_valid, value) = match self.goal {
                Goal::Period => (true, found.period),
                Goal::Latency(period) => (found.period <= period, found.latency),
            };
            if is_valid && value < self.limit {
                (self.limit, self.best) = (value, Some(found.placed));
            }
            return;
        }
        if !self.budget.step() || !self.is_promising() {
            return;
        }
        for (start, _, node) in self.choices() {
            let undo = self.place(node, start);
            self.branch();
            self.take_back(undo);
            if self.limit <= self.floor || self.budget.is_exceeded {
                return;
            }
        }
    }

    fn now(&self) -> u64 {
        self.placed.last().map_or(0, |placed| placed.start)
    }

    fn is_ready(&self, node: usize) -> bool {
        self.missing[node] == 0
    }

    fn first_free(&self, resource: usize) -> usize {
        let lanes = self.lanes.of(resource);
        lanes.min_by_key(|&lane| self.free[lane]).unwrap_or(0)
    }

    /// Returns when a ready node would start.
    fn start(&self, node: usize) -> u64 {
        let lane = self.first_free(self.iteration.resource(node));
        self.earliest[node].max(self.free[lane])
    }

    /// Returns the nodes that can be next, the most urgent first: start, longest path, node.
    fn choices(&self) -> Vec<(u64, std::cmp::Reverse<u64>, usize)> {
        let ready = (0..self.missing.len()).filter(|&node| self.is_ready(node));
        let ready: Vec<(usize, u64)> = ready.map(|node| (node, self.start(node))).collect();
        let resource = |node| self.iteration.resource(node);
        let is_useful = |&(node, start): &(usize, u64)| {
            // Another ready node of the resource would have ended by then, and would delay nothing. That
            // makes no schedule longer; but an item's first node may have to start late for the smallest
            // latency.
            let is_active = || {
                let ends_by = |&(other, at): &(usize, u64)| {
                    other != node && resource(other) == resource(node) && at + self.iteration.cost(other) <= start && at < start
                };
                !ready.iter().any(ends_by)
            };
            start >= self.now()
                && (matches!(self.goal, Goal::Latency(_)) || is_active())
                && !self.commutes_with_last(node, start)
                && self.twins[node].is_none_or(|twin| self.missing[twin] == PLACED)
        };
        let chosen = ready.iter().filter(|choice| is_useful(choice));
        let mut choices: Vec<_> =
            chosen.map(|&(node, start)| (start, std::cmp::Reverse(self.iteration.tails[node]), node)).collect();
        choices.sort_unstable();
        choices
    }

    /// Returns true if the node and the last one could change places in the order, and the schedule would be
    /// the same: only the order by number is searched.
    fn commutes_with_last(&self, node: usize, start: u64) -> bool {
        self.placed.last().is_some_and(|last| {
            let is_apart = self.iteration.resource(last.node) != self.iteration.resource(node);
            let is_source = || self.iteration.sources(node).any(|source| source == last.node);
            start == last.start && node < last.node && is_apart && !is_source()
        })
    }

    /// Places a node. Returns what undoes it.
    fn place(&mut self, node: usize, start: u64) -> Undo {
        let resource = self.iteration.resource(node);
        let lane = self.first_free(resource);
        let end = start + self.iteration.cost(node);
        let mut earliest = Vec::new();
        self.missing[node] = PLACED;
        self.remaining[resource] -= self.iteration.cost(node);
        let iteration = self.iteration;
        for target in iteration.targets(node) {
            earliest.push(self.earliest[target]);
            self.missing[target] -= 1;
            self.earliest[target] = self.earliest[target].max(end);
        }
        self.placed.push(Placed { node, lane, start, end });
        Undo { node, lane, free: std::mem::replace(&mut self.free[lane], end), earliest }
    }

    fn take_back(&mut self, undo: Undo) {
        let Undo { node, lane, free, earliest } = undo;
        self.placed.pop();
        self.free[lane] = free;
        self.missing[node] = 0;
        self.remaining[self.iteration.resource(node)] += self.iteration.cost(node);
        let iteration = self.iteration;
        // Backwards, because parallel edges have noted a target more than once.
        for (target, earliest) in iteration.targets(node).zip(earliest).collect::<Vec<_>>().into_iter().rev() {
            self.missing[target] += 1;
            self.earliest[target] = earliest;
        }
    }

    /// Returns false if no schedule that begins so is below the limit.
    fn is_promising(&self) -> bool {
        let paths = (0..self.missing.len()).filter(|&node| self.is_ready(node));
        let paths = paths.map(|node| self.start(node).max(self.now()) + self.iteration.tails[node]).max().unwrap_or(0);
        let period = self.loads_floor(&self.remaining).max(paths);
        match self.goal {
            Goal::Period => period < self.limit,
            Goal::Latency(known) => period <= known && self.latency_floor(known) < self.limit,
        }
    }

    /// Returns when the resources have ended these loads, and all that is placed, at the soonest.
    fn loads_floor(&self, loads: &[u64]) -> u64 {
        let now = self.now();
        let ends = loads.iter().enumerate().filter(|(_, remaining)| **remaining > 0).map(|(resource, remaining)| {
            let lanes = self.lanes.of(resource);
            let count = lanes.len() as u64;
            let free: u64 = lanes.map(|lane| self.free[lane].max(now)).sum();
            (free + remaining).div_ceil(count)
        });
        ends.max().unwrap_or(0)
    }

    /// Returns when the resources have ended these loads at the soonest. A lane that is busy for longer than
    /// that takes none of them.
    fn late_floor(&self, loads: &[u64]) -> u64 {
        let now = self.now();
        let ends = loads.iter().enumerate().filter(|(_, load)| **load > 0).map(|(resource, &load)| {
            let mut free: Vec<u64> = self.lanes.of(resource).map(|lane| self.free[lane].max(now)).collect();
            free.sort_unstable();
            let sums = free.iter().scan(load, |sum, free| {
                *sum += free;
                Some(*sum)
            });
            sums.zip(1..).map(|(sum, lanes)| sum.div_ceil(lanes)).min().unwrap_or(0)
        });
        ends.max().unwrap_or(0)
    }

    /// Returns the smallest latency of the schedules that begin so: the nodes that are not placed start as
    /// late as the period allows and end as early as possible.
    fn latency_floor(&self, period: u64) -> u64 {
        let (mut first, mut last) = (u64::MAX, 0);
        for placed in &self.placed {
            let offset = self.iteration.offset(placed.node) * period;
            (first, last) = (first.min(offset + placed.start), last.max(offset + placed.end));
        }
        // By resource, of the nodes of the first phase and of the last one.
        let (mut early, mut late) = (vec![0; self.remaining.len()], vec![0; self.remaining.len()]);
        for node in (0..self.missing.len()).filter(|&node| self.missing[node] != PLACED) {
            let (offset, cost) = (self.iteration.offset(node) * period, self.iteration.cost(node));
            let start = if self.is_ready(node) { self.start(node) } else { self.earliest[node] }.max(self.now());
            let head = self.iteration.heads[node].max(start + cost);
            first = first.min(offset + period.saturating_sub(self.iteration.tails[node]));
            last = last.max(offset + head);
            let (resource, offset) = (self.iteration.resource(node), self.iteration.offset(node));
            early[resource] += if offset == self.ends.0 { cost } else { 0 };
            late[resource] += if offset == self.ends.1 { cost } else { 0 };
        }
        first = first.min((self.ends.0 + 1) * period - by_lane(self.iteration.checked, &early).min(period));
        last = last.max(self.ends.1 * period + self.late_floor(&late));
        last.saturating_sub(first)
    }
}

struct Undo {
    node: usize,
    lane: usize,
    free: u64,
    /// Of the targets.
    earliest: Vec<u64>,
}
