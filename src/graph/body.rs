//! The body of a node, with its types erased: it reads cells and writes the node's own. The executor decides
//! when to call it. A body never waits.

use std::task::{Context, Poll};

use crate::value::{Call, Cells, Outcome};

/// The body of one node. Its methods access only these cells: those that the node's arguments name, and that
/// of its output.
pub(crate) trait Body: Send + Sync {
    /// Returns how to run a task or a kernel. `is_in_place`: all values that it reads are always in place,
    /// see [`Call::of`].
    fn call(&self, is_in_place: bool) -> Call;

    /// Polls an async node. The first poll makes its future.
    fn poll(&self, _cells: Cells<'_>, _cx: &mut Context<'_>) -> Poll<Outcome> {
        unreachable!("only async nodes are polled")
    }

    /// Drops the future of an async node, if there is one.
    fn abort(&self, _cells: Cells<'_>) {}

    /// Drops the node's value, if it exists.
    fn release(&self, cells: Cells<'_>);

    /// Returns false if a drop of the value, stored in place, does nothing.
    fn needs_release(&self) -> bool;

    /// Whether the body only enqueues work, on devices with queues. There the work ends after the call of the
    /// body.
    fn is_queued(&self) -> bool {
        false
    }
}
