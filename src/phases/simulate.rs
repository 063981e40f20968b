//! What the items do over time, by the costs: in lockstep, or as soon as possible in the same order.

use super::SPANS_MAX;
use super::check::check_time;
use super::phasing::{Phasing, us};
use super::work::Resource;
use crate::error::{Kind, Result};
use crate::graph::NodeId;

/// When a node runs for one item, in microseconds from the start of the first one.
///
/// ```
/// use anabranch::phases::{Beat, Work};
///
/// # let mut work = Work::new();
/// # let (gpu, cpu) = (work.resource("GPU", 1), work.resource("CPU", 1));
/// # let (detect, track) = (work.node("detect", gpu, 3.0), work.node("track", cpu, 1.0));
/// # work.edge(detect, track, 4096);
/// let spans = work.auto(2)?.simulate(2, Beat::Elastic)?;
/// let tracked = spans.iter().filter(|span| span.node == track);
/// let ends: Vec<(u64, f64)> = tracked.map(|span| (span.item, span.end_us)).collect();
/// assert_eq!(ends, [(0, 4.0), (1, 7.0)]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct ItemSpan {
    /// The node.
    pub node: NodeId,
    /// The item, from 0.
    pub item: u64,
    /// The resource of the node.
    pub resource: Resource,
    /// The lane of the resource, from 0.
    pub lane: u32,
    /// When it begins.
    pub start_us: f64,
    /// When it has ended.
    pub end_us: f64,
}

/// When a schedule iteration may begin.
///
/// ```
/// use anabranch::phases::{Beat, ItemSpan, Work};
///
/// # let mut work = Work::new();
/// # let nodes = [("read", 3.0), ("detect", 1.0), ("draw", 3.0)].map(|(name, cost_us)| {
/// #     let engine = work.resource(format!("the engine of {name}"), 1);
/// #     work.node(name, engine, cost_us)
/// # });
/// # nodes.windows(2).for_each(|pair| work.edge(pair[0], pair[1], 4096));
/// let phasing = work.each()?;
/// let end = |spans: Vec<ItemSpan>| spans.iter().map(|span| span.end_us).fold(0.0, f64::max);
/// assert_eq!(end(phasing.simulate(2, Beat::Lockstep)?), 12.0);
/// assert_eq!(end(phasing.simulate(2, Beat::Elastic)?), 10.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Beat {
    /// When the schedule iteration before it has ended.
    Lockstep,
    /// Each of its nodes when its inputs are there. [`Phasing::simulate`] keeps the order that lockstep has
    /// on each lane, and then it is never slower.
    #[default]
    Elastic,
}

impl Phasing {
    /// Returns when each node runs for each of `items` items, by the costs. K items take K + D - 1 schedule
    /// iterations, where D is the depth. The spans come in the order of the schedule iterations, and in each
    /// in the order of [`Phasing::iteration`].
    ///
    /// In lockstep a schedule iteration begins when the one before it has ended. In elastic time a node
    /// begins when its inputs of that item are there, and when the node before it on its lane has ended. The
    /// order of the nodes on each lane is that of lockstep. So a node sees the items in order, and ends for
    /// each of them no later than in lockstep.
    ///
    /// # Errors
    ///
    /// Fails if that were more than 2^24 spans, or more than 53 days.
    pub fn simulate(&self, items: u64, beat: Beat) -> Result<Vec<ItemSpan>> {
        let nodes = self.phases.len();
        let spans = items.saturating_mul(nodes as u64);
        if spans > SPANS_MAX as u64 {
            let got = usize::try_from(spans).unwrap_or(usize::MAX);
            return Err(Kind::Limit { what: "the number of items times that of nodes".into(), got, limit: SPANS_MAX }.into());
        }
        if spans == 0 {
            return Ok(Vec::new());
        }
        let iterations = items + u64::from(self.depth()) - 1;
        check_time("the time of all items", self.period_us() * iterations as f64)?;
        let mut simulation = Simulation::new(self, items, beat);
        (0..iterations).for_each(|number| simulation.iterate(number));
        Ok(simulation.spans)
    }
}

struct Simulation<'p> {
    phasing: &'p Phasing,
    items: u64,
    beat: Beat,
    /// By node: what it waits for, see [`Wait`].
    waits: Vec<Vec<Wait>>,
    /// By node, of its last items: when they ended.
    ends: Vec<u64>,
    /// How many items that are.
    kept: u64,
    /// By lane: when it is free.
    free: Vec<u64>,
    /// When all iterations so far have ended.
    ended: u64,
    spans: Vec<ItemSpan>,
}

/// A node waits for another one in its own schedule iteration, or some iterations before it.
#[derive(Clone, Copy)]
struct Wait {
    source: usize,
    iterations: u64,
}

impl<'p> Simulation<'p> {
    fn new(phasing: &'p Phasing, items: u64, beat: Beat) -> Self {
        let nodes = phasing.phases.len();
        let mut waits = vec![Vec::new(); nodes];
        for edge in &phasing.checked.edges {
            let (from, to) = (phasing.phases[edge.source], phasing.phases[edge.target]);
            let iterations = match edge.is_feedback {
                // The item is `1 + from - to` before, so that is always the schedule iteration before.
                true => 1,
                false if from == 0 || to == 0 => 0,
                false => u64::from(to - from),
            };
            waits[edge.target].push(Wait { source: edge.source, iterations });
        }
        let kept = items.min(u64::from(phasing.depth()) + 1);
        Self {
            phasing,
            items,
            beat,
            waits,
            ends: vec![0; nodes * kept as usize],
            kept,
            free: vec![0; phasing.lanes.count()],
            ended: 0,
            spans: Vec::with_capacity(nodes * items as usize),
        }
    }

    fn offset(&self, node: usize) -> u64 {
        u64::from(self.phasing.phases[node].saturating_sub(1))
    }

    /// Returns the item of a node in a schedule iteration.
    fn item(&self, node: usize, iteration: u64) -> Option<u64> {
        iteration.checked_sub(self.offset(node)).filter(|&item| item < self.items)
    }

    fn end_place(&self, node: usize, item: u64) -> usize {
        node * self.kept as usize + (item % self.kept) as usize
    }

    fn iterate(&mut self, iteration: u64) {
        let begin = match self.beat {
            Beat::Lockstep => self.ended,
            Beat::Elastic => 0,
        };
        let phasing = self.phasing;
        for (placed, span) in phasing.timetable.placed.iter().zip(phasing.iteration()) {
            let Some(item) = self.item(placed.node, iteration) else { continue };
            let start = begin.max(self.free[placed.lane]).max(self.inputs(placed.node, iteration));
            let end = start + (placed.end - placed.start);
            self.free[placed.lane] = end;
            self.ended = self.ended.max(end);
            let place = self.end_place(placed.node, item);
            self.ends[place] = end;
            let (node, resource) = (NodeId(placed.node as u32), Resource(span.resource.0));
            self.spans.push(ItemSpan { node, item, resource, lane: span.lane, start_us: us(start), end_us: us(end) });
        }
    }

    /// Returns when all that a node reads has ended. That it has ended for the item before needs no check:
    /// each node has one lane, and a lane keeps the order of the items.
    fn inputs(&self, node: usize, iteration: u64) -> u64 {
        let end = |wait: &Wait| {
            let item = self.item(wait.source, iteration.checked_sub(wait.iterations)?)?;
            Some(self.ends[self.end_place(wait.source, item)])
        };
        self.waits[node].iter().filter_map(end).max().unwrap_or(0)
    }
}
