//! `PerBackend`: a stream for `mixed` nodes and one for `gpu` nodes.

use super::needs::stream_needs;
use super::{Assignment, Policy};
use crate::error::Result;
use crate::graph::{Backend, Shape};

/// Puts `mixed` nodes on stream 0, and all other nodes that need a stream on stream 1. If no node is `mixed`,
/// the others are on stream 0. From DALI's Executor 2.0.
///
/// Uploads and decoding overlap with kernels. Each hand-over costs at most one wait. O(n + m).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerBackend;

impl Policy for PerBackend {
    fn name(&self) -> &str {
        "per-backend"
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        let others = u32::from(shape.nodes().iter().any(|node| node.backend == Backend::Mixed));
        let mut assignment = Assignment::none(shape);
        for ((id, node), needs) in shape.ids().zip(shape.nodes()).zip(stream_needs(shape)) {
            if needs {
                assignment.set(id, if node.backend == Backend::Mixed { 0 } else { others });
            }
        }
        Ok(assignment)
    }
}
