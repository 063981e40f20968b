//! A graph with all its inner graphs. Each of them is a unit: its nodes are in one order of their own.

use std::any::TypeId;

use crate::graph::{ControlNode, Graph, NO_CELL, NodeId, NodeShape, ValueInfo};

/// Returns the graph, and all inner graphs at any depth. Each comes after the graph around it.
pub(super) fn units(graph: &Graph) -> Vec<&Graph> {
    let mut all = vec![graph];
    let mut next = 0;
    while let Some(&graph) = all.get(next) {
        all.extend(graph.controls.iter().flat_map(|control| inner(graph, control)));
        next += 1;
    }
    all
}

/// Returns the inner graphs of a control.
pub(super) fn inner<'g>(graph: &'g Graph, control: &'g ControlNode) -> impl Iterator<Item = &'g Graph> {
    control.flow.inner().map(|(id, _)| graph.inner.get(id))
}

/// Returns the first node that communicates in the inner graphs of a control, at any depth, with its graph.
pub(super) fn communication_in<'g>(graph: &'g Graph, control: &'g ControlNode) -> Option<(&'g Graph, NodeId)> {
    let all = inner(graph, control).flat_map(units);
    all.into_iter().find_map(|unit| Some((unit, communications(unit).next()?.0)))
}

/// Returns the nodes that communicate, in the order in which they were added.
pub(super) fn communications(unit: &Graph) -> impl Iterator<Item = (NodeId, &NodeShape)> {
    let nodes = unit.shape().ids().zip(unit.shape().nodes());
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
