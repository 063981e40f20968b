//! The rules by brute force: all phases, and for each all orders in which nodes can be placed.

use super::Items;

/// Period, latency, depth, bytes.
pub(super) type Score = (u64, u64, u32, u64);

/// The phases that are best, not considering their bytes.
pub(super) struct Best {
    /// Period, latency, depth.
    rank: (u64, u64, u32),
    phases: Vec<Vec<u32>>,
}

impl Best {
    /// Returns the best score, with the bytes of `items`.
    pub(super) fn score(&self, items: &Items) -> Score {
        let (period, latency, depth) = self.rank;
        let bytes = self.phases.iter().map(|phases| bytes(items, phases)).min();
        (period, latency, depth, bytes.unwrap_or(0))
    }
}

/// The places of all nodes, in one order.
struct Placing<'i> {
    items: &'i Items,
    phases: &'i [u32],
    /// By node: start and end.
    times: Vec<Option<(u64, u64)>>,
    /// By resource and lane: the time when it becomes free.
    free: Vec<Vec<u64>>,
    /// Longer periods are ignored.
    limit: u64,
    best: Option<(u64, u64)>,
}

/// Returns the best of all phases up to `depth` whose period is at most `limit`; none if there are none.
pub(super) fn best(items: &Items, depth: u32, limit: u64) -> Option<Best> {
    let nodes = items.nodes.len();
    let fixed = fixed(items);
    // An unpipelined node has phase 0.
    let lowest = |node: usize| u32::from(fixed[node] != Some(0));
    let mut phases: Vec<u32> = (0..nodes).map(lowest).collect();
    let mut best: Option<Best> = None;
    loop {
        if (0..nodes).all(|node| fixed[node].unwrap_or(phases[node]) == phases[node]) && is_legal(items, &phases) {
            let limit = best.as_ref().map_or(limit, |best| best.rank.0);
            if let Some((period, latency)) = schedule(items, &phases, limit) {
                let rank = (period, latency, phases.iter().copied().max().unwrap_or(0).max(1));
                match &mut best {
                    Some(best) if best.rank < rank => {}
                    Some(best) if best.rank == rank => best.phases.push(phases.clone()),
                    _ => best = Some(Best { rank, phases: vec![phases.clone()] }),
                }
            }
        }
        let Some(next) = (0..nodes).find(|&node| phases[node] < depth) else { return best };
        phases[..next].iter_mut().enumerate().for_each(|(node, phase)| *phase = lowest(node));
        phases[next] += 1;
    }
}

/// Returns the fixed phases, also of nodes that are kept together with a fixed one.
fn fixed(items: &Items) -> Vec<Option<u32>> {
    let mut fixed = items.fixed.clone();
    for group in &items.together {
        let phase = group.iter().find_map(|&node| items.fixed[node]);
        group.iter().for_each(|&node| fixed[node] = fixed[node].or(phase));
    }
    fixed
}

pub(super) fn is_legal(items: &Items, phases: &[u32]) -> bool {
    let edges = items.edges.iter().all(|&(source, target, _)| {
        let (from, to) = (phases[source], phases[target]);
        from == 0 || to == 0 || from <= to
    });
    let feedback = items.feedback.iter().all(|&(source, target, _)| phases[target].max(1) <= phases[source].max(1));
    edges && feedback && items.together.iter().all(|group| group.iter().all(|&node| phases[node] == phases[group[0]]))
}

/// Returns the shortest period of these phases, and the smallest latency of the schedules that have it; none
/// if all periods are longer than `limit`.
pub(super) fn schedule(items: &Items, phases: &[u32], limit: u64) -> Option<(u64, u64)> {
    let free = items.capacities.iter().map(|&lanes| vec![0; lanes as usize]).collect();
    let mut placing = Placing { items, phases, times: vec![None; phases.len()], free, limit, best: None };
    placing.all_orders(0);
    placing.best
}

/// Returns the bytes of all values in flight.
fn bytes(items: &Items, phases: &[u32]) -> u64 {
    let of = |node: usize| {
        let own = items.edges.iter().filter(|edge| edge.0 == node);
        let alive = |target: usize| match (phases[node], phases[target]) {
            (0, _) | (_, 0) => 1,
            (from, to) => u64::from(to - from) + 1,
        };
        let values = own.map(|&(_, target, bytes)| bytes * alive(target)).max().unwrap_or(0);
        let fed = items.feedback.iter().filter(|edge| edge.0 == node);
        let lag = |target: usize| u64::from(1 + phases[node].max(1) - phases[target].max(1));
        values + fed.map(|&(_, target, bytes)| bytes * lag(target)).max().unwrap_or(0)
    };
    (0..phases.len()).map(of).sum()
}

impl Placing<'_> {
    /// Whether an edge orders its nodes within a schedule iteration.
    fn orders(&self, source: usize, target: usize) -> bool {
        let (from, to) = (self.phases[source], self.phases[target]);
        from == to || from == 0 || to == 0
    }

    fn all_orders(&mut self, last: u64) {
        if self.times.iter().all(Option::is_some) {
            let rank = self.rank();
            self.best = Some(self.best.map_or(rank, |best| best.min(rank)));
            self.limit = self.limit.min(rank.0);
        }
        for node in 0..self.phases.len() {
            let Some(start) = self.start(node).filter(|start| *start >= last) else { continue };
            let (resource, cost) = self.items.nodes[node];
            // No order that continues from here has a shorter period.
            if start + cost > self.limit {
                return;
            }
            let lane = (0..self.free[resource].len()).min_by_key(|&lane| self.free[resource][lane]).unwrap();
            let free = std::mem::replace(&mut self.free[resource][lane], start + cost);
            self.times[node] = Some((start, start + cost));
            self.all_orders(start);
            self.times[node] = None;
            self.free[resource][lane] = free;
        }
    }

    /// Returns the earliest start of a node that is not placed, if its predecessors are placed.
    fn start(&self, node: usize) -> Option<u64> {
        if self.times[node].is_some() {
            return None;
        }
        let mut start = *self.free[self.items.nodes[node].0].iter().min().unwrap();
        for &(source, target, _) in &self.items.edges {
            if target == node && self.orders(source, target) {
                start = start.max(self.times[source]?.1);
            }
        }
        Some(start)
    }

    fn rank(&self) -> (u64, u64) {
        let times = || self.times.iter().zip(self.phases).map(|(times, phase)| (times.unwrap(), u64::from(phase.max(&1) - 1)));
        let period = times().map(|((_, end), _)| end).max().unwrap_or(0);
        let first = times().map(|((start, _), offset)| offset * period + start).min().unwrap_or(0);
        let last = times().map(|((_, end), offset)| offset * period + end).max().unwrap_or(0);
        (period, last - first)
    }
}
