//! `Single`: one stream.

use super::needs::stream_needs;
use super::{Assignment, Policy};
use crate::error::Result;
use crate::graph::Shape;

/// Puts every node that needs a stream on stream 0. From DALI's Executor 2.0.
///
/// The device does one node's work at a time, and no node waits for another stream. O(n + m).
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::policy::Single;
///
/// let mut shape = Shape::new();
/// ["a", "b", "c"].map(|name| shape.node(name, Backend::Gpu));
/// let schedule = shape.schedule_with(&Single)?;
/// assert_eq!((schedule.streams(), schedule.waits()), (1, 0));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Single;

impl Policy for Single {
    fn name(&self) -> &str {
        "single"
    }

    fn assign(&self, shape: &Shape) -> Result<Assignment> {
        let mut assignment = Assignment::none(shape);
        for (node, needs) in shape.ids().zip(stream_needs(shape)) {
            if needs {
                assignment.set(node, 0);
            }
        }
        Ok(assignment)
    }
}
