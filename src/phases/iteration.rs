//! One schedule iteration as a scheduling problem: nodes with costs on lanes, and the edges that order nodes
//! within the iteration. And its solutions, timetables.

use super::check::Checked;
use crate::graph::Rows;

/// The problem. Depends on the phases.
pub(super) struct Iteration<'c> {
    pub(super) checked: &'c Checked,
    /// By node: its phase, 0 if unpipelined.
    pub(super) phases: Vec<u32>,
    /// By node: the nodes that must end before it starts.
    into: Rows<u32>,
    out: Rows<u32>,
    /// By node: the cost of the dearest path that begins with it.
    pub(super) tails: Vec<u64>,
    /// By node: the cost of the dearest path that ends with it.
    pub(super) heads: Vec<u64>,
}

/// A node with its place in an iteration. Times are in picoseconds from the start of the iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub(super) node: usize,
    /// Of all lanes, see [`Lanes`].
    pub(super) lane: usize,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A semi-active schedule of an iteration: all nodes, in the order of their starts.
#[derive(Clone, Debug)]
pub(super) struct Timetable {
    pub(super) placed: Vec<Placed>,
    pub(super) period: u64,
    pub(super) latency: u64,
}

/// The lanes of all resources, numbered through. A resource has no more lanes than nodes.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    /// By resource: its first lane; and the number of all lanes.
    starts: Vec<usize>,
}

impl Lanes {
    pub(super) fn new(checked: &Checked) -> Self {
        let mut nodes = vec![0; checked.resources.len()];
        checked.nodes.iter().for_each(|node| nodes[node.resource] += 1);
        let mut starts = vec![0];
        for ((_, capacity), nodes) in checked.resources.iter().zip(nodes) {
            starts.push(starts[starts.len() - 1] + nodes.min(*capacity as usize));
        }
        Self { starts }
    }

    pub(super) fn of(&self, resource: usize) -> std::ops::Range<usize> {
        self.starts[resource]..self.starts[resource + 1]
    }

    pub(super) fn count(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }
}

impl<'c> Iteration<'c> {
    pub(super) fn new(checked: &'c Checked, phases: Vec<u32>) -> Self {
        let orders = |source: usize, target: usize| {
            let (from, to) = (phases[source], phases[target]);
            from == to || from == 0 || to == 0
        };
        let edges = checked.edges.iter().filter(|edge| !edge.is_feedback && orders(edge.source, edge.target));
        let pairs: Vec<(u32, u32)> = edges.map(|edge| (edge.source as u32, edge.target as u32)).collect();
        let nodes = checked.nodes.len();
        let into = Rows::sorted(nodes, pairs.iter().map(|&(source, target)| (target, source)));
        let out = Rows::sorted(nodes, pairs.iter().copied());
        let (mut tails, mut heads) = (vec![0; nodes], vec![0; nodes]);
        let longest = |row: &[u32], costs: &[u64]| row.iter().map(|&node| costs[node as usize]).max().unwrap_or(0);
        for &node in &checked.order {
            heads[node] = longest(into.row(node as u32), &heads) + checked.nodes[node].cost;
        }
        for &node in checked.order.iter().rev() {
            tails[node] = longest(out.row(node as u32), &tails) + checked.nodes[node].cost;
        }
        Self { checked, phases, into, out, tails, heads }
    }

    pub(super) fn nodes(&self) -> usize {
        self.phases.len()
    }

    pub(super) fn sources(&self, node: usize) -> impl ExactSizeIterator<Item = usize> {
        self.into.row(node as u32).iter().map(|&node| node as usize)
    }

    pub(super) fn targets(&self, node: usize) -> impl ExactSizeIterator<Item = usize> {
        self.out.row(node as u32).iter().map(|&node| node as usize)
    }

    pub(super) fn cost(&self, node: usize) -> u64 {
        self.checked.nodes[node].cost
    }

    pub(super) fn resource(&self, node: usize) -> usize {
        self.checked.nodes[node].resource
    }

    /// Returns how many schedule iterations behind the first phase a node runs.
    pub(super) fn offset(&self, node: usize) -> u64 {
        u64::from(self.phases[node].saturating_sub(1))
    }

    /// Returns a period that no schedule can undercut: the dearest path, or the load of a resource.
    pub(super) fn period_floor(&self) -> u64 {
        let path = self.heads.iter().copied().max().unwrap_or(0);
        path.max(load_floor(self.checked))
    }

    /// Returns a latency that no schedule of this period can undercut.
    pub(super) fn latency_floor(&self, period: u64) -> u64 {
        let offsets = || (0..self.nodes()).map(|node| self.offset(node));
        let (first, last) = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
        if first == last {
            return item_floor(self.checked, &self.phases);
        }
        let of = |offset: u64| (0..self.nodes()).filter(move |&node| self.offset(node) == offset);
        let start = of(first).map(|node| self.tails[node]).max().unwrap_or(0).max(self.load_of(of(first)));
        let end = of(last).map(|node| self.heads[node]).max().unwrap_or(0).max(self.load_of(of(last)));
        // The first phase before the end of its iteration, whole iterations, the last phase in its own.
        (start + (last - first - 1) * period + end).max(item_floor(self.checked, &self.phases))
    }

    /// Returns the time that the busiest resource needs for these nodes.
    fn load_of(&self, nodes: impl Iterator<Item = usize>) -> u64 {
        let mut loads = vec![0; self.checked.resources.len()];
        nodes.for_each(|node| loads[self.resource(node)] += self.cost(node));
        by_lane(self.checked, &loads)
    }

    /// Returns true if two nodes could change places in every schedule.
    pub(super) fn are_twins(&self, one: usize, other: usize) -> bool {
        let row = |rows: &Rows<u32>, node: usize| {
            let mut row = rows.row(node as u32).to_vec();
            row.sort_unstable();
            row
        };
        (self.resource(one), self.cost(one), self.offset(one)) == (self.resource(other), self.cost(other), self.offset(other))
            && [&self.into, &self.out].into_iter().all(|rows| row(rows, one) == row(rows, other))
    }

    /// Returns a period and a latency that no schedule can undercut.
    pub(super) fn floor(&self) -> (u64, u64) {
        let period = self.period_floor();
        (period, self.latency_floor(period))
    }

    /// Returns true if the bounds prove that no schedule is better.
    pub(super) fn is_best(&self, timetable: &Timetable) -> bool {
        (timetable.period, timetable.latency) <= self.floor()
    }

    pub(super) fn timetable(&self, placed: Vec<Placed>) -> Timetable {
        let period = placed.iter().map(|placed| placed.end).max().unwrap_or(0);
        let start = |placed: &Placed| self.offset(placed.node) * period + placed.start;
        let end = |placed: &Placed| self.offset(placed.node) * period + placed.end;
        let (first, last) = (placed.iter().map(start).min().unwrap_or(0), placed.iter().map(end).max().unwrap_or(0));
        Timetable { placed, period, latency: last - first }
    }
}

/// Returns the most that a resource has to do for one item, by lane.
pub(super) fn load_floor(checked: &Checked) -> u64 {
    let dearest = checked.nodes.iter().map(|node| node.cost).max().unwrap_or(0);
    by_lane(checked, &checked.loads()).max(dearest)
}

/// Returns the time that the busiest resource needs for these loads.
pub(super) fn by_lane(checked: &Checked, loads: &[u64]) -> u64 {
    let by_lane = loads.iter().zip(&checked.resources).map(|(load, (_, capacity))| load.div_ceil(u64::from(*capacity)));
    by_lane.max().unwrap_or(0)
}

/// Returns a latency that no phases can undercut: the most that a resource has to do for an item, or the
/// dearest path. Of `phases` it counts only which are 0: those nodes are unpipelined.
pub(super) fn item_floor(checked: &Checked, phases: &[u32]) -> u64 {
    let mut heads = vec![0; phases.len()];
    for &node in &checked.order {
        // An edge of an unpipelined node may join different items.
        let sources = checked.sources[node].iter().filter(|&&source| phases[node] > 0 && phases[source] > 0);
        heads[node] = sources.map(|&source| heads[source]).max().unwrap_or(0) + checked.nodes[node].cost;
    }
    heads.into_iter().max().unwrap_or(0).max(load_floor(checked))
}
