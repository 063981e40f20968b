//! Units: sets of nodes that must share a phase, and the phases that each may have. The rules order the
//! units: a unit is in the same phase as those before it, or in a later one.

use super::check::Checked;
use crate::error::{Kind, Result};
use crate::graph::{Links, NodeId, kahn_order};
use crate::name::Name;

/// The units of all nodes that are pipelined, in an order that keeps the rules.
#[derive(Debug)]
pub(super) struct Units {
    /// By unit: its nodes, in topological order.
    pub(super) nodes: Vec<Vec<usize>>,
    /// By unit: those that cannot be in a later phase.
    pub(super) before: Vec<Vec<usize>>,
    /// By unit: those that cannot be in an earlier phase.
    pub(super) after: Vec<Vec<usize>>,
    /// By unit: its first and its last possible phase.
    pub(super) bounds: Vec<(u32, u32)>,
    /// Whether every node is pipelined, and no phase is fixed.
    pub(super) is_free: bool,
}

impl Units {
    /// Finds the units of a work of which no node has a fixed phase, or whose fixed phases do not count.
    pub(super) fn new(checked: &Checked) -> Self {
        let arcs = arcs(checked);
        let (number, count) = components(checked.nodes.len(), &arcs);
        let is_pipelined = |node: usize| checked.fixed[node] != Some(0);
        let links = |pairs: Vec<(NodeId, NodeId, bool)>| Links::of(count, pairs.into_iter());
        let id = |node: usize| NodeId(number[node] as u32);
        let links = links(arcs.iter().filter(|arc| id(arc.0) != id(arc.1)).map(|arc| (id(arc.0), id(arc.1), true)).collect());
        let mut place = vec![0; count];
        kahn_order(&links).iter().enumerate().for_each(|(at, unit)| place[unit.index()] = at);
        let mut nodes = vec![Vec::new(); count];
        checked.order.iter().for_each(|&node| nodes[place[number[node]]].push(node));
        let mut units = Self {
            nodes,
            before: vec![Vec::new(); count],
            after: vec![Vec::new(); count],
            bounds: Vec::new(),
            is_free: checked.fixed.iter().all(Option::is_none),
        };
        for (source, target) in arcs.iter().map(|arc| (place[number[arc.0]], place[number[arc.1]])) {
            if source != target {
                units.before[target].push(source);
                units.after[source].push(target);
            }
        }
        units.before.iter_mut().chain(&mut units.after).for_each(|row| {
            row.sort_unstable();
            row.dedup();
        });
        // Each unpipelined node is a component of its own, and no unit.
        units.without_unpipelined(is_pipelined)
    }

    fn without_unpipelined(self, is_pipelined: impl Fn(usize) -> bool) -> Self {
        let is_unit: Vec<bool> = self.nodes.iter().map(|nodes| is_pipelined(nodes[0])).collect();
        let mut place = vec![usize::MAX; is_unit.len()];
        (0..is_unit.len()).filter(|&unit| is_unit[unit]).enumerate().for_each(|(at, unit)| place[unit] = at);
        let kept = |rows: Vec<Vec<usize>>| rows.into_iter().zip(&is_unit).filter(|(_, is_unit)| **is_unit).map(|(row, _)| row);
        let moved = |rows| kept(rows).map(|row: Vec<usize>| row.iter().map(|&unit| place[unit]).collect()).collect();
        Self { nodes: kept(self.nodes).collect(), before: moved(self.before), after: moved(self.after), ..self }
    }

    /// Finds the units and the phases that they may have, of at most `depth`.
    pub(super) fn within(checked: &Checked, depth: u32) -> Result<Self> {
        let mut units = Self::new(checked);
        let (lows, highs) = (units.lows(checked), units.highs(checked, depth));
        for (unit, (low, high)) in lows.iter().zip(&highs).enumerate() {
            if low.0 > high.0 {
                let own = units.nodes[unit].iter().copied().find(|&node| low.1 == Some(node));
                let node = checked.name(own.unwrap_or(units.nodes[unit][0]));
                let after = checked.name(low.1.unwrap_or(units.nodes[unit][0]));
                return Err(Kind::NoPhase { node, low: low.0, after, high: high.0, why: high.1.text(checked) }.into());
            }
        }
        units.bounds = lows.iter().zip(&highs).map(|(low, high)| (low.0, high.0)).collect();
        Ok(units)
    }

    /// Returns the first possible phase of each unit, and the node for which it is fixed.
    fn lows(&self, checked: &Checked) -> Vec<(u32, Option<usize>)> {
        let mut lows: Vec<(u32, Option<usize>)> = Vec::with_capacity(self.nodes.len());
        for (nodes, before) in self.nodes.iter().zip(&self.before) {
            let own = nodes.iter().filter_map(|&node| Some((checked.fixed[node]?, Some(node))));
            let before = before.iter().map(|&unit| lows[unit]);
            lows.push(own.chain(before).max_by_key(|low| low.0).unwrap_or((1, None)));
        }
        lows
    }

    /// Returns the last possible phase of each unit, and the reason.
    fn highs(&self, checked: &Checked, depth: u32) -> Vec<(u32, Why)> {
        let mut highs = vec![(depth, Why::Depth); self.nodes.len()];
        let fed = checked.edges.iter().filter(|edge| edge.is_feedback && checked.fixed[edge.source] == Some(0));
        let mut feeder = vec![None; checked.nodes.len()];
        fed.for_each(|edge| feeder[edge.target] = Some(edge.source));
        for unit in (0..self.nodes.len()).rev() {
            let nodes = &self.nodes[unit];
            let fixed = nodes.iter().filter_map(|&node| Some((checked.fixed[node]?, Why::Fixed(node))));
            let fed = nodes.iter().filter_map(|&node| Some((1, Why::Feedback(feeder[node]?))));
            let after = self.after[unit].iter().map(|&unit| highs[unit]);
            let all = fixed.chain(fed).chain(after).chain([highs[unit]]);
            highs[unit] = all.min_by_key(|high| high.0).unwrap_or((depth, Why::Depth));
        }
        highs
    }

    /// Returns the phase of each node, of those of the units. All others are unpipelined.
    pub(super) fn by_node(&self, checked: &Checked, phases: &[u32]) -> Vec<u32> {
        let mut by_node = vec![0; checked.nodes.len()];
        for (nodes, &phase) in self.nodes.iter().zip(phases) {
            nodes.iter().for_each(|&node| by_node[node] = phase);
        }
        by_node
    }

    /// Returns phases that keep the rules and are near to those that are wanted.
    pub(super) fn legal(&self, wanted: impl Fn(usize) -> u32) -> Vec<u32> {
        let mut phases: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for (unit, &(low, high)) in self.bounds.iter().enumerate() {
            let before = self.before[unit].iter().map(|&unit| phases[unit]).max().unwrap_or(1);
            phases.push(wanted(unit).max(before).clamp(low, high));
        }
        if self.is_free {
            close_gaps(&mut phases);
        }
        phases
    }
}

/// Renumbers phases, so that none is empty.
fn close_gaps(phases: &mut [u32]) {
    let mut number = vec![0; phases.iter().max().map_or(0, |&deepest| deepest as usize + 1)];
    phases.iter().for_each(|&phase| number[phase as usize] = 1);
    for phase in 1..number.len() {
        number[phase] += number[phase - 1];
    }
    phases.iter_mut().for_each(|phase| *phase = number[*phase as usize]);
}

/// Why a unit cannot be in a later phase.
#[derive(Clone, Copy, Debug)]
enum Why {
    Depth,
    Fixed(usize),
    /// An unpipelined node gives it feedback.
    Feedback(usize),
}

impl Why {
    fn text(self, checked: &Checked) -> String {
        let name = |node: usize| -> Name { checked.name(node) };
        match self {
            Why::Depth => "the depth".into(),
            Why::Fixed(node) => format!("which is fixed for '{}'", name(node)),
            Why::Feedback(node) => format!("because '{}', which is unpipelined, gives it feedback", name(node)),
        }
    }
}

/// Returns pairs of pipelined nodes of which the second cannot be in an earlier phase.
fn arcs(checked: &Checked) -> Vec<(usize, usize)> {
    let is_pipelined = |node: usize| checked.fixed[node] != Some(0);
    let edges = checked.edges.iter().map(|edge| match edge.is_feedback {
        false => (edge.source, edge.target),
        true => (edge.target, edge.source),
    });
    let pairs = checked.together.iter().flat_map(|group| group.windows(2));
    let pairs = pairs.flat_map(|pair| [(pair[0], pair[1]), (pair[1], pair[0])]);
    edges.chain(pairs).filter(|&(one, other)| is_pipelined(one) && is_pipelined(other)).collect()
}

/// Returns the strongly connected component of each node, and their number. They are numbered by their lowest
/// nodes. Kosaraju's algorithm without recursion.
fn components(nodes: usize, arcs: &[(usize, usize)]) -> (Vec<usize>, usize) {
    let (mut out, mut into) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
    for &(source, target) in arcs {
        out[source].push(target);
        into[target].push(source);
    }
    let (mut is_seen, mut ended) = (vec![false; nodes], Vec::with_capacity(nodes));
    for root in 0..nodes {
        let mut open = vec![(root, 0)];
        while let Some((node, next)) = open.pop() {
            if next == 0 && std::mem::replace(&mut is_seen[node], true) {
                continue;
            }
            match out[node].get(next) {
                Some(&target) => open.extend([(node, next + 1), (target, 0)]),
                None => ended.push(node),
            }
        }
    }
    let mut root_of = vec![usize::MAX; nodes];
    for &root in ended.iter().rev() {
        let mut open = vec![root];
        while let Some(node) = open.pop() {
            if root_of[node] == usize::MAX {
                root_of[node] = root;
                open.extend(&into[node]);
            }
        }
    }
    let (mut number_of, mut count) = (vec![usize::MAX; nodes], 0);
    for root in &mut root_of {
        if number_of[*root] == usize::MAX {
            number_of[*root] = count;
            count += 1;
        }
        *root = number_of[*root];
    }
    (root_of, count)
}
