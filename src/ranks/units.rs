//! A graph with all its inner graphs. Each of them is a unit: its nodes are in one order of their own.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use crate::graph::{ControlNode, Graph, NO_CELL, NodeId, NodeShape, Role, Shape, ValueInfo};
use crate::name::Name;
use crate::plan::Nested;

/// A graph or an inner graph, as it is compiled: each taker of a value comes after all that read it.
pub(crate) struct Unit {
    pub(crate) shape: Arc<Shape>,
    /// What comes before the names of its nodes: `loop/body/`.
    path: String,
    /// The place of the unit around it, and the loop or branch there.
    pub(super) around: Option<(usize, NodeId)>,
    /// What it is in that loop or branch.
    role: Option<Role>,
    /// The loops and branches that communicate inside, each with the full name of the first node that does.
    pub(crate) inside: HashMap<NodeId, Name>,
}

impl Unit {
    /// Returns the units of a graph. Each comes after the one around it; the first is the graph itself.
    pub(crate) fn all(shape: &Arc<Shape>, inner: &[Nested<Arc<Shape>>]) -> Vec<Self> {
        let new = |shape: &Arc<Shape>, path, around, role| {
            let (shape, inside) = (shape.clone(), HashMap::new());
            Self { shape, path, around, role, inside }
        };
        let mut all = vec![new(shape, String::new(), None, None)];
        for nested in inner {
            let around = nested.around.map_or(0, |around| around as usize + 1);
            let path = format!("{}/{}/", all[around].full_name(nested.node), nested.role);
            all.push(new(&nested.graph, path, Some((around, nested.node)), Some(nested.role)));
        }
        for at in (1..all.len()).rev() {
            let own = all[at].communications().next().map(|(node, _)| all[at].full_name(node));
            let first = own.or_else(|| all[at].inside.values().min().cloned());
            if let (Some(first), Some((around, node))) = (first, all[at].around) {
                all[around].inside.insert(node, first);
            }
        }
        all
    }

    /// Returns the unit of a graph that is not checked.
    pub(super) fn outermost(shape: &Shape) -> Self {
        let inner = shape.nested();
        Self::all(&Arc::new(shape.clone()), &inner).swap_remove(0)
    }

    /// Returns the path of a node from the outermost graph on.
    pub(crate) fn full_name(&self, node: NodeId) -> Name {
        let name = self.shape.name_of(node);
        if self.path.is_empty() { name.clone() } else { format!("{}{name}", self.path).into() }
    }

    /// Returns the path of the unit: `loop/body`.
    pub(super) fn path(&self) -> String {
        self.path.trim_end_matches('/').to_owned()
    }

    /// Returns what it is in a loop or a branch of another unit, if it is there.
    pub(super) fn role_in(&self, around: usize, node: NodeId) -> Option<Role> {
        self.role.filter(|_| self.around == Some((around, node)))
    }

    /// Returns the nodes that communicate, in the order in which they were added.
    pub(super) fn communications(&self) -> impl Iterator<Item = (NodeId, &NodeShape)> {
        communications(&self.shape)
    }

    pub(super) fn is_outermost(&self) -> bool {
        self.around.is_none()
    }

    /// Returns whether a node is a collective.
    pub(super) fn is_collective(&self, node: NodeId) -> bool {
        let communication = &self.shape.nodes()[node.index()].communication;
        communication.as_ref().is_some_and(|communication| communication.is_collective())
    }

    /// Returns the nodes that all ranks meet in, in their one order: collectives, and loops and branches with
    /// communication inside.
    pub(super) fn meetings(&self) -> Vec<NodeId> {
        let order = self.shape.topological_order().into_iter();
        order.filter(|node| self.is_collective(*node) || self.inside.contains_key(node)).collect()
    }
}

/// Returns the graph, and all inner graphs at any depth. Each comes after the graph around it.
pub(super) fn graphs(graph: &Graph) -> Vec<&Graph> {
    let mut all = vec![graph];
    let mut next = 0;
    while let Some(&graph) = all.get(next) {
        all.extend(graph.controls.iter().flat_map(|control| inner(graph, control)));
        next += 1;
    }
    all
}

/// Returns the inner graphs of a control.
fn inner<'g>(graph: &'g Graph, control: &'g ControlNode) -> impl Iterator<Item = &'g Graph> {
    control.flow.inner().map(|(id, _)| graph.inner.get(id))
}

/// Returns the first node that communicates in the inner graphs of a control, at any depth, with its graph.
pub(super) fn communication_in<'g>(graph: &'g Graph, control: &'g ControlNode) -> Option<(&'g Graph, NodeId)> {
    let all = inner(graph, control).flat_map(graphs);
    all.into_iter().find_map(|inner| Some((inner, communications(inner.shape()).next()?.0)))
}

fn communications(shape: &Shape) -> impl Iterator<Item = (NodeId, &NodeShape)> {
    let nodes = shape.ids().zip(shape.nodes());
    nodes.filter(|(_, node)| node.communication.is_some())
}

/// Returns the offset of the cell of a value. Units have none: their offset is also that of another value.
pub(super) fn cell_of(id: TypeId, offset: u32) -> Option<u32> {
    (id != TypeId::of::<()>() && offset != NO_CELL).then_some(offset)
}

/// Returns the offsets of the cells of the values of a node.
pub(super) fn values_of(unit: &Graph, node: NodeId) -> impl Iterator<Item = u32> {
    infos_of(unit, node).iter().filter_map(|value| cell_of(value.of.id, value.offset))
}

/// Returns the values of a node.
pub(super) fn infos_of(unit: &Graph, node: NodeId) -> &[ValueInfo] {
    let work = unit.works[node.index()];
    &unit.values[work.value as usize..(work.value + work.values) as usize]
}

/// Returns the offsets of the cells that each node reads, in this graph and in those around.
pub(super) fn reads(unit: &Graph) -> Vec<Vec<u32>> {
    let mut reads = vec![Vec::new(); unit.shape().nodes().len()];
    for edge in unit.shape().edges().iter().filter(|edge| edge.is_data()) {
        let value = &unit.values[unit.value_of(edge) as usize];
        reads[edge.target.index()].extend(cell_of(value.of.id, value.offset));
    }
    for port in &unit.inputs {
        port.readers.iter().for_each(|reader| reads[reader.index()].extend(cell_of(port.of.id, port.offset)));
    }
    let captures = unit.captures.iter().filter(|(_, offset)| *offset != NO_CELL);
    captures.for_each(|&(reader, offset)| reads[reader.index()].push(offset));
    reads
}
