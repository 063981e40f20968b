//! The CUDA graphs of a device: the recordings that are remembered, and their bounds. `replay` builds and
//! launches graphs.

use std::collections::HashMap;
use std::sync::Weak;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode};

use super::driver::{Driver, SUCCESS};
use super::dropped::Point;
use super::ops::Ops;

/// The most instances that are kept.
const INSTANCES_MAX: usize = 256;
/// The most different recordings of one segment that are remembered.
pub(super) const VARIANTS_MAX: usize = 4;
/// The most segments that are remembered.
pub(super) const SEGMENTS_MAX: usize = 1024;

pub(super) struct Graphs {
    pub(super) is_on: bool,
    /// By the address of the segment's key and the place of its values. The key is kept, so that no other key
    /// gets its address. Each item in flight has a graph, whose addresses stay the same.
    pub(super) segments: HashMap<(usize, u32), Known>,
    /// The number of launches, as a clock for the last use.
    pub(super) now: u64,
}

/// A segment that was seen.
pub(super) struct Known {
    pub(super) key: Weak<()>,
    pub(super) variants: Vec<Variant>,
    pub(super) used: u64,
}

/// A recording that was seen, and may have been built.
pub(super) struct Variant {
    /// The end of each part's operations.
    pub(super) ends: Vec<u32>,
    pub(super) ops: Ops,
    pub(super) built: Option<Built>,
    /// The number of times that the driver refused to build or launch it.
    pub(super) refusals: u32,
}

pub(super) struct Built {
    pub(super) driver: &'static Driver,
    pub(super) graph: CUgraph,
    /// The node of each operation.
    pub(super) nodes: Vec<CUgraphNode>,
    pub(super) instances: Vec<Instance>,
}

/// An instance, which runs one launch at a time.
pub(super) struct Instance {
    pub(super) exec: CUgraphExec,
    pub(super) ops: Ops,
    /// The end of the last launch.
    pub(super) last: Point,
}

// SAFETY: `Graphs` owns its handles, and any thread may use the driver's handles.
unsafe impl Send for Graphs {}

impl Graphs {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, segments: HashMap::new(), now: 0 }
    }

    /// Forgets segments until the number of instances is within its bound.
    pub(super) fn make_room(&mut self) {
        while self.segments.len() > 1 && self.segments.values().map(Known::instances).sum::<usize>() > INSTANCES_MAX {
            self.forget_oldest(|known| known.instances() > 0);
        }
    }

    /// Forgets one of the segments that `among` accepts: one whose plan is gone, or else the least recently
    /// used one.
    pub(super) fn forget_oldest(&mut self, among: fn(&Known) -> bool) {
        let some = self.segments.iter().filter(|(_, known)| among(known));
        let oldest = some.min_by_key(|(_, known)| (known.key.strong_count() > 0, known.used)).map(|(&key, _)| key);
        oldest.map(|key| self.segments.remove(&key));
    }
}

impl Known {
    fn instances(&self) -> usize {
        self.variants.iter().map(Variant::instances).sum()
    }
}

impl Variant {
    pub(super) fn instances(&self) -> usize {
        self.built.as_ref().map_or(0, |built| built.instances.len())
    }
}

impl Drop for Built {
    /// The device's context is current.
    fn drop(&mut self) {
        for instance in &self.instances {
            // SAFETY: `self` owns the instance, so no later launch uses it. The driver keeps an instance that
            // still runs.
            let code = unsafe { (self.driver.exec_destroy)(instance.exec) };
            debug_assert!(code == SUCCESS || !self.driver.fault(code).name.is_empty());
        }
        // SAFETY: `self` owns the graph, and its instances are independent of it.
        unsafe { (self.driver.graph_destroy)(self.graph) };
    }
}
