//! The checks that every work must pass before it is planned, and what remains of it: whole numbers and valid
//! positions.

use std::collections::HashSet;
use std::sync::Arc;

use super::work::{Fixed, Resource, Work};
use super::{NODES_MAX, PHASE_MAX};
use crate::error::{Kind, Result};
use crate::graph::{COST_US_MAX, Links, NodeId, check_name, cycle_of, kahn_order};
use crate::name::Name;

/// Picoseconds in a microsecond. Times are whole picoseconds, so that comparisons are exact.
pub(super) const PS: f64 = 1e6;
/// The longest time that is planned, in picoseconds: 106 days.
pub(super) const TIME_MAX: u64 = 1 << 63;

/// A work that passed the checks.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) nodes: Vec<Node>,
    /// Names and capacities.
    pub(super) resources: Vec<(Name, u32)>,
    pub(super) edges: Vec<Link>,
    /// By node: its phase if it is fixed, itself or through `together`; 0 if it is unpipelined.
    pub(super) fixed: Vec<Option<u32>>,
    /// Sets of nodes that share a phase.
    pub(super) together: Vec<Vec<usize>>,
    /// By node: the sources of its edges. Feedback does not count.
    pub(super) sources: Vec<Vec<usize>>,
    /// All nodes, each behind the sources of its edges. Feedback does not count.
    pub(super) order: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: Name,
    pub(super) resource: usize,
    /// In picoseconds.
    pub(super) cost: u64,
}

/// An edge, by positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) source: usize,
    pub(super) target: usize,
    pub(super) bytes: u64,
    pub(super) is_feedback: bool,
}

impl Checked {
    /// Returns the cost of all nodes of each resource.
    pub(super) fn loads(&self) -> Vec<u64> {
        let mut loads = vec![0; self.resources.len()];
        self.nodes.iter().for_each(|node| loads[node.resource] += node.cost);
        loads
    }

    pub(super) fn name(&self, node: usize) -> Name {
        self.nodes[node].name.clone()
    }
}

/// Checks everything but the phases of the ends of edges.
pub(super) fn check(work: &Work) -> Result<Arc<Checked>> {
    let limit = |what: &str, got: usize, limit: usize| Err(Kind::Limit { what: what.into(), got, limit }.into());
    if work.nodes.len() > NODES_MAX {
        return limit("the number of nodes", work.nodes.len(), NODES_MAX);
    }
    check_names(work)?;
    let nodes = nodes(work)?;
    let edges = edges(work)?;
    let (fixed, together) = fixed(work)?;
    let order = order(work, &edges)?;
    let mut sources = vec![Vec::new(); nodes.len()];
    edges.iter().filter(|edge| !edge.is_feedback).for_each(|edge| sources[edge.target].push(edge.source));
    Ok(Arc::new(Checked { nodes, resources: work.resources.clone(), edges, fixed, together, sources, order }))
}

fn check_names(work: &Work) -> Result<()> {
    let mut seen: HashSet<&str> = HashSet::new();
    for (name, capacity) in &work.resources {
        check_name(name)?;
        if !seen.insert(name) {
            return Err(Kind::DuplicateResource { name: name.clone() }.into());
        }
        if *capacity == 0 {
            return Err(Kind::NoCapacity { resource: name.clone() }.into());
        }
    }
    seen.clear();
    for (node, number) in work.nodes.iter().zip(0..) {
        check_name(&node.name)?;
        if node.name.is_empty() {
            return Err(Kind::NoName { number }.into());
        }
        if !seen.insert(&node.name) {
            return Err(Kind::DuplicateName { name: node.name.clone() }.into());
        }
    }
    Ok(())
}

fn nodes(work: &Work) -> Result<Vec<Node>> {
    let mut sum_us = 0.0;
    let mut nodes = Vec::with_capacity(work.nodes.len());
    for node in &work.nodes {
        let (name, Resource(id), cost_us) = (node.name.clone(), node.resource, node.cost_us);
        if !(0.0..=COST_US_MAX).contains(&cost_us) {
            return Err(Kind::Cost { node: name, cost_us }.into());
        }
        if node.resource.index() >= work.resources.len() {
            return Err(Kind::UnknownResource { node: name, id, resources: work.resources.len() }.into());
        }
        sum_us += cost_us;
        nodes.push(Node { name, resource: node.resource.index(), cost: (cost_us * PS).round() as u64 });
    }
    check_time("the sum of all costs", sum_us)?;
    Ok(nodes)
}

/// Checks that a time can be planned.
pub(super) fn check_time(what: &'static str, us: f64) -> Result<()> {
    // Half of it, so that rounding to `f64` decides nothing.
    let limit_us = TIME_MAX as f64 / 2.0 / PS;
    if us <= limit_us { Ok(()) } else { Err(Kind::TimeLimit { what, us, limit_us }.into()) }
}

fn edges(work: &Work) -> Result<Vec<Link>> {
    let mut links = Vec::with_capacity(work.edges.len());
    for edge in &work.edges {
        let what = if edge.is_feedback { "feedback" } else { "an edge" };
        for node in [edge.source, edge.target] {
            check_id(work, what, node)?;
        }
        let (source, target) = (edge.source.index(), edge.target.index());
        links.push(Link { source, target, bytes: edge.bytes, is_feedback: edge.is_feedback });
    }
    Ok(links)
}

fn check_id(work: &Work, what: &str, node: NodeId) -> Result<()> {
    let nodes = work.nodes.len();
    if node.index() < nodes { Ok(()) } else { Err(Kind::UnknownNodeId { what: what.into(), id: node.0, nodes }.into()) }
}

/// Returns the fixed phases, also those that nodes have through `together`.
#[allow(clippy::type_complexity)]
fn fixed(work: &Work) -> Result<(Vec<Option<u32>>, Vec<Vec<usize>>)> {
    let mut said = vec![None; work.nodes.len()];
    for &(node, fixed) in &work.fixed {
        check_id(work, "a phase", node)?;
        said[node.index()] = Some(fixed);
    }
    let mut fixed = Vec::with_capacity(work.nodes.len());
    for (said, node) in said.into_iter().zip(&work.nodes) {
        fixed.push(match said {
            None => None,
            Some(Fixed::Unpipelined) => Some(0),
            Some(Fixed::Phase(phase @ 1..=PHASE_MAX)) => Some(phase),
            Some(Fixed::Phase(phase)) => {
                return Err(Kind::PhaseRange { node: node.name.clone(), phase, max: PHASE_MAX }.into());
            }
        });
    }
    let mut together = Vec::with_capacity(work.together.len());
    for group in &work.together {
        group.iter().try_for_each(|&node| check_id(work, "`together`", node))?;
        together.push(group.iter().map(|node| node.index()).collect::<Vec<_>>());
    }
    let together = joined(work.nodes.len(), &together);
    for group in &together {
        let said = group.iter().filter_map(|&node| Some((node, fixed[node]?))).collect::<Vec<_>>();
        let Some(&(first, phase)) = said.first() else { continue };
        if let Some(&(second, other)) = said.iter().find(|(_, other)| *other != phase) {
            let name = |node: usize| work.nodes[node].name.clone();
            return Err(Kind::PhasesApart { first: name(first), phase, second: name(second), other }.into());
        }
        group.iter().for_each(|&node| fixed[node] = Some(phase));
    }
    Ok((fixed, together))
}

/// Joins groups that share a node.
fn joined(nodes: usize, groups: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut group_of: Vec<usize> = (0..nodes).collect();
    fn root(group_of: &mut [usize], mut node: usize) -> usize {
        while group_of[node] != node {
            group_of[node] = group_of[group_of[node]];
            node = group_of[node];
        }
        node
    }
    for pair in groups.iter().flat_map(|group| group.windows(2)) {
        let (one, other) = (root(&mut group_of, pair[0]), root(&mut group_of, pair[1]));
        group_of[one.max(other)] = one.min(other);
    }
    let mut joined: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for node in 0..nodes {
        joined[root(&mut group_of, node)].push(node);
    }
    joined.retain(|group| group.len() > 1);
    joined
}

/// Returns the nodes in topological order.
fn order(work: &Work, edges: &[Link]) -> Result<Vec<usize>> {
    let pairs = edges.iter().filter(|edge| !edge.is_feedback);
    let pairs: Vec<_> = pairs.map(|edge| (NodeId(edge.source as u32), NodeId(edge.target as u32), true)).collect();
    let links = Links::of(work.nodes.len(), pairs.into_iter());
    let order = kahn_order(&links);
    if order.len() == links.nodes() {
        return Ok(order.iter().map(|node| node.index()).collect());
    }
    let cycle = cycle_of(&links, &order);
    Err(Kind::ItemCycle { path: cycle.iter().map(|node| work.nodes[node.index()].name.clone()).collect() }.into())
}
