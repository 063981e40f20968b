//! Who needs a device stream: the rule of DALI's released Executor 2.0.

use crate::graph::{Backend, EdgeKind, Memory, Shape};

/// Returns, for each node, whether it needs a stream: `gpu` and `mixed` nodes do, and `cpu` nodes that read something in GPU
/// memory and not only its shape and type, since they have device work to wait for. O(n + m).
pub(super) fn stream_needs(shape: &Shape) -> Vec<bool> {
    let mut needs: Vec<bool> = shape.nodes().iter().map(|node| node.backend != Backend::Cpu).collect();
    for edge in shape.edges() {
        if matches!(edge.kind, EdgeKind::Data { memory: Memory::Gpu, metadata: false, .. }) {
            needs[edge.target.index()] = true;
        }
    }
    needs
}
