//! Host streams for the nodes without a stream of the policy: chains. Two nodes share a chain only if one
//! precedes the other in the graph, so a chain never delays a node that could run.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use super::ancestors::Ancestors;
use super::order::{frontier_order, ranks};
use super::{Assignment, NONE};
use crate::graph::{Links, NodeId};

/// The chain of each node without a stream, and [`NONE`] for the others.
pub(super) struct Chains {
    pub(super) of: Vec<u32>,
    pub(super) count: u32,
}

/// Lays chains over all nodes without a stream, much as NNC's static schedule lays its streams. It visits the
/// nodes in frontier order. A node without a chain continues the first chain whose tail precedes it, or
/// starts a new one. From there the chain follows the highest rank.
///
/// Unlike in NNC, a chain continues only to a node whose other predecessors all have a chain. A program runs
/// its chain as far as it can. With NNC's rule it would reach nodes whose other inputs have not begun: on a
/// square wavefront, every second node parked its program. With this rule the nodes on chains are closed
/// downwards, so no longer path bypasses an edge that a chain follows. Also unlike in NNC, there are no
/// limits and no commands to gather: a parked host program costs about a hundred bytes.
///
/// O(n + m), with one bounded search for each node. A search that reaches its bound may cost one chain too
/// many. It never adds an order between independent nodes. Up to [`super::EXACT_NODES_MAX`] nodes, the
/// searches are exhaustive.
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
    /// For each node, the number of edges from nodes without a chain.
    bare_before: Vec<u32>,
    /// Whether a node is the end of a chain and has a successor, so that the chain may continue after it.
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

    /// Returns the first chain whose tail precedes `node`, and removes it from the list.
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

    /// Extends `chain` from `node` along the highest rank, as long as there are nodes without a chain.
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

    /// Returns the successor without a chain that has the highest rank, the first among equals, and that
    /// waits for no other node without a chain.
    fn next_after(&self, node: NodeId) -> Option<NodeId> {
        let targets = self.links.out.of(node).iter().copied();
        let ready = targets.filter(|&target| self.bare_before[target.index()] == 0 && self.is_bare(target));
        // `max_by_key` would return the last among equals.
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
