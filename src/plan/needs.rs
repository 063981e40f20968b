//! The nodes that need a device stream: the rule of DALI's released Executor 2.0.

use crate::graph::{Backend, EdgeKind, Links, Memory, NodeId, Shape};

/// Returns, for each node, whether it needs a stream. `gpu` and `mixed` nodes do. A `cpu` node does if it
/// reads the content of GPU memory, not only its shape and type, since it must wait for device work. O(n +
/// m).
pub(super) fn stream_needs(shape: &Shape) -> Vec<bool> {
    let mut needs: Vec<bool> = shape.nodes().iter().map(|node| node.backend != Backend::Cpu).collect();
    for edge in shape.edges() {
        let is_full = matches!(edge.kind, EdgeKind::Data { metadata: false, .. });
        if is_full && shape.read_memory(edge) == Some(Memory::Gpu) {
            needs[edge.target.index()] = true;
        }
    }
    needs
}

/// Returns, for each node, whether it or a node after it needs a stream. The graph's output counts as a node:
/// it reads every output, in GPU memory if the producer leaves it there. `order` is topological. O(n + m).
pub(super) fn contributes(shape: &Shape, links: &Links, order: &[NodeId], needs: &[bool]) -> Vec<bool> {
    let mut contributes = needs.to_vec();
    let outputs = outputs_of(shape, links);
    if output_needs(shape, &outputs) {
        outputs.iter().for_each(|(node, _)| contributes[node.index()] = true);
    }
    for node in order.iter().rev() {
        contributes[node.index()] |= links.out.of(*node).iter().any(|target| contributes[target.index()]);
    }
    contributes
}

/// Returns whether the graph's output needs a stream because it reads GPU memory.
pub(super) fn output_needs(shape: &Shape, outputs: &[(NodeId, u32)]) -> bool {
    outputs.iter().any(|&(node, _)| shape.memory_of(node) == Memory::Gpu)
}

/// Returns the reads of the graph's output: the declared outputs, or else output 0 of every sink.
pub(super) fn outputs_of(shape: &Shape, links: &Links) -> Vec<(NodeId, u32)> {
    if !shape.outputs().is_empty() {
        return shape.outputs().to_vec();
    }
    links.ids().filter(|&node| links.out.of(node).is_empty()).map(|node| (node, 0)).collect()
}
