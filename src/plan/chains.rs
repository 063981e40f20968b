//! Streams for the nodes that the policy gave none: chains of host work. Two nodes share a chain only if one precedes the other
//! in the graph, so a chain never holds up what could run.

use std::cmp::Reverse;

use super::Assignment;
use super::marks::Marks;
use super::order::{Links, frontier_order, levels, ranks};
use crate::graph::NodeId;

/// No chain.
pub(super) const NONE: u32 = u32::MAX;

/// How many nodes one search visits in a graph of more than [`super::EXACT_NODES_MAX`].
const EFFORT_MAX: usize = 128;

/// The chain of each node that has no stream, [`NONE`] for the others.
pub(super) struct Chains {
    pub(super) of: Vec<u32>,
    pub(super) count: u32,
}

/// Lays chains over all nodes without a stream, as NNC's static schedule lays its streams: in frontier order each node that is
/// still bare continues the first chain whose tail precedes it, or starts one, and the chain follows the highest rank from
/// there, along edges that no longer path bypasses.
///
/// Unlike NNC there are no limits and no commands to gather: a parked host program costs about a hundred bytes.
///
/// O((n + m) log n), with searches of at most [`EFFORT_MAX`] nodes each; a search that gives up costs a chain too many or an
/// edge that a longer path bypasses, never an order between nodes that have none. Up to [`super::EXACT_NODES_MAX`] nodes the
/// searches are complete.
pub(super) fn lay(links: &Links, order: &[NodeId], assignment: &Assignment) -> Chains {
    let mut chains = Chains { of: vec![NONE; links.nodes()], count: 0 };
    if links.ids().all(|node| assignment.of(node).is_some()) {
        return chains;
    }
    let mut layer = Layer::new(links, order, assignment);
    for node in frontier_order(links) {
        if !layer.is_bare(&chains, node) {
            continue;
        }
        let chain = layer.recycled(&chains, node).unwrap_or_else(|| {
            chains.count += 1;
            chains.count - 1
        });
        layer.lay(&mut chains, node, chain);
    }
    chains
}

struct Layer<'a> {
    links: &'a Links,
    assignment: &'a Assignment,
    levels: Vec<u32>,
    ranks: Vec<u32>,
    /// The nodes that end a chain and are followed by something, so that the chain may go on behind them.
    is_tail: Vec<bool>,
    tails: usize,
    seen: Marks,
    blockers: Marks,
    found: Vec<NodeId>,
    choices: Vec<NodeId>,
    effort: usize,
}

impl<'a> Layer<'a> {
    fn new(links: &'a Links, order: &[NodeId], assignment: &'a Assignment) -> Self {
        let nodes = links.nodes();
        Self {
            links,
            assignment,
            levels: levels(links, order),
            ranks: ranks(links, order),
            is_tail: vec![false; nodes],
            tails: 0,
            seen: Marks::new(nodes),
            blockers: Marks::new(nodes),
            found: Vec::new(),
            choices: Vec::new(),
            effort: if nodes <= super::EXACT_NODES_MAX { usize::MAX } else { EFFORT_MAX },
        }
    }

    fn is_bare(&self, chains: &Chains, node: NodeId) -> bool {
        chains.of[node.index()] == NONE && self.assignment.of(node).is_none()
    }

    /// Takes the first chain whose tail precedes `node`: a search backwards, nearest nodes first.
    fn recycled(&mut self, chains: &Chains, node: NodeId) -> Option<u32> {
        if self.tails == 0 {
            return None;
        }
        self.seen.clear();
        self.found.clear();
        self.found.push(node);
        let mut first: Option<NodeId> = None;
        let mut next = 0;
        while let Some(&reached) = self.found.get(next).filter(|_| next < self.effort) {
            next += 1;
            for &source in self.links.into.of(reached) {
                if self.seen.insert(source) {
                    self.found.push(source);
                    let is_first = first.is_none_or(|first| chains.of[source.index()] < chains.of[first.index()]);
                    if self.is_tail[source.index()] && is_first {
                        first = Some(source);
                    }
                }
            }
        }
        let tail = first?;
        self.is_tail[tail.index()] = false;
        self.tails -= 1;
        Some(chains.of[tail.index()])
    }

    /// Lays `chain` from `node` along the highest rank, as far as there are bare nodes.
    fn lay(&mut self, chains: &mut Chains, node: NodeId, chain: u32) {
        let mut tail = node;
        chains.of[tail.index()] = chain;
        while let Some(next) = self.next_after(chains, tail) {
            tail = next;
            chains.of[tail.index()] = chain;
        }
        if !self.links.out.of(tail).is_empty() {
            self.is_tail[tail.index()] = true;
            self.tails += 1;
        }
    }

    /// Returns the bare out-neighbour of the highest rank, the first among equals, that no longer path leads to.
    fn next_after(&mut self, chains: &Chains, node: NodeId) -> Option<NodeId> {
        let mut choices = std::mem::take(&mut self.choices);
        choices.clear();
        choices.extend(self.links.out.of(node).iter().filter(|target| self.is_bare(chains, **target)));
        choices.sort_by_key(|choice| Reverse(self.ranks[choice.index()]));
        let floor = choices.first().and_then(|&best| self.block(node, best));
        let next = choices.iter().copied().find(|&choice| floor.is_none_or(|floor| !self.is_bypassed(choice, floor)));
        self.choices = choices;
        next
    }

    /// Marks the out-neighbours of `node` that might precede `best`, its bare out-neighbour of the highest rank, and returns the
    /// lowest of their levels. They serve for the lower choices too: what `best` precedes, they precede.
    fn block(&mut self, node: NodeId, best: NodeId) -> Option<u32> {
        self.blockers.clear();
        let mut floor = None;
        for &target in self.links.out.of(node) {
            if self.ranks[target.index()] > self.ranks[best.index()] {
                let level = self.levels[target.index()];
                self.blockers.insert(target);
                floor = Some(floor.map_or(level, |floor: u32| floor.min(level)));
            }
        }
        floor
    }

    /// Returns whether a marked node precedes `choice`: a search backwards, down to the lowest level of the marked.
    fn is_bypassed(&mut self, choice: NodeId, floor: u32) -> bool {
        self.seen.clear();
        self.found.clear();
        if self.levels[choice.index()] > floor {
            self.found.push(choice);
        }
        let mut visited = 0;
        while let Some(reached) = self.found.pop().filter(|_| visited < self.effort) {
            visited += 1;
            for &source in self.links.into.of(reached) {
                if self.levels[source.index()] < floor || !self.seen.insert(source) {
                    continue;
                }
                if self.blockers.contains(source) {
                    return true;
                }
                if self.levels[source.index()] > floor {
                    self.found.push(source);
                }
            }
        }
        false
    }
}
