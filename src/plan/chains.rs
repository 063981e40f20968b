//! Streams for the nodes that the policy gave none: chains of host work. Two nodes share a chain only if one
//! precedes the other in the graph, so a chain never holds up what could run.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use super::ancestors::Ancestors;
use super::order::{frontier_order, ranks};
use super::{Assignment, NONE};
use crate::graph::{Links, NodeId};

/// The chain of each node that has no stream, [`NONE`] for the others.
pub(super) struct Chains {
    pub(super) of: Vec<u32>,
    pub(super) count: u32,
}

/// Lays chains over all nodes without a stream, much as NNC's static schedule lays its streams: in frontier
/// order each node that is still bare continues the first chain whose tail precedes it, or starts one, and
/// the chain follows the highest rank from there.
///
/// Unlike NNC a chain goes on only to a node whose other predecessors all are laid already. A program runs
/// down its chain as far as it can, so with NNC's rule it would run into nodes whose other inputs have not
/// begun: on a square wavefront every second node parked its program. What is laid is thereby closed
/// downwards, so no edge that a chain follows is bypassed by a longer path. And unlike NNC there are no
/// limits and no commands to gather: a parked host program costs about a hundred bytes.
///
/// O(n + m), with a bounded search each; a search that gives up costs a chain too many, never an order
/// between nodes that have none. Up to [`super::EXACT_NODES_MAX`] nodes the searches are complete.
pub(super) fn lay(links: &Links, order: &[NodeId], assignment: &Assignment) -> Chains {
    let chains = Chains { of: vec![NONE; links.nodes()], count: 0 };
    if links.ids().all(|node| assignment.has(node)) {
        return chains;
    }
    let mut layer = Layer::new(links, order, assignment, chains);
    for node in frontier_order(links) {
        if layer.is_bare(node) {
            let chain = layer.recycled(node).unwrap_or(layer.chains.count);
            layer.chains.count = layer.chains.count.max(chain + 1);
            layer.lay(node, chain);
        }
    }
    layer.chains
}

struct Layer<'a> {
    links: &'a Links,
    assignment: &'a Assignment,
    chains: Chains,
    ranks: Vec<u32>,
    /// For each node the number of edges from nodes that are still bare.
    bare_before: Vec<u32>,
    /// The nodes that end a chain and are followed by something, so that the chain may go on behind them.
    is_tail: Vec<bool>,
    tails: usize,
    ancestors: Ancestors,
}

impl<'a> Layer<'a> {
    fn new(links: &'a Links, order: &[NodeId], assignment: &'a Assignment, chains: Chains) -> Self {
        let nodes = links.nodes();
        let is_bare = |source: &&NodeId| !assignment.has(**source);
        let bare_before = |node| links.into.of(node).iter().filter(is_bare).count() as u32;
        Self {
            links,
            assignment,
            chains,
            ranks: ranks(links, order),
            bare_before: links.ids().map(bare_before).collect(),
            is_tail: vec![false; nodes],
            tails: 0,
            ancestors: Ancestors::new(nodes),
        }
    }

    fn is_bare(&self, node: NodeId) -> bool {
        self.chains.of[node.index()] == NONE && !self.assignment.has(node)
    }

    /// Takes the first chain whose tail precedes `node`.
    fn recycled(&mut self, node: NodeId) -> Option<u32> {
        if self.tails == 0 {
            return None;
        }
        let (mut first, of): (Option<NodeId>, _) = (None, &self.chains.of);
        self.ancestors.search(self.links, node, |source| {
            let is_first = first.is_none_or(|first| of[source.index()] < of[first.index()]);
            if self.is_tail[source.index()] && is_first {
                first = Some(source);
            }
            ControlFlow::Continue(true)
        });
        let tail = first?;
        self.is_tail[tail.index()] = false;
        self.tails -= 1;
        Some(self.chains.of[tail.index()])
    }

    /// Lays `chain` from `node` along the highest rank, as far as there are bare nodes.
    fn lay(&mut self, node: NodeId, chain: u32) {
        let mut tail = node;
        self.put(tail, chain);
        while let Some(next) = self.next_after(tail) {
            tail = next;
            self.put(tail, chain);
        }
        if !self.links.out.of(tail).is_empty() {
            self.is_tail[tail.index()] = true;
            self.tails += 1;
        }
    }

    /// Returns the bare out-neighbour of the highest rank, the first among equals, that waits for no other
    /// bare node.
    fn next_after(&self, node: NodeId) -> Option<NodeId> {
        let targets = self.links.out.of(node).iter().copied();
        let ready = targets.filter(|&target| self.bare_before[target.index()] == 0 && self.is_bare(target));
        // `max_by_key` would give the last among equals.
        ready.min_by_key(|target| Reverse(self.ranks[target.index()]))
    }

    /// Puts `node` on `chain`.
    fn put(&mut self, node: NodeId, chain: u32) {
        self.chains.of[node.index()] = chain;
        for target in self.links.out.of(node) {
            self.bare_before[target.index()] -= 1;
        }
    }
}
