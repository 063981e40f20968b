//! Large and extreme works: a heuristic plans works that are too large for an exact search, always in the
//! same way.

use anabranch::phases::{Beat, Method, Phasing, Work};

use super::{Items, brute, phases};
use crate::dice::Dice;

/// A random graph in which nodes read from a few before them.
fn large(seed: u64, nodes: usize) -> Items {
    let mut dice = Dice::new(seed);
    let list: Vec<_> = (0..nodes).map(|_| (dice.below(3), 1 + dice.below(20) as u64)).collect();
    let mut edges = Vec::new();
    for target in 1..nodes {
        (0..dice.below(3)).for_each(|_| edges.push((target - 1 - dice.below(target.min(8)), target, 1)));
    }
    Items::new(&[1, 2, 1], &list, &edges)
}

/// No period is shorter than the load of a resource.
fn load(items: &Items) -> f64 {
    let load = |resource: usize| items.nodes.iter().filter(|node| node.0 == resource).map(|node| node.1).sum::<u64>();
    (0..3).map(|resource| load(resource) as f64 / f64::from(items.capacities[resource])).fold(0.0, f64::max)
}

fn text(phasing: &Phasing) -> String {
    format!("{phasing} {:?} {}", phasing.iteration(), phasing.to_svg())
}

#[test]
fn a_chain_of_12_in_4_phases_is_planned_exactly() {
    // Seen to fail with a budget of 100 steps.
    for seed in 0..10 {
        let mut dice = Dice::new(seed);
        let resources: Vec<usize> = (0..12).map(|_| dice.below(3)).collect();
        let costs: Vec<u64> = (0..12).map(|_| 1 + dice.below(20) as u64).collect();
        let phasing = Items::chain(&resources, |node| costs[node]).work().auto(4).unwrap();
        assert_eq!((phasing.method(), phasing.is_exact()), (Method::Exact, true), "seed {seed}");
    }
}

#[test]
fn large_works_are_planned_by_a_heuristic_that_says_so() {
    // Seen to fail without the cuts.
    for nodes in [30, 300, 1000] {
        let items = large(nodes as u64, nodes);
        let phasing = items.work().auto(4).unwrap();
        // The bounds may prove that one phase is the best.
        let is_proved = phasing.period_us() == load(&items) && phasing.depth() == 1;
        assert!(matches!(phasing.method(), Method::Heuristic(_)) || is_proved, "{:?}", phasing.method());
        assert!(brute::is_legal(&items, &phases(&phasing, nodes)) && phasing.depth() <= 4);
        assert!(phasing.period_us() >= load(&items) && phasing.period_us() <= 1.2 * load(&items), "{nodes} nodes");
    }
    let mut dice = Dice::new(1);
    let resources: Vec<usize> = (0..400).map(|_| dice.below(3)).collect();
    let chain = Items::chain(&resources, |node| 1 + node as u64 % 7);
    let phasing = chain.work().auto(8).unwrap();
    assert_eq!(phasing.method(), Method::Heuristic("cuts and moves"));
    assert!(phasing.period_us() <= 1.5 * load(&chain), "{} for {}", phasing.period_us(), load(&chain));
    assert!(brute::is_legal(&chain, &phases(&phasing, 400)) && phasing.depth() <= 8);
}

#[test]
fn the_same_work_is_planned_in_the_same_way() {
    for nodes in [8, 60] {
        let items = large(5, nodes);
        let plan = || text(&items.work().auto(3).unwrap());
        assert_eq!(plan(), plan());
    }
}

#[test]
fn fixed_phases_and_groups_hold_for_large_works() {
    // Seen to fail with cuts that do not keep the bounds of units.
    for seed in 0..20 {
        let mut items = large(seed, 60);
        items.fixed[30] = Some(2);
        items.fixed[59] = Some(3);
        items.fixed[10] = Some(0);
        items.together.push(vec![20, 25]);
        items.feedback.push((40, 35, 1));
        let found = phases(&items.work().auto(4).unwrap(), 60);
        assert!(brute::is_legal(&items, &found), "seed {seed}: {found:?}");
        assert_eq!((found[30], found[59], found[10]), (2, 3, 0), "seed {seed}");
    }
}

#[test]
fn a_long_chain_does_not_recurse() {
    // Seen to fail without the cuts, and with feedback that may lead to a later phase.
    let resources: Vec<usize> = (0..20_000).map(|node| node % 2).collect();
    let mut items = Items::chain(&resources, |_| 1);
    items.feedback.push((19_999, 0, 1));
    assert!(items.work().auto(4).unwrap().period_us() < 20_000.0);
    // Feedback to an earlier node keeps all nodes between in one phase.
    items.feedback.push((0, 19_999, 1));
    let phasing = items.work().auto(4).unwrap();
    assert_eq!((phasing.depth(), phasing.period_us()), (1, 20_000.0));
}

#[test]
fn extreme_capacities_and_costs_are_planned() {
    // Seen to fail with bytes that overflow.
    let mut work = Work::new();
    let pool = work.resource("pool", u32::MAX);
    let none = work.resource("nothing to do", 7);
    let nodes: Vec<_> = [1e12, 0.0, 1e-6, 0.0].iter().enumerate().map(|(n, &us)| work.node(format!("n{n}"), pool, us)).collect();
    work.edge(nodes[0], nodes[1], u64::MAX);
    work.edge(nodes[0], nodes[2], u64::MAX);
    let phasing = work.auto(2).unwrap();
    assert_eq!(phasing.period_us(), 1e12);
    assert_eq!(phasing.bytes_in_flight(), u64::MAX);
    assert_eq!(phasing.loads().find(|load| load.resource == none).unwrap().share, 0.0);
    assert_eq!(phasing.simulate(3, Beat::Elastic).unwrap().len(), 12);
    assert!(!text(&phasing).contains("NaN"));
}

#[test]
fn a_work_without_nodes_or_without_costs_takes_no_time() {
    let empty = Work::new().auto(3).unwrap();
    assert_eq!((empty.depth(), empty.period_us(), empty.latency_us()), (1, 0.0, 0.0));
    let free = Items::chain(&[0, 1, 2], |_| 0).work();
    for phasing in [free.auto(2).unwrap(), free.each().unwrap(), empty] {
        assert_eq!((phasing.period_us(), phasing.latency_us()), (0.0, 0.0));
        assert!(phasing.loads().all(|load| load.share == 0.0));
        assert!(!text(&phasing).contains("NaN") && !text(&phasing).contains("inf"));
    }
}
