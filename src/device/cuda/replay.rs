//! Recordings that repeat are launched as one: as CUDA graphs, built from the recorded operations.
//!
//! ```text
//! first time     remembered, and issued call by call
//! second time    the same operations: built, and launched
//! later          what differs (addresses, numbers, sizes) is set in the built graph, which is launched
//! ```
//! A launch waits for the previous launch of the same instance. So an instance that still runs is launched
//! again only on its own lane, where the work is ordered anyway; another lane gets an instance of its own. A
//! recording with other operations starts again as the first time. The number of kept graphs is bounded; the
//! least recently used go first.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::sys::CUgraphNode;

use super::device::Device;
use super::graphs::{Built, Graphs, Instance, Known, SEGMENTS_MAX, VARIANTS_MAX, Variant};
use super::node;
use super::ops::Ops;
use super::recording::Recording;
use crate::error::Result;

/// The fewest operations of a graph: with fewer, it costs more than their calls.
const OPS_MIN: usize = 2;
/// The most operations of a graph: with more, it would take much memory.
const OPS_MAX: usize = 4096;
/// The number of times that the driver may refuse a recording as a graph.
const REFUSALS_MAX: u32 = 3;

impl Graphs {
    /// Launches a recording as one graph, if it was seen before. Otherwise remembers it, and returns false.
    /// The caller holds the device's path.
    ///
    /// # Errors
    /// If the device is lost.
    pub(super) fn launch(&mut self, recording: &Recording, key: (&Arc<()>, u32)) -> Result<bool> {
        let ops = &recording.ops;
        if !self.is_on
            || !(OPS_MIN..=OPS_MAX).contains(&ops.len())
            || recording.flushed.is_some()
            || ops.list().iter().any(node::is_foreign)
        {
            return Ok(false);
        }
        self.now += 1;
        let Some(variant) = self.recall(recording, key) else { return Ok(false) };
        if variant.refusals == REFUSALS_MAX {
            return Ok(false);
        }
        let device = &*recording.device;
        let had = variant.instances();
        let launched = variant.launch(recording, device);
        if launched.is_err() {
            // Only some nodes may be set, so the next launch builds the graph again.
            variant.refusals += 1;
            variant.built = None;
        }
        if variant.instances() > had {
            self.make_room();
        }
        // After an error that is not fatal, the recording is issued call by call.
        launched.or_else(|_| device.context.alive().map(|()| false))
    }

    /// Returns the variant of this recording. The first time there is none, and the recording is remembered.
    fn recall(&mut self, recording: &Recording, (key, place): (&Arc<()>, u32)) -> Option<&mut Variant> {
        let now = self.now;
        let of = (Arc::as_ptr(key).addr(), place);
        let known =
            self.segments.entry(of).or_insert_with(|| Known { key: Arc::downgrade(key), variants: Vec::new(), used: now });
        known.used = now;
        let found = known.variants.iter().position(|variant| variant.is_like(recording));
        if let Some(found) = found {
            // The next recording is most likely the same one. The last variant is dropped first.
            known.variants[..=found].rotate_right(1);
            return self.segments.get_mut(&of).map(|known| &mut known.variants[0]);
        }
        known.variants.insert(0, Variant::new(recording));
        known.variants.truncate(VARIANTS_MAX);
        if self.segments.len() > SEGMENTS_MAX {
            self.forget_oldest(|_| true);
        }
        None
    }
}

impl Variant {
    fn new(recording: &Recording) -> Self {
        Self { ends: ends(recording).collect(), ops: recording.ops.clone(), built: None, refusals: 0 }
    }

    /// Returns true if both have the same operations, except for addresses, numbers and sizes.
    fn is_like(&self, recording: &Recording) -> bool {
        // Compares with the operations of an instance: a launch reads these anyway, which saves cache lines.
        let known = self.built.as_ref().and_then(|built| built.instances.first()).map_or(&self.ops, |instance| &instance.ops);
        let is_like = || known.list().iter().zip(recording.ops.list()).all(|(known, op)| node::is_like(known, op));
        known.len() == recording.ops.len() && is_like() && self.ends.iter().copied().eq(ends(recording))
    }

    /// Launches the graph. Returns true.
    fn launch(&mut self, recording: &Recording, device: &Device) -> Result<bool> {
        if self.built.is_none() {
            self.built = Some(Built::new(recording, device)?);
        }
        let built = self.built.as_mut().expect("it was built just now");
        let at = built.instance_for(recording, device)?;
        let instance = &mut built.instances[at];
        instance.update(&recording.ops, &built.nodes, device)?;
        // SAFETY: the instance and the stream belong to the context that `device` retains. The recording
        // holds the memory that the operations name.
        device.context.check(unsafe { (device.driver.exec_launch)(instance.exec, recording.stream().handle()) })?;
        instance.last = (recording.lane, device.issued(recording.lane));
        Ok(true)
    }
}

/// Returns the end of each part's operations.
fn ends(recording: &Recording) -> impl Iterator<Item = u32> + '_ {
    (0..recording.parts.len()).map(|part| recording.ops_of(part).end as u32)
}

impl Built {
    fn new(recording: &Recording, device: &Device) -> Result<Self> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the call writes one handle, and `graph` outlives it.
        device.context.check(unsafe { (device.driver.graph_create)(&mut graph, 0) })?;
        let nodes = Vec::with_capacity(recording.ops.len());
        let mut built = Self { driver: device.driver, graph, nodes, instances: Vec::new() };
        built.add_nodes(recording, device)?;
        Ok(built)
    }

    /// Adds a node for each operation, after the previous one of its part. The first node of a part comes
    /// after the last nodes of the parts that its part waits for.
    fn add_nodes(&mut self, recording: &Recording, device: &Device) -> Result<()> {
        let mut last_on: HashMap<u32, usize> = HashMap::new();
        let mut fronts: Vec<Vec<CUgraphNode>> = Vec::with_capacity(recording.parts.len());
        for (part, noted) in recording.parts.iter().enumerate() {
            let before = last_on.insert(noted.stream, part).into_iter();
            let before = before.chain(recording.waits_of(part).iter().map(|&other| other as usize));
            let mut front: Vec<CUgraphNode> = before.flat_map(|other| fronts[other].iter().copied()).collect();
            front.sort_unstable();
            front.dedup();
            for op in recording.ops_of(part) {
                let node = node::add(device, self.graph, &front, &recording.ops, op)?;
                self.nodes.push(node);
                front = vec![node];
            }
            fronts.push(front);
        }
        Ok(())
    }

    /// Returns the place of the instance that was last launched on this lane, or else of an idle one, or of a
    /// new one. So no two instances were last launched on the same lane: there are at most as many as lanes,
    /// and no launch waits for another lane.
    fn instance_for(&mut self, recording: &Recording, device: &Device) -> Result<usize> {
        let own = self.instances.iter().position(|instance| instance.last.0 == recording.lane);
        let idle = || self.instances.iter().position(|instance| device.has_reached(instance.last));
        if let Some(at) = own.or_else(idle) {
            return Ok(at);
        }
        let mut exec = std::ptr::null_mut();
        // SAFETY: the call writes one handle, and `exec` outlives it.
        device.context.check(unsafe { (device.driver.graph_instantiate)(&mut exec, self.graph, 0) })?;
        // The first instance has the operations that the graph was built from. The launch sets the others.
        let ops = self.instances.first().map_or_else(|| recording.ops.clone(), |_| Ops::default());
        self.instances.push(Instance { exec, ops, last: (recording.lane, 0) });
        Ok(self.instances.len() - 1)
    }
}

impl Instance {
    /// Sets the nodes whose operations differ from the last launch.
    fn update(&mut self, ops: &Ops, nodes: &[CUgraphNode], device: &Device) -> Result<()> {
        let is_known = self.ops.len() == ops.len();
        let mut has_changed = false;
        for (at, &node) in nodes.iter().enumerate() {
            if !is_known || !self.ops.is_same(ops, at) {
                node::set(device, self.exec, node, ops, at)?;
                has_changed = true;
            }
        }
        if has_changed {
            self.ops.set(ops);
        }
        Ok(())
    }
}
