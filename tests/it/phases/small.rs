//! The search for phases against a literal one, on all small works and on many random ones.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anabranch::phases::{Method, Phasing};

use super::{Items, brute, phases};
use crate::dice::Dice;

/// Checks that `auto` finds the best score.
fn check(items: &Items, depth: u32, seed: impl std::fmt::Display) {
    let found = items.work().auto(depth);
    let best = best(items, depth, found.as_ref().ok());
    match (found, best) {
        (Ok(found), Some(best)) => check_found(items, &found, &best, seed),
        (Ok(found), None) => panic!("{seed}: no phases have the period of {found:?} in {items:?}"),
        (Err(error), best) => assert!(best.is_none(), "{seed}: {error} in {items:?}"),
    }
}

/// Searches by brute force for the best phases whose period is at most that of `found`. Returns none if there
/// are none.
fn best(items: &Items, depth: u32, found: Option<&Phasing>) -> Option<brute::Best> {
    brute::best(items, depth, found.map_or(u64::MAX, |found| found.period_us() as u64))
}

/// Checks that no phases are better than those found.
fn check_found(items: &Items, found: &Phasing, best: &brute::Best, seed: impl std::fmt::Display) {
    assert_eq!(found.method(), Method::Exact, "{seed}");
    assert!(found.is_exact(), "{seed}");
    assert_eq!(score(found), best.score(items), "{seed}: {items:?}");
    let phases = phases(found, items.nodes.len());
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

/// Returns whether this numbering of the nodes is the first of the graph's. All numberings are reached by
/// swaps of neighbours.
fn is_first(graph: &Drawn) -> bool {
    let (mut seen, mut next) = (HashSet::from([graph.clone()]), vec![graph.clone()]);
    while let Some(same) = next.pop() {
        for node in (1..graph.1.len()).filter(|&node| same.0 & bit(node - 1, node) == 0) {
            let swapped = swapped(&same, node - 1);
            if swapped < *graph {
                return false;
            }
            if seen.insert(swapped.clone()) {
                next.push(swapped);
            }
        }
    }
    true
}

/// Returns the possible additional edges between nodes that a path connects. Returns none if an edge of the
/// graph is already such a shortcut.
fn shortcuts(drawn: u32, nodes: usize) -> Option<Vec<u32>> {
    // By node: its ancestors.
    let mut before = vec![0_u32; nodes];
    let mut shortcuts = Vec::new();
    for target in 0..nodes {
        let sources = edges(drawn, nodes).filter(|edge| edge.1 == target);
        let (direct, far) = sources.fold((0, 0), |(direct, far), (source, _)| (direct | 1 << source, far | before[source]));
        if direct & far != 0 {
            return None;
        }
        before[target] = direct | far;
        shortcuts.extend((0..target).filter(|source| far & 1 << source != 0).map(|source| bit(source, target)));
    }
    Some(shortcuts)
}

/// Checks all graphs of `nodes` nodes, on up to `resources_max` resources. Large graphs are checked in only
/// one numbering of their nodes.
fn check_all_graphs(nodes: usize, resources_max: usize, depth: u32) {
    let (end, next) = (1_u32 << (nodes * (nodes - 1) / 2), AtomicU32::new(0));
    let check_some = || {
        let mut graphs = 0;
        while let Some(drawn) = Some(next.fetch_add(1, Relaxed)).filter(|&drawn| drawn < end) {
            graphs += check_graphs(drawn, nodes, resources_max, depth);
            // A long run reports its progress.
            if drawn % (1 << 16) == (1 << 16) - 1 {
                println!("{} of {} sets of edges", drawn + 1, end);
            }
        }
        graphs
    };
    let graphs: u64 = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(check_some)).collect();
        threads.into_iter().map(|thread| thread.join().expect("all graphs")).sum()
    });
    println!("{graphs} graphs of {nodes} nodes on up to {resources_max} resources, with up to {depth} phases");
}

/// Checks a graph on all resources, with all shortcuts. Returns the number of checked graphs. A graph that
/// already has shortcuts counts as 0: it was checked together with the graph without them.
fn check_graphs(drawn: u32, nodes: usize, resources_max: usize, depth: u32) -> u64 {
    let Some(mut shortcuts) = shortcuts(drawn, nodes) else { return 0 };
    if setting("AUTO_REDUCED", 0) == 1 {
        shortcuts.clear();
    }
    let mut graphs = 0;
    all_resources(nodes, &mut |resources| {
        let graph = (drawn, resources.to_vec());
        let is_within = resources.iter().all(|&resource| resource < resources_max);
        if is_within && (nodes <= 5 || is_first(&graph)) {
            check_shortcuts(&graph, &shortcuts, depth);
            graphs += 1 << shortcuts.len();
        }
    });
    graphs
}

/// Checks a graph with all sets of shortcuts. They change the bytes in flight, but no order, so one search by
/// brute force suffices for all.
fn check_shortcuts(graph: &Drawn, shortcuts: &[u32], depth: u32) {
    let auto = |items: &Items| items.work().auto(depth).expect("without feedback, one phase is legal");
    let without = items(graph, 0);
    let best = best(&without, depth, Some(&auto(&without))).expect("phases of the period that was found");
    for set in 0..1_u32 << shortcuts.len() {
        let added = shortcuts.iter().enumerate().filter(|(at, _)| set & 1 << at != 0).map(|(_, bit)| bit).sum();
        let items = items(graph, added);
        check_found(&items, &auto(&items), &best, "all graphs");
    }
}

fn items((drawn, resources): &Drawn, added: u32) -> Items {
    let list: Vec<_> = resources.iter().enumerate().map(|(node, &on)| (on, 1 + (node as u64 * 2) % 3)).collect();
    let edges = edges(drawn | added, resources.len());
    let edges = edges.map(|(source, target)| (source, target, bit(source, target).ilog2().into()));
    Items::new(&[1, 2, 1], &list, &edges.collect::<Vec<_>>())
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
