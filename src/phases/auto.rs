//! The search for phases: a heuristic first, then branch and bound for small works. Its depth is the number
//! of units, which [`EXACT_NODES_MAX`] bounds.

use super::bytes::bytes_in_flight;
use super::check::Checked;
use super::exact::{Budget, EXACT_NODES_MAX, shortest};
use super::iteration::{Iteration, Lanes, Timetable, by_lane, item_floor, load_floor};
use super::solve::{STEPS_MAX, listed, perturbed, solve};
use super::units::Units;

/// The steps that the exact search for phases may take, with those of the schedules that it tries.
const SEARCH_STEPS_MAX: u64 = 1 << 19;
/// The steps that each node costs whenever phases are tried.
const NODE_STEPS: u64 = 4;

/// Phases with their schedule.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) phases: Vec<u32>,
    pub(super) timetable: Timetable,
    pub(super) score: Score,
    /// Whether the period and the latency are proved to be the best of these phases.
    pub(super) is_exact: bool,
}

/// Period, latency, depth, bytes in flight. Smaller is better.
pub(super) type Score = (u64, u64, u32, u64);

/// The work whose phases are searched.
pub(super) struct Problem<'c> {
    pub(super) checked: &'c Checked,
    pub(super) units: &'c Units,
    pub(super) lanes: Lanes,
    pub(super) depth: u32,
}

impl Problem<'_> {
    /// Returns what these phases of units give by list scheduling.
    pub(super) fn listed(&self, phases: &[u32]) -> Found {
        let iteration = Iteration::new(self.checked, self.units.by_node(self.checked, phases));
        let timetable = listed(&iteration, &self.lanes);
        self.found(iteration.phases, timetable, false)
    }

    /// Returns a period that no phases can undercut: that of a phase for each unit. Then the fewest edges
    /// order nodes within an iteration.
    fn floor(&self) -> u64 {
        let nodes = self.checked.nodes.len();
        if nodes > EXACT_NODES_MAX {
            return load_floor(self.checked);
        }
        let phases: Vec<u32> = (1..=self.units.nodes.len() as u32).collect();
        let iteration = Iteration::new(self.checked, self.units.by_node(self.checked, &phases));
        let (floor, listed) = (iteration.period_floor(), listed(&iteration, &self.lanes).period);
        let mut budget = Budget::new(STEPS_MAX);
        let found = shortest(&iteration, &self.lanes, (floor, listed), &mut budget);
        if budget.is_exceeded { floor } else { found.map_or(listed, |found| found.period) }
    }

    fn found(&self, phases: Vec<u32>, timetable: Timetable, is_exact: bool) -> Found {
        let depth = phases.iter().copied().max().unwrap_or(1);
        let score = (timetable.period, timetable.latency, depth, bytes_in_flight(self.checked, &phases));
        Found { phases, timetable, score, is_exact }
    }
}

/// Searches all phases, from these that a heuristic has found. Returns the best ones, and whether they are
/// proved to be.
pub(super) fn search(problem: &Problem<'_>, first: Found) -> (Found, bool) {
    let nodes = problem.checked.nodes.len();
    let (floor, item_floor) = (problem.floor(), item_floor(problem.checked, &first.phases));
    if first.score.0 == floor && first.score.1 == item_floor && first.score.2 <= 1 {
        return (Found { is_exact: true, ..first }, true);
    }
    if nodes > EXACT_NODES_MAX {
        let iteration = Iteration::new(problem.checked, first.phases);
        let timetable = perturbed(&iteration, &problem.lanes, first.timetable);
        let is_exact = iteration.is_best(&timetable);
        return (problem.found(iteration.phases, timetable, is_exact), false);
    }
    let mut search = Search {
        problem,
        floor,
        item_floor,
        phases: vec![0; nodes],
        heads: vec![0; nodes],
        best: first,
        budget: Budget::new(SEARCH_STEPS_MAX),
        is_exact: true,
    };
    // The heuristic's phases first, so that their schedule is exact, too.
    let first = search.best.phases.clone();
    let again = search.best.score;
    search.best.score = (again.0, again.1, again.2, again.3.saturating_add(1));
    search.try_phases(first);
    search.branch(0, 0);
    let is_exact = search.is_exact && !search.budget.is_exceeded;
    (search.best, is_exact)
}

struct Search<'p> {
    problem: &'p Problem<'p>,
    /// No period is shorter.
    floor: u64,
    /// No latency is smaller.
    item_floor: u64,
    /// By node. Those of units that have none yet do not count.
    phases: Vec<u32>,
    /// By node: the cost of the dearest path through its phase that ends with it.
    heads: Vec<u64>,
    best: Found,
    budget: Budget,
    /// Whether each schedule was solved exactly.
    is_exact: bool,
}

impl Search<'_> {
    /// Gives each possible phase to a unit, and so on. `path` is the dearest path through one phase so far.
    fn branch(&mut self, unit: usize, path: u64) {
        let units = self.problem.units;
        if unit == units.nodes.len() {
            self.try_phases(self.phases.clone());
            return;
        }
        let before = units.before[unit].iter().map(|&unit| self.phases[units.nodes[unit][0]]).max().unwrap_or(1);
        let (low, high) = units.bounds[unit];
        for phase in before.max(low)..=high {
            if !self.budget.step() {
                return;
            }
            units.nodes[unit].iter().for_each(|&node| self.phases[node] = phase);
            let path = path.max(self.add_heads(unit));
            if self.is_promising(unit, path) {
                self.branch(unit + 1, path);
            }
        }
    }

    /// Returns the dearest path that ends with a node of the unit.
    fn add_heads(&mut self, unit: usize) -> u64 {
        let checked = self.problem.checked;
        let mut dearest = 0;
        for &node in &self.problem.units.nodes[unit] {
            let is_same = |&&source: &&usize| self.phases[source] == self.phases[node];
            let sources = checked.sources[node].iter().filter(is_same).map(|&source| self.heads[source]);
            self.heads[node] = sources.max().unwrap_or(0) + checked.nodes[node].cost;
            dearest = dearest.max(self.heads[node]);
        }
        dearest
    }

    /// Returns false if no phases that begin so are better than the best ones.
    fn is_promising(&self, unit: usize, path: u64) -> bool {
        let (period, latency, depth, _) = self.best.score;
        let floor = self.floor.max(path);
        if floor != period {
            return floor < period;
        }
        // The period cannot be shorter, so the latency decides, then the depth.
        let checked = self.problem.checked;
        let nodes = || self.problem.units.nodes[..=unit].iter().flatten().copied();
        let phases = || nodes().map(|node| self.phases[node]);
        let (shallowest, deepest) = (phases().min().unwrap_or(1), phases().max().unwrap_or(1));
        let (mut first, mut last) = (u64::MAX, 0);
        let (mut early, mut late) = (vec![0; checked.resources.len()], vec![0; checked.resources.len()]);
        for node in nodes() {
            let (phase, work) = (self.phases[node], &checked.nodes[node]);
            let offset = u64::from(phase - 1) * period;
            first = first.min(offset + period - work.cost);
            last = last.max(offset + self.heads[node]);
            early[work.resource] += if phase == shallowest { work.cost } else { 0 };
            late[work.resource] += if phase == deepest { work.cost } else { 0 };
        }
        first = first.min(u64::from(shallowest) * period - by_lane(checked, &early));
        last = last.max(u64::from(deepest - 1) * period + by_lane(checked, &late));
        (last.saturating_sub(first).max(self.item_floor), deepest) <= (latency, depth)
    }

    fn try_phases(&mut self, phases: Vec<u32>) {
        let depth = phases.iter().copied().max().unwrap_or(1);
        // Without a gap everything is better, or the same.
        if self.problem.units.is_free && (1..=depth).any(|phase| !phases.contains(&phase)) {
            return;
        }
        let bytes = bytes_in_flight(self.problem.checked, &phases);
        let (best_period, best_latency, best_depth, best_bytes) = self.best.score;
        let limit = (best_period, best_latency + u64::from((depth, bytes) < (best_depth, best_bytes)));
        let iteration = Iteration::new(self.problem.checked, phases);
        let mut budget = Budget::new(self.budget.steps.min(STEPS_MAX));
        let given = budget.steps;
        let found = solve(&iteration, &self.problem.lanes, limit, &mut budget);
        self.budget.steps = self.budget.steps.saturating_sub(given - budget.steps + NODE_STEPS * self.phases.len() as u64);
        self.is_exact &= !budget.is_exceeded;
        if let Some(timetable) = found {
            self.best = self.problem.found(iteration.phases, timetable, !budget.is_exceeded);
        }
    }
}
