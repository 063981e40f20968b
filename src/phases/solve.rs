//! The schedule of one iteration: the shortest, and of these the one with the smallest latency. Exact for a
//! few nodes, by list scheduling for many.

use super::exact::{Budget, EXACT_NODES_MAX, shortest, soonest};
use super::iteration::{Iteration, Lanes, Timetable};
use super::list::{Priority, list};

/// Period and latency. Smaller is better.
pub(super) type Rank = (u64, u64);
/// The limit that all schedules are below.
pub(super) const ANY: Rank = (u64::MAX, u64::MAX);

/// The steps that the exact search of one iteration may take.
pub(super) const STEPS_MAX: u64 = 1 << 17;
/// Perturbed priorities are tried until they have placed this many nodes.
const PERTURBED_NODES_MAX: usize = 1 << 16;

impl Timetable {
    pub(super) fn rank(&self) -> Rank {
        (self.period, self.latency)
    }
}

/// Returns the best schedule, if it is better than `limit`. Within the budget it is exact; see
/// [`Budget::is_exceeded`].
pub(super) fn solve(iteration: &Iteration<'_>, lanes: &Lanes, limit: Rank, budget: &mut Budget) -> Option<Timetable> {
    let floor = iteration.period_floor();
    if floor > limit.0 || (floor == limit.0 && iteration.latency_floor(floor) >= limit.1) {
        return None;
    }
    let mut best = listed(iteration, lanes);
    if iteration.nodes() > EXACT_NODES_MAX {
        budget.is_exceeded |= !iteration.is_best(&best);
        return Some(best).filter(|best| best.rank() < limit);
    }
    let below = best.period.min(limit.0.saturating_add(1));
    if let Some(shorter) = shortest(iteration, lanes, (floor, below), budget) {
        best = shorter;
    }
    let period = best.period;
    if period > limit.0 {
        return None;
    }
    let below = if period == limit.0 { best.latency.min(limit.1) } else { best.latency };
    if let Some(sooner) = soonest(iteration, lanes, period, (iteration.latency_floor(period), below), budget) {
        best = sooner;
    }
    Some(best).filter(|best| best.rank() < limit)
}

/// Returns the best schedule of a few rules.
pub(super) fn listed(iteration: &Iteration<'_>, lanes: &Lanes) -> Timetable {
    let mut best = list(iteration, lanes, &priorities(iteration, 0));
    for rule in 1..RULES {
        let other = list(iteration, lanes, &priorities(iteration, rule));
        best = if other.rank() < best.rank() { other } else { best };
    }
    best
}

const RULES: usize = 3;

/// The rules: the longest path first; late phases first, so that items end early; early phases last among
/// paths of equal length.
fn priorities(iteration: &Iteration<'_>, rule: usize) -> Vec<Priority> {
    let nodes = 0..iteration.nodes();
    let of = |node: usize| {
        let (tail, offset) = (iteration.tails[node], iteration.offset(node));
        match rule {
            0 => (tail, u64::MAX - offset),
            1 => (offset, tail),
            _ => (tail, offset),
        }
    };
    nodes.map(of).collect()
}

/// Improves a schedule: exchanges the priorities of two nodes of one resource, and keeps the schedule if it
/// is no worse. The choice of the nodes looks random and is always the same.
pub(super) fn perturbed(iteration: &Iteration<'_>, lanes: &Lanes, best: Timetable) -> Timetable {
    let nodes = iteration.nodes();
    let mut by_resource: Vec<Vec<usize>> = vec![Vec::new(); iteration.checked.resources.len()];
    (0..nodes).for_each(|node| by_resource[iteration.resource(node)].push(node));
    by_resource.retain(|nodes| nodes.len() > 1);
    let floor = iteration.floor();
    // The nodes that start first have the highest priority: that gives about the same schedule again.
    let mut priorities = vec![(0, 0); nodes];
    best.placed.iter().enumerate().for_each(|(place, placed)| priorities[placed.node] = ((nodes - place) as u64, 0));
    let (mut best, mut draw) = (best, Draw(1));
    for _ in 0..PERTURBED_NODES_MAX / nodes.max(1) {
        if by_resource.is_empty() || best.rank() <= floor {
            break;
        }
        let choice = &by_resource[draw.below(by_resource.len())];
        let (one, other) = (choice[draw.below(choice.len())], choice[draw.below(choice.len())]);
        priorities.swap(one, other);
        let tried = list(iteration, lanes, &priorities);
        match tried.rank() <= best.rank() {
            true => best = tried,
            false => priorities.swap(one, other),
        }
    }
    best
}

/// Numbers that look random and are always the same (xorshift, Marsaglia 2003).
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % count
    }
}
