//! Pipelines over items: phases, periods, latencies, and the items over time.

mod brute;
mod known;
mod limits;
mod messages;
mod picture;
mod report;
mod simulated;
mod small;

use anabranch::graph::NodeId;
use anabranch::phases::{Phasing, Work};

use crate::dice::Dice;

/// A work as plain data, for this library and for the literal search.
#[derive(Clone, Debug, Default)]
struct Items {
    capacities: Vec<u32>,
    /// Resource and cost.
    nodes: Vec<(usize, u64)>,
    /// Source, target, bytes.
    edges: Vec<(usize, usize, u64)>,
    feedback: Vec<(usize, usize, u64)>,
    together: Vec<Vec<usize>>,
    /// 0 is unpipelined.
    fixed: Vec<Option<u32>>,
}

impl Items {
    fn new(capacities: &[u32], nodes: &[(usize, u64)], edges: &[(usize, usize, u64)]) -> Self {
        let fixed = vec![None; nodes.len()];
        Self { capacities: capacities.to_vec(), nodes: nodes.to_vec(), edges: edges.to_vec(), fixed, ..Self::default() }
    }

    /// Nodes in a row, each on one of the resources.
    fn chain(resources: &[usize], costs: impl Fn(usize) -> u64) -> Self {
        let nodes: Vec<_> = resources.iter().enumerate().map(|(node, &resource)| (resource, costs(node))).collect();
        let edges: Vec<_> = (1..nodes.len()).map(|node| (node - 1, node, 1)).collect();
        Self::new(&[1; 3], &nodes, &edges)
    }

    /// A random graph, with every feature of a work if `is_rich`.
    fn random(dice: &mut Dice, nodes_max: usize, is_rich: bool) -> Self {
        let nodes = 1 + dice.below(nodes_max);
        let resources = 1 + dice.below(3);
        let capacities: Vec<u32> = (0..resources).map(|_| if dice.below(3) == 0 { 2 } else { 1 }).collect();
        let costs = 1 + dice.below(9);
        let list: Vec<_> = (0..nodes).map(|_| (dice.below(resources), dice.below(costs + 1) as u64)).collect();
        let density = 1 + dice.below(6);
        let mut edges = Vec::new();
        for target in 1..nodes {
            edges.extend((0..target).filter(|_| dice.below(6) < density).map(|source| (source, target, 1)));
        }
        edges.iter_mut().for_each(|edge| edge.2 = dice.below(5) as u64);
        let mut items = Self::new(&capacities, &list, &edges);
        if is_rich {
            items.enrich(dice);
        }
        items
    }

    fn enrich(&mut self, dice: &mut Dice) {
        let nodes = self.nodes.len();
        for _ in 0..dice.below(3) {
            self.feedback.push((dice.below(nodes), dice.below(nodes), dice.below(5) as u64));
        }
        if dice.below(3) == 0 {
            self.together.push((0..2).map(|_| dice.below(nodes)).collect());
        }
        if dice.below(4) == 0 {
            self.fixed[dice.below(nodes)] = Some(dice.below(3) as u32);
        }
    }

    /// The same with its nodes in another order.
    fn shuffled(mut self, dice: &mut Dice) -> Self {
        let mut place: Vec<usize> = (0..self.nodes.len()).collect();
        (1..place.len()).for_each(|node| place.swap(node, dice.below(node + 1)));
        let (nodes, fixed) = (self.nodes.clone(), self.fixed.clone());
        for (from, &to) in place.iter().enumerate() {
            (self.nodes[to], self.fixed[to]) = (nodes[from], fixed[from]);
        }
        for edge in self.edges.iter_mut().chain(&mut self.feedback) {
            (edge.0, edge.1) = (place[edge.0], place[edge.1]);
        }
        self.together.iter_mut().flatten().for_each(|node| *node = place[*node]);
        self
    }

    fn work(&self) -> Work {
        let mut work = Work::new();
        let resources: Vec<_> =
            self.capacities.iter().enumerate().map(|(n, &capacity)| work.resource(format!("r{n}"), capacity)).collect();
        let nodes = self.nodes.iter().enumerate();
        let nodes: Vec<NodeId> = nodes.map(|(n, &(on, cost))| work.node(format!("n{n}"), resources[on], cost as f64)).collect();
        self.edges.iter().for_each(|&(source, target, bytes)| work.edge(nodes[source], nodes[target], bytes));
        self.feedback.iter().for_each(|&(source, target, bytes)| work.feedback(nodes[source], nodes[target], bytes));
        self.together.iter().for_each(|group| work.together(&group.iter().map(|&node| nodes[node]).collect::<Vec<_>>()));
        for (node, phase) in self.fixed.iter().enumerate() {
            match phase {
                None => {}
                Some(0) => work.unpipelined(nodes[node]),
                Some(phase) => work.phase(nodes[node], *phase),
            }
        }
        work
    }

    /// The work with these phases, by node.
    fn written(&self, phases: &[u32]) -> Work {
        let fixed = phases.iter().map(|&phase| Some(phase)).collect();
        Self { fixed, together: Vec::new(), ..self.clone() }.work()
    }
}

/// The nodes of a work, by position.
fn ids(nodes: usize) -> Vec<NodeId> {
    let mut work = Work::new();
    let resource = work.resource("r", 1);
    (0..nodes).map(|node| work.node(format!("n{node}"), resource, 0.0)).collect()
}

fn phases(phasing: &Phasing, nodes: usize) -> Vec<u32> {
    ids(nodes).into_iter().map(|node| phasing.phase_of(node)).collect()
}
