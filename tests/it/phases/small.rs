//! The search for phases against a literal one, on all small works and on many random ones.

use anabranch::phases::{Method, Phasing};

use super::{Items, brute, phases};
use crate::dice::Dice;

/// Checks that `auto` finds the best score.
fn check(items: &Items, depth: u32, seed: impl std::fmt::Display) {
    let expected = brute::best(items, depth);
    let found = items.work().auto(depth);
    let Some(expected) = expected else {
        assert!(found.is_err(), "{seed}: no phases are legal in {items:?}");
        return;
    };
    let found = found.unwrap_or_else(|error| panic!("{seed}: {error} in {items:?}"));
    assert_eq!(found.method(), Method::Exact, "{seed}");
    assert!(found.is_exact(), "{seed}");
    assert_eq!(score(&found), expected, "{seed}: depth {depth}, {items:?}");
    let phases = phases(&found, items.nodes.len());
    assert!(brute::is_legal(items, &phases), "{seed}: {phases:?} in {items:?}");
}

fn score(found: &Phasing) -> brute::Score {
    (found.period_us() as u64, found.latency_us() as u64, found.depth(), found.bytes_in_flight())
}

/// Calls `each` with all lists of resources, up to renaming: the first is 0, and each next at most one more.
fn all_resources(nodes: usize, each: &mut dyn FnMut(&[usize])) {
    for number in 0..3usize.pow(nodes as u32) {
        let list: Vec<usize> = (0..nodes).map(|node| number / 3usize.pow(node as u32) % 3).collect();
        let is_canonical = (0..nodes).all(|node| list[node] <= list[..node].iter().max().map_or(0, |most| most + 1));
        if is_canonical {
            each(&list);
        }
    }
}

#[test]
fn auto_is_the_best_of_all_phases_and_orders_for_all_chains() {
    // Seen to fail with active schedules only, and with a search that ends at the first schedule of the
    // shortest period.
    for nodes in 1..=7 {
        all_resources(nodes, &mut |resources| {
            let costs = [|_| 1, |node| 1 + node as u64 % 3, |node| 9 - node as u64];
            for costs in &costs[..if nodes < 7 { 3 } else { 1 }] {
                check(&Items::chain(resources, costs), 3, "all chains");
            }
        });
    }
}

/// A graph whose edges lead from lower to higher numbers, as a set of bits; and the resource of each node.
type Drawn = (u32, Vec<usize>);

/// Returns the bit of an edge.
fn bit(source: usize, target: usize) -> u32 {
    1 << (target * (target - 1) / 2 + source)
}

fn edges(edges: u32, nodes: usize) -> impl Iterator<Item = (usize, usize)> {
    let pairs = (0..nodes).flat_map(|target| (0..target).map(move |source| (source, target)));
    pairs.filter(move |&(source, target)| edges & bit(source, target) != 0)
}

/// Returns the same graph with two neighbours swapped, between which there is no edge.
fn swapped((drawn, resources): &Drawn, node: usize) -> Drawn {
    let place = |at: usize| if (node..=node + 1).contains(&at) { 2 * node + 1 - at } else { at };
    let drawn = edges(*drawn, resources.len()).map(|(source, target)| bit(place(source), place(target))).sum();
    let mut names = Vec::new();
    let rename = |at: usize| {
        let resource = resources[place(at)];
        names.iter().position(|name| *name == resource).unwrap_or_else(|| {
            names.push(resource);
            names.len() - 1
        })
    };
    (drawn, (0..resources.len()).map(rename).collect())
}

/// Returns whether no edge leads where a longer path leads. Other edges change bytes, but no order.
fn is_reduced(drawn: u32, nodes: usize) -> bool {
    let before = |node: usize, reached: &[u32]| {
        edges(drawn, nodes).filter(|edge| edge.1 == node).fold(0, |sum, (source, _)| sum | reached[source])
    };
    let mut reached: Vec<u32> = Vec::new();
    (0..nodes).for_each(|node| reached.push(before(node, &reached) | 1 << node));
    edges(drawn, nodes).all(|edge| {
        let mut others = edges(drawn, nodes).filter(|&other| other.1 == edge.1 && other.0 != edge.0);
        others.all(|(source, _)| reached[source] & 1 << edge.0 == 0)
    })
}

/// Checks all graphs of so many nodes, on so many resources. Of large ones, most ways to number the nodes of
/// the same graph are left out.
fn check_all_graphs(nodes: usize, resources_max: usize, depth: u32) {
    let (mut graphs, all_edges) = (0_u64, setting("AUTO_REDUCED", 0) == 0);
    for drawn in (0..1 << (nodes * (nodes - 1) / 2)).filter(|&drawn| all_edges || is_reduced(drawn, nodes)) {
        all_resources(nodes, &mut |resources| {
            let graph = (drawn, resources.to_vec());
            let mut free = (1..nodes).filter(|&node| drawn & bit(node - 1, node) == 0);
            if resources.iter().any(|&resource| resource >= resources_max) {
                return;
            }
            if nodes > 5 && free.any(|node| swapped(&graph, node - 1) < graph) {
                return;
            }
            let list: Vec<_> = resources.iter().enumerate().map(|(node, &on)| (on, 1 + (node as u64 * 2) % 3)).collect();
            let edges = edges(drawn, nodes).map(|(source, target)| (source, target, bit(source, target).ilog2().into()));
            check(&Items::new(&[1, 2, 1], &list, &edges.collect::<Vec<_>>()), depth, "all graphs");
            graphs += 1;
        });
    }
    println!("{graphs} graphs of {nodes} nodes on up to {resources_max} resources, with up to {depth} phases");
}

/// Returns a number from the environment, for runs that are longer than the suite may be.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn auto_is_the_best_of_all_phases_and_orders_for_all_small_graphs() {
    // Seen to fail with bounds that ignore the latency, and with bytes that do not count the reach.
    let [nodes, resources] = [("AUTO_NODES", 4), ("AUTO_RESOURCES", 3)].map(|(name, default)| setting(name, default) as usize);
    (1..=nodes).for_each(|nodes| check_all_graphs(nodes, resources, setting("AUTO_PHASES", 3) as u32));
}

#[test]
fn auto_is_the_best_of_all_phases_and_orders_for_random_graphs_of_five_to_seven() {
    // Seen to fail with a search that ends at the first schedule of the shortest period; and seed 526 with a
    // bound that counts a lane that other phases keep busy.
    for seed in (0..setting("AUTO_SEEDS", 80)).chain([526]) {
        let mut dice = Dice::new(seed);
        let mut items = Items::random(&mut dice, 7, false).shuffled(&mut dice);
        if items.nodes.len() < 5 {
            continue;
        }
        items.capacities = vec![1 + dice.below(2) as u32; items.capacities.len()];
        check(&items, 2 + dice.below(2) as u32, format!("seed {seed}"));
    }
}

#[test]
fn auto_is_the_best_of_all_phases_and_orders_for_random_works() {
    // Seen to fail with feedback that may lead to a later phase, without `together`, without fixed phases,
    // and with twins that need not commute.
    for seed in 0..setting("AUTO_SEEDS", 1500) {
        let mut dice = Dice::new(seed);
        let nodes_max = if seed % 8 == 0 { 7 } else { 5 };
        let items = Items::random(&mut dice, nodes_max, seed % 2 == 0).shuffled(&mut dice);
        let depth = if items.nodes.len() > 5 { 2 } else { 1 + dice.below(3) as u32 };
        check(&items, depth, format!("seed {seed}"));
    }
}
