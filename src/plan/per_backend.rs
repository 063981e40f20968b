//! `PerBackend`: a stream for `mixed` nodes and one for `gpu` nodes.

use super::needs::stream_needs;
use super::{Assignment, Policy};
use crate::error::Result;
use crate::graph::{Backend, Shape};

/// Puts `mixed` nodes on stream 0, and all other nodes that need a stream on stream 1. If no node is `mixed`,
/// the others are on stream 0. From DALI's Executor 2.0.
///
/// Uploads and decoding overlap with kernels. Each hand-over costs at most one wait. O(n + m).
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::policy::PerBackend;
///
/// let mut shape = Shape::new();
/// let uploads = ["up 0", "up 1"].map(|name| shape.node(name, Backend::Mixed));
/// let kernels = ["add 0", "add 1"].map(|name| shape.node(name, Backend::Gpu));
/// uploads.into_iter().zip(kernels).for_each(|(upload, kernel)| shape.read(upload, 0, kernel));
/// let schedule = shape.schedule_with(&PerBackend)?;
/// assert_eq!(uploads.map(|node| schedule.stream_of(node)), [0, 0]);
/// assert_eq!(kernels.map(|node| schedule.stream_of(node)), [1, 1]);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
