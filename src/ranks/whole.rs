//! A shape with its transfers, and the part of each rank: what `comm` makes of a graph with bodies, for plans
//! that do not run.

use std::collections::HashMap;
use std::sync::Arc;

use super::split::{Added, Reach, Transfer, Transfers};
use crate::graph::{Backend, Communication, Edge, EdgeKind, Exchange, NodeId, Ranks, Rows, Shape};

/// A shape with its transfers, which all ranks have alike.
pub(super) struct Whole {
    pub(super) shape: Arc<Shape>,
    /// The nodes of each rank, in ascending order.
    placed: Rows<NodeId>,
    /// The nodes of all ranks, in ascending order.
    everywhere: Vec<NodeId>,
    /// The edges into each node.
    into: Rows<u32>,
    /// For each rank, the arrivals of values that it makes itself.
    own: Vec<HashMap<NodeId, Transfer>>,
}

impl Whole {
    pub(super) fn new(shape: &Shape, size: u32, is_by_messages: bool) -> Self {
        let transfers = Transfers::of(shape);
        let mut whole = shape.clone();
        let (mut arrivals, mut sends) = (Vec::with_capacity(transfers.all.len()), Vec::new());
        for added in transfers.added(shape, size, is_by_messages) {
            let transfer = transfers.all[added.transfer];
            let (node, is_send) = add(&mut whole, &added, &transfer);
            if is_send {
                sends.push(node);
            } else {
                sends.drain(..).for_each(|send| whole.order(send, node));
                arrivals.push(node);
            }
        }
        let arrival = |edge: &Edge| transfers.serving(shape, edge).map(|at| arrivals[at as usize]);
        let sources: Vec<Option<NodeId>> = shape.edges().iter().map(arrival).collect();
        for (edge, source) in whole.edges_mut().iter_mut().zip(sources) {
            source.into_iter().for_each(|source| *edge = edge.reading(source, 0));
        }
        let mut own = vec![HashMap::new(); size as usize];
        for (transfer, &arrival) in transfers.all.iter().zip(&arrivals) {
            if transfer.to == Reach::Others {
                own[transfer.from as usize].insert(arrival, *transfer);
            }
        }
        Self::of(whole, own)
    }

    fn of(shape: Shape, own: Vec<HashMap<NodeId, Transfer>>) -> Self {
        let nodes = (0..).map(NodeId).zip(shape.nodes());
        let placed = nodes.clone().filter_map(|(id, node)| Some((Ranks::one(node.ranks)?, id)));
        let everywhere = nodes.filter_map(|(id, node)| Ranks::one(node.ranks).is_none().then_some(id)).collect();
        let into = shape.edges().iter().zip(0..).map(|(edge, at)| (edge.target.0, at));
        let (placed, into) = (Rows::sorted(own.len(), placed), Rows::sorted(shape.nodes().len(), into));
        Self { shape: Arc::new(shape), placed, everywhere, into, own }
    }

    /// Returns whether the graph has no transfers.
    pub(super) fn is_uniform(&self) -> bool {
        self.placed.items().is_empty() && self.own.iter().all(HashMap::is_empty)
    }

    /// Returns whether a rank has the nodes of all ranks, and no others.
    pub(super) fn is_plain(&self, rank: u32) -> bool {
        self.placed.row(rank).is_empty() && self.own[rank as usize].is_empty()
    }

    /// Returns the part of a rank, and for each of its nodes the node here.
    pub(super) fn part(&self, rank: u32) -> (Shape, Vec<NodeId>) {
        let own = &self.own[rank as usize];
        // A value that goes to all other ranks as a message does not come back.
        let is_message = |node: &NodeId| own.contains_key(node) && !is_collective(&self.shape, *node);
        let placed = self.placed.row(rank);
        let mut nodes = Vec::with_capacity(self.everywhere.len() + placed.len());
        nodes.extend(self.everywhere.iter().chain(placed).filter(|node| !is_message(node)));
        nodes.sort_unstable();
        let local = |node: NodeId| nodes.binary_search(&node).ok().map(|at| NodeId(at as u32));
        let mut edges = Vec::with_capacity(nodes.iter().map(|&node| self.into.of(node).len()).sum());
        nodes.iter().for_each(|&node| edges.extend(self.into.of(node)));
        edges.sort_unstable();
        let mut part = Shape::with_capacity(nodes.len(), edges.len());
        self.shape.name().into_iter().for_each(|name| part.set_name(name.to_owned()));
        nodes.iter().for_each(|node| _ = part.push(self.shape.nodes()[node.index()].clone()));
        for edge in edges.into_iter().map(|at: u32| self.shape.edges()[at as usize]) {
            let from = own.get(&edge.source).map(|is| edge.reading(is.source, is.output.unwrap_or(0)));
            let edge = from.unwrap_or(edge);
            // A broadcast reads nothing on the ranks that get the value.
            if let (Some(source), Some(target)) = (local(edge.source), local(edge.target)) {
                part.edge(Edge { source, target, ..edge });
            }
        }
        let takes = self.shape.taken_inputs().iter().filter_map(|&(node, input)| Some((local(node)?, input)));
        takes.for_each(|(node, input)| part.take_input(node, input));
        let outputs = self.shape.outputs().iter().filter_map(|&(node, output)| Some((local(node)?, output)));
        outputs.for_each(|(node, output)| part.output(node, output));
        (part, nodes)
    }
}

fn is_collective(shape: &Shape, node: NodeId) -> bool {
    shape.nodes()[node.index()].communication.as_ref().is_some_and(|communication| communication.is_collective())
}

/// Adds the node of a transfer. Returns it, and whether it sends.
fn add(whole: &mut Shape, added: &Added, transfer: &Transfer) -> (NodeId, bool) {
    let (ranks, exchange) = added.exchange(transfer);
    let (is_receive, is_send) = (matches!(exchange, Exchange::RecvFrom { .. }), matches!(exchange, Exchange::SendTo { .. }));
    let node = whole.node(added.name.clone(), Backend::Cpu);
    let bytes = whole.nodes()[transfer.source.index()].bytes;
    let shape = &mut whole.nodes_mut()[node.index()];
    shape.communication = Some(Arc::new(Communication::new(exchange)));
    (shape.ranks, shape.bytes, shape.cost_us) = (Some(ranks), bytes, 0.0);
    if !is_receive {
        match transfer.output {
            Some(output) => whole.edge(Edge::new(transfer.source, node, EdgeKind::data(output))),
            None => whole.order(transfer.source, node),
        }
    }
    (node, is_send)
}
