//! Facts of a graph that its lowering needs, node by node.

/// Facts of a node and its value.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub(super) is_async: bool,
    /// The node is a loop or a branch.
    pub(super) is_control: bool,
    /// The body enqueues work on a device with queues.
    pub(super) is_queued: bool,
    /// The value is stored as an `Arc`.
    pub(super) is_shared: bool,
    /// A reader moves the value out.
    pub(super) is_taken: bool,
    /// The value, and all that the node reads, is in place.
    pub(super) is_in_place: bool,
}
