//! The body of a node, with its types erased: it reads its cells, and writes its own. The executor decides
//! when it is called; a body never waits.

use std::task::{Context, Poll};

use crate::value::{Call, Cells, Outcome};

/// The body of one node. All methods touch the node's own cells only: those that its arguments name, and its
/// output.
pub(crate) trait Body: Send + Sync {
    /// Returns how to run a task or a kernel. `is_in_place`: whether its values always are, see [`Call::of`].
    fn call(&self, is_in_place: bool) -> Call;

    /// Polls an async node; the first poll makes its future.
    fn poll(&self, _cells: Cells<'_>, _cx: &mut Context<'_>) -> Poll<Outcome> {
        unreachable!("only async nodes are polled")
    }

    /// Drops the future of an async node, if there is one.
    fn abort(&self, _cells: Cells<'_>) {}

    /// Drops the node's value, if it is there.
    fn release(&self, cells: Cells<'_>);

    /// Whether dropping the value does anything when it is stored in place.
    fn needs_release(&self) -> bool;

    /// Whether the body only enqueues work on devices with queues. There the node ends after its body.
    fn is_queued(&self) -> bool {
        false
    }
}
