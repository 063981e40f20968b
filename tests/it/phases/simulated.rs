//! Items over time: none is lost, none overtakes another, and elastic time is never slower than lockstep.

use std::collections::HashMap;

use anabranch::phases::{Beat, ItemSpan, Phasing, Work};

use super::{Items, brute, phases};
use crate::dice::Dice;

const PIPELINES: u64 = 10_000;

/// A random work with random legal phases.
struct Pipeline {
    items: Items,
    phases: Vec<u32>,
    phasing: Phasing,
    count: u64,
}

impl Pipeline {
    fn random(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut items = Items::random(&mut dice, 6, false);
        let nodes = items.nodes.len();
        (0..dice.below(3)).for_each(|_| items.feedback.push((dice.below(nodes), dice.below(nodes), 1)));
        let mut phases = vec![1; nodes];
        for node in 0..nodes {
            let before = items.edges.iter().filter(|edge| edge.1 == node).map(|edge| phases[edge.0]).max().unwrap_or(1);
            phases[node] = before.max(1) + dice.below(3) as u32 / 2 + dice.below(8) as u32 / 7;
            if dice.below(12) == 0 {
                phases[node] = 0;
            }
        }
        items.feedback.retain(|&(source, target, _)| phases[target].max(1) <= phases[source].max(1));
        // An unpipelined node between two phases hides the order of the edges around it.
        if !brute::is_legal(&items, &phases) {
            phases = vec![1; nodes];
        }
        let phasing = items.written(&phases).written().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        Self { phases, phasing, count: 1 + dice.below(8) as u64, items }
    }

    /// The schedule iteration in which a node has an item.
    fn iteration(&self, node: usize, item: u64) -> u64 {
        item + u64::from(self.phases[node].max(1)) - 1
    }

    /// The item of a node in a schedule iteration, if it has one.
    fn item(&self, node: usize, iteration: u64) -> Option<u64> {
        let item = iteration.checked_sub(u64::from(self.phases[node].max(1)) - 1)?;
        (item < self.count).then_some(item)
    }

    /// Checks the properties of every beat, and returns the spans by node and item.
    fn check(&self, beat: Beat, seed: u64) -> HashMap<(usize, u64), ItemSpan> {
        let spans = self.phasing.simulate(self.count, beat).unwrap();
        let of: HashMap<(usize, u64), ItemSpan> = spans.iter().map(|span| ((span.node.index(), span.item), *span)).collect();
        let nodes = self.phases.len();
        assert_eq!((spans.len(), of.len()), (nodes * self.count as usize, spans.len()), "seed {seed}: lost or twice");
        for (&(node, item), span) in &of {
            let context = || format!("seed {seed}, {beat:?}: node {node}, item {item} of {:?} in {:?}", self.items, self.phases);
            assert_eq!(span.end_us - span.start_us, self.items.nodes[node].1 as f64, "{}", context());
            assert_eq!(span.resource.index(), self.items.nodes[node].0, "{}", context());
            let comes_after = |before: (usize, u64)| assert!(of[&before].end_us <= span.start_us, "{before:?} {}", context());
            if item > 0 {
                comes_after((node, item - 1));
            }
            for &(source, target, _) in self.items.edges.iter().filter(|edge| edge.1 == node) {
                let is_by_item = self.phases[source] > 0 && self.phases[target] > 0;
                let by_iteration = || self.item(source, self.iteration(node, item));
                if let Some(read) = if is_by_item { Some(item) } else { by_iteration() } {
                    comes_after((source, read));
                }
            }
            for &(source, target, _) in self.items.feedback.iter().filter(|edge| edge.1 == node) {
                let lag = u64::from(1 + self.phases[source].max(1) - self.phases[target].max(1));
                item.checked_sub(lag).into_iter().for_each(|read| comes_after((source, read)));
            }
        }
        of
    }
}

/// Returns the nodes and items of each lane in their order. Checks that none overlap.
fn lanes(spans: &[ItemSpan], seed: u64) -> HashMap<(usize, u32), Vec<(usize, u64)>> {
    let (mut lanes, mut free): (HashMap<_, Vec<_>>, HashMap<_, f64>) = (HashMap::new(), HashMap::new());
    for span in spans {
        let lane = (span.resource.index(), span.lane);
        let free = free.entry(lane).or_default();
        assert!(*free <= span.start_us, "seed {seed}: two nodes at once on {lane:?}");
        *free = span.end_us;
        lanes.entry(lane).or_default().push((span.node.index(), span.item));
    }
    lanes
}

fn makespan(spans: &HashMap<(usize, u64), ItemSpan>) -> f64 {
    spans.values().map(|span| span.end_us).fold(0.0, f64::max)
}

#[test]
fn elastic_time_is_never_slower_than_lockstep_and_nothing_is_lost() {
    // Seen to fail with elastic time in another order on the lanes, with feedback that does not wait, and
    // with edges between phases that do not wait.
    let (mut faster, mut deep) = (0, 0);
    for seed in 0..PIPELINES {
        let pipeline = Pipeline::random(seed);
        let (lockstep, elastic) = (pipeline.check(Beat::Lockstep, seed), pipeline.check(Beat::Elastic, seed));
        for (key, span) in &elastic {
            assert!(span.end_us <= lockstep[key].end_us, "seed {seed}: {key:?} ends later in {:?}", pipeline.items);
        }
        for item in 0..pipeline.count {
            let end = |spans: &HashMap<(usize, u64), ItemSpan>| {
                (0..pipeline.phases.len()).map(|node| spans[&(node, item)].end_us).fold(0.0, f64::max)
            };
            assert!(end(&elastic) <= end(&lockstep), "seed {seed}: item {item}");
        }
        faster += usize::from(makespan(&elastic) < makespan(&lockstep));
        deep += usize::from(pipeline.phasing.depth() > 2);
    }
    // The test covers enough faster and deep pipelines.
    assert!(faster > 1000 && deep > 1000, "{faster} are faster, {deep} are deep");
}

#[test]
fn elastic_time_keeps_the_order_of_lockstep_on_each_lane() {
    // Seen to fail with elastic time in another order on the lanes.
    for seed in 0..1000 {
        let Pipeline { phasing, count, .. } = Pipeline::random(seed);
        let [lockstep, elastic] = [Beat::Lockstep, Beat::Elastic].map(|beat| phasing.simulate(count, beat).unwrap());
        assert_eq!(lanes(&lockstep, seed), lanes(&elastic, seed), "seed {seed}");
    }
}

#[test]
fn in_lockstep_an_iteration_waits_for_the_one_before_and_full_ones_take_a_period() {
    // Seen to fail without the barrier, and with a latency from the start of the iteration.
    for seed in 0..2000 {
        let pipeline = Pipeline::random(seed);
        let (phasing, depth) = (&pipeline.phasing, u64::from(pipeline.phasing.depth()));
        let spans = phasing.simulate(pipeline.count, Beat::Lockstep).unwrap();
        let iterations = pipeline.count + depth - 1;
        let mut ends = vec![0.0];
        for number in 0..iterations {
            let inside = || spans.iter().filter(|span| pipeline.iteration(span.node.index(), span.item) == number);
            let start = inside().map(|span| span.start_us).fold(f64::INFINITY, f64::min);
            let end = inside().map(|span| span.end_us).fold(ends[number as usize], f64::max);
            assert!(ends[number as usize] <= start, "seed {seed}: iteration {number} begins too early");
            let takes = end - ends[number as usize];
            let is_full = (depth - 1..pipeline.count).contains(&number);
            assert!(takes <= phasing.period_us() && (!is_full || takes == phasing.period_us()), "seed {seed}");
            ends.push(end);
        }
        // An item whose iterations are all full takes exactly the latency.
        for item in (depth - 1..pipeline.count).filter(|item| item + depth <= pipeline.count) {
            let own = || spans.iter().filter(|span| span.item == item);
            let start = own().map(|span| span.start_us).fold(f64::INFINITY, f64::min);
            let end = own().map(|span| span.end_us).fold(0.0, f64::max);
            assert_eq!(
                end - start,
                phasing.latency_us(),
                "seed {seed}: item {item} in {:?}",
                phases(phasing, pipeline.phases.len())
            );
        }
    }
}

#[test]
fn the_periodic_schedule_of_given_phases_is_the_best_one() {
    // Seen to fail with the first schedule of the shortest period.
    for seed in 0..2000 {
        let Pipeline { items, phases, phasing, .. } = Pipeline::random(seed);
        let found = (phasing.period_us() as u64, phasing.latency_us() as u64);
        assert_eq!(Some(found), brute::schedule(&items, &phases, u64::MAX), "seed {seed}: {phases:?} of {items:?}");
        assert!(phasing.is_exact(), "seed {seed}");
    }
}

#[test]
fn no_items_take_no_time_and_too_many_are_an_error() {
    // Seen to fail without the limit of time.
    let mut work = Work::new();
    let resource = work.resource("r", 1);
    work.node("slow", resource, 1e6);
    assert_eq!(work.written().unwrap().simulate(0, Beat::Elastic).unwrap(), []);
    assert_eq!(Work::new().written().unwrap().simulate(u64::MAX, Beat::Elastic).unwrap(), []);
    let message = |items: u64| work.written().unwrap().simulate(items, Beat::Lockstep).unwrap_err().to_string();
    assert_eq!(message(1 << 25), "the number of items times that of nodes is 33554432, the limit is 16777216");
    assert!(message(u64::MAX).starts_with("the number of items times that of nodes is 18446744073709551615"));
    assert_eq!(
        message(10_000_000),
        "the time of all items is 10000000000000 us, the limit is 4611686018427 us: use smaller costs, or fewer nodes, \
         phases or items"
    );
}
