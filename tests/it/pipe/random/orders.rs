//! Checks that nodes wait for those of earlier items.

use std::sync::Mutex;

use super::spec::{ASYNC, ItemEdge, Spec};

/// The observed state of a node for an item.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Known {
    Nothing,
    Running,
    Ended,
    /// A later item has gone on, so the node must not run for this item any more.
    Passed,
}

/// The largest number of items of a run.
const ITEMS_MAX: usize = 256;

pub(super) struct Orders {
    edges: Vec<ItemEdge>,
    /// By node and item.
    known: Mutex<Vec<Vec<Known>>>,
}

/// A node that runs.
pub(super) struct Running<'o> {
    orders: &'o Orders,
    node: usize,
    item: usize,
}

impl Orders {
    /// Tracks only nodes that are plain calls, without a loop or a future.
    pub(super) fn new(spec: &Spec) -> Self {
        let is_known = |edge: &&ItemEdge| [edge.source, edge.target].iter().all(|&node| spec.nodes[node].kind < ASYNC);
        let known = Mutex::new(vec![vec![Known::Nothing; ITEMS_MAX]; spec.nodes.len()]);
        Self { edges: spec.item_edges.iter().filter(is_known).copied().collect(), known }
    }

    pub(super) fn begin(&self, node: usize, item: u64) -> Running<'_> {
        let (mut known, item) = (self.known.lock().unwrap(), item as usize);
        assert_ne!(known[node][item], Known::Passed, "node {node} runs for item {item}, and a later item did not wait for it");
        known[node][item] = Known::Running;
        for edge in self.edges.iter().filter(|edge| edge.target == node && edge.items as usize <= item) {
            let before = &mut known[edge.source][item - edge.items as usize];
            assert_ne!(*before, Known::Running, "node {node} does not wait for item {item}: {edge:?}");
            if *before == Known::Nothing {
                *before = Known::Passed;
            }
        }
        Running { orders: self, node, item }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Ok(mut known) = self.orders.known.lock() {
            known[self.node][self.item] = Known::Ended;
        }
    }
}
