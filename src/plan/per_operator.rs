//! `PerOperator`: a stream for each run of dependent device work.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::needs::{contributes, output_needs, outputs_of};
use super::{Assignment, NONE, Policy};
use crate::error::Result;
use crate::graph::{Backend, EdgeKind, Links, NodeId, Rows, Shape, kahn_order};

/// Gives each of several independent `gpu` and `mixed` nodes its own stream. A consumer may take over the
/// stream of one of its producers. This is the queue algorithm of the early design of DALI's Executor 2.0.
///
/// ```text
///  A(0) ──▶ B(0) ──▶ D(0) ──▶ F(0) ──▶ G(0) ──▶ I(0)       nodes in visit order A B C D E F G H I;
///   ├─────▶ C(2) ──────┘       │ └───────────────┤         H is a root too, so 1 is taken when A hands
///   └─────▶ E(3) ──────────────┘       H(1) ─────┘         streams to its consumers
/// ```
///
/// Labels have gaps: if a node held a stream and none of its consumers took it over, the stream is withdrawn,
/// because a later independent node must not share it. In rare graphs two independent nodes share a stream
/// all the same. Then the plan is correct, but less parallel. `cpu` nodes pass streams on and keep none.
///
/// The published algorithm has a heap of (node, stream) entries. A consumer always comes after its producers,
/// so all entries of a node are known when it is visited. So a slot for each in-edge replaces the heap: O((n
/// + m) log n).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerOperator;

impl Policy for PerOperator {
    fn name(&self) -> &str {
        "per-operator"
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        let links = Links::new(shape);
        let order = kahn_order(&links);
        Ok(Queue::new(shape, &links, &order).run(shape, &order))
    }
}

/// The entries of the algorithm's queue, with the state to push and pop them.
struct Queue<'a> {
    links: &'a Links,
    pushes: Rows<Push>,
    /// The ids of the pushed entries, with a slot for each in-edge.
    entries: Vec<u32>,
    /// For each node, the number of its entries.
    pushed: Vec<u32>,
    free: FreeIds,
    /// For each node, and then for the graph's output, whether it needs a stream; and whether it or a node
    /// after it does.
    needs: Vec<bool>,
    contributes: Vec<bool>,
}

impl<'a> Queue<'a> {
    fn new(shape: &Shape, links: &'a Links, order: &[NodeId]) -> Self {
        let outputs = outputs_of(shape, links);
        let mut needs: Vec<bool> = shape.nodes().iter().map(|node| node.backend != Backend::Cpu).collect();
        let mut contributes = contributes(shape, links, order, &needs);
        let output_needs = output_needs(shape, &outputs);
        needs.push(output_needs);
        contributes.push(output_needs);
        Self {
            links,
            pushes: pushes(shape, &outputs),
            entries: vec![NONE; shape.edges().len()],
            pushed: vec![0; links.nodes()],
            free: FreeIds::default(),
            contributes,
            needs,
        }
    }

    fn run(mut self, shape: &Shape, order: &[NodeId]) -> Assignment {
        let mut assignment = Assignment::none(shape);
        let is_root = |links: &Links, node: NodeId| links.into.of(node).is_empty();
        for &root in order.iter().filter(|&&node| is_root(self.links, node) && self.needs[node.index()]) {
            assignment.set(root, self.free.take());
        }
        for &node in order {
            let entries = self.links.into.range(node.0);
            let lowest = self.entries[entries.clone()].iter().copied().min().unwrap_or(NONE);
            let held = if is_root(self.links, node) { assignment.of(node).next() } else { Some(lowest).filter(|&id| id != NONE) };
            self.visit(node, held);
            // The node's other entries are popped next. They only give their ids back.
            for &id in self.entries[entries].iter().filter(|&&id| id != lowest && id != NONE) {
                self.free.given_back.push(Reverse(id));
            }
            if let Some(id) = held.filter(|_| self.needs[node.index()]) {
                assignment.set(node, id);
            }
        }
        assignment
    }

    /// Steps 3 to 5 of the algorithm: gives the stream back if a consumer will take one, and pushes all
    /// consumers.
    fn visit(&mut self, node: NodeId, held: Option<u32>) {
        // A consumer takes a stream from a node without one only if it needs one itself.
        let takers = if held.is_some() { &self.contributes } else { &self.needs };
        let pushes = self.pushes.of(node);
        if let Some(id) = held.filter(|_| pushes.iter().any(|push| takers[push.target.index()])) {
            self.free.given_back.push(Reverse(id));
        }
        for push in pushes {
            let id = if takers[push.target.index()] { self.free.take() } else { NONE };
            // The graph's output is visited last. Its entries only withhold their ids from other nodes.
            if let Some(pushed) = self.pushed.get_mut(push.target.index()) {
                self.entries[self.links.into.range(push.target.0).start + *pushed as usize] = id;
                *pushed += 1;
            }
        }
    }
}

/// All ids from 0 on, except those that are taken.
#[derive(Default)]
struct FreeIds {
    given_back: BinaryHeap<Reverse<u32>>,
    /// The lowest id that was never taken.
    next: u32,
}

impl FreeIds {
    /// Takes the lowest free id.
    fn take(&mut self) -> u32 {
        if let Some(Reverse(id)) = self.given_back.pop() {
            return id;
        }
        self.next += 1;
        self.next - 1
    }
}

#[derive(Clone, Copy)]
struct Push {
    output: u32,
    target: NodeId,
}

/// Returns the out-edges of each node in the order in which its consumers are pushed: by output, then in the
/// order of the edges. The graph's output is the last consumer of each output. Order-only edges belong to no
/// output and come last.
fn pushes(shape: &Shape, outputs: &[(NodeId, u32)]) -> Rows<Push> {
    let target = NodeId(shape.nodes().len() as u32);
    let to_end = outputs.iter().map(|&(source, output)| (source.0, Push { output, target }));
    let all = shape.edges().iter().map(|edge| (edge.source.0, Push { output: output_of(edge.kind), target: edge.target }));
    let mut pushes = Rows::sorted(shape.nodes().len(), all.chain(to_end));
    pushes.each_mut(|row| {
        if !row.is_sorted_by_key(|push| push.output) {
            row.sort_by_key(|push| push.output);
        }
    });
    pushes
}

fn output_of(kind: EdgeKind) -> u32 {
    match kind {
        EdgeKind::Data { output, .. } => output,
        EdgeKind::Order => u32::MAX,
    }
}
