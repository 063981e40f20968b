//! The work of one item: nodes with costs on resources, and edges. Methods that add to it cannot fail; the
//! first mistake is the error of the methods that plan it.

use crate::graph::NodeId;
use crate::name::Name;

/// A resource of one [`Work`], by its position: an engine of a device, a core, a pool of workers.
///
/// ```
/// use anabranch::phases::Work;
///
/// let mut work = Work::new();
/// let gpu = work.resource("GPU", 1);
/// work.node("detect", gpu, 3.0);
/// let phasing = work.written()?;
/// assert!(phasing.resource_name(gpu).is_some_and(|name| *name == "GPU"));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Resource(pub(super) u32);

impl Resource {
    /// Returns the position of the resource: 0 for the first that was added.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The work of one item, as data: nodes with costs on resources, and the edges between them. No closures.
///
/// ```
/// use anabranch::phases::Work;
///
/// let mut work = Work::new();
/// let cores = work.resource("core", 2);
/// let (read, draw) = (work.node("read", cores, 20.0), work.node("draw", cores, 30.0));
/// work.edge(read, draw, 1 << 20);
/// // With two phases, one core reads an item while the other draws the item before.
/// assert_eq!(work.auto(1)?.period_us(), 50.0);
/// assert_eq!(work.auto(2)?.period_us(), 30.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Work {
    pub(super) nodes: Vec<NodeWork>,
    pub(super) resources: Vec<(Name, u32)>,
    pub(super) edges: Vec<Edge>,
    pub(super) together: Vec<Vec<NodeId>>,
    pub(super) fixed: Vec<(NodeId, Fixed)>,
}

#[derive(Clone, Debug)]
pub(super) struct NodeWork {
    pub(super) name: Name,
    pub(super) resource: Resource,
    pub(super) cost_us: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) source: NodeId,
    pub(super) target: NodeId,
    pub(super) bytes: u64,
    pub(super) is_feedback: bool,
}

/// The phase that a node must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fixed {
    Phase(u32),
    Unpipelined,
}

impl Work {
    /// Makes a work without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource that can do `capacity` of its nodes at once. An exclusive resource has capacity 1.
    pub fn resource(&mut self, name: impl Into<Name>, capacity: u32) -> Resource {
        self.resources.push((name.into(), capacity));
        Resource(self.resources.len() as u32 - 1)
    }

    /// Adds a node that occupies one lane of `resource` for `cost_us` microseconds for each item. Costs are
    /// from 0 to 10^12, and are rounded to whole picoseconds.
    pub fn node(&mut self, name: impl Into<Name>, resource: Resource, cost_us: f64) -> NodeId {
        self.nodes.push(NodeWork { name: name.into(), resource, cost_us });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Adds an edge: `target` reads what `source` made for the same item, a value of `bytes` bytes.
    pub fn edge(&mut self, source: NodeId, target: NodeId, bytes: u64) {
        self.edges.push(Edge { source, target, bytes, is_feedback: false });
    }

    /// Adds feedback: for item k, `target` gets what `source` made for item k - (1 + ps - pd), where ps and
    /// pd are the phases of source and target. The lag is 1 within one phase.
    pub fn feedback(&mut self, source: NodeId, target: NodeId, bytes: u64) {
        self.edges.push(Edge { source, target, bytes, is_feedback: true });
    }

    /// Keeps these nodes in one phase: for example the submission on a CPU and the kernel on a GPU.
    pub fn together(&mut self, nodes: &[NodeId]) {
        self.together.push(nodes.to_vec());
    }

    /// Fixes the phase of a node, from 1 on. The last call for a node counts, of this and of
    /// [`Work::unpipelined`].
    pub fn phase(&mut self, node: NodeId, phase: u32) {
        self.fixed.push((node, Fixed::Phase(phase)));
    }

    /// Takes a node out of the pipeline. Its edges order nodes within each schedule iteration, whatever the
    /// phases of the other nodes. So it may mix the data of different items, see
    /// [`Phasing::warnings`](super::Phasing::warnings).
    pub fn unpipelined(&mut self, node: NodeId) {
        self.fixed.push((node, Fixed::Unpipelined));
    }
}
