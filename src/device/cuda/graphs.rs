//! Recordings that come again, launched as one: CUDA graphs, built from what was noted down.
//!
//! ```text
//! first time     remembered, and issued call by call
//! second time    the same operations: built, and launched
//! after that     what differs (addresses, numbers, sizes) is set in the built one, which is launched
//! ```
//! A launch waits for the launch before of the same instance, so one that is still at work is launched again
//! only on the lane where it is: what comes there waits anyway. Another lane gets an instance of its own. Who
//! comes with other operations than before begins anew. How many are kept is bounded; those that were used
//! longest ago go first.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode};

use super::driver::{Driver, SUCCESS};
use super::gpu::Device;
use super::memory::Use;
use super::node;
use super::ops::Ops;
use super::recording::Recording;
use crate::error::Result;

/// How many instances are kept.
const INSTANCES_MAX: usize = 256;
/// How many different recordings of one segment are remembered.
const VARIANTS_MAX: usize = 4;
/// How many segments are remembered.
const SEGMENTS_MAX: usize = 1024;
/// A graph of fewer operations costs more than their calls.
const OPS_MIN: usize = 2;
/// A graph of more would be large to keep.
const OPS_MAX: usize = 4096;
/// How often the driver may refuse a recording as a graph.
const REFUSALS_MAX: u32 = 3;

/// A device's graphs.
pub(super) struct Graphs {
    is_on: bool,
    /// By the address of the segment's key, which stays that key's because it is held.
    segments: HashMap<usize, Known>,
    instances: usize,
    /// Counts launches, to tell what was used when.
    now: u64,
}

/// What is known of a segment.
struct Known {
    key: Weak<()>,
    variants: Vec<Variant>,
    used: u64,
}

/// A recording that was seen, and may have been built.
struct Variant {
    /// For each part where its operations end.
    ends: Vec<u32>,
    ops: Ops,
    built: Option<Built>,
    /// How often the driver refused to build or launch it.
    refusals: u32,
}

struct Built {
    graph: CUgraph,
    /// The node of each operation.
    nodes: Vec<CUgraphNode>,
    instances: Vec<Instance>,
}

/// What can be launched, and is at work once at a time.
struct Instance {
    exec: CUgraphExec,
    ops: Ops,
    /// The end of its last launch.
    last: Use,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Graphs {}

impl Graphs {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, segments: HashMap::new(), instances: 0, now: 0 }
    }

    /// Launches a recording as one, if it came before. Otherwise remembers it, and returns false. Who has the
    /// device's path calls this.
    ///
    /// # Errors
    /// If the device is lost.
    pub(super) fn launch(&mut self, recording: &Recording, key: &Arc<()>) -> Result<bool> {
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
            // It may be half of what it was: the next one is built anew.
            variant.refusals += 1;
            variant.built.take().into_iter().for_each(|built| _ = built.destroy(device.driver));
        }
        let has = variant.instances();
        self.instances = self.instances + has - had;
        self.make_room(device.driver);
        // What is not fatal costs no more than the graph: calls do the same.
        launched.or_else(|_| device.alive().map(|()| false))
    }

    /// Returns what is known of this recording. The first time there is nothing, and it is remembered.
    fn recall(&mut self, recording: &Recording, key: &Arc<()>) -> Option<&mut Variant> {
        let now = self.now;
        let known = self.segments.entry(Arc::as_ptr(key).addr());
        let known = known.or_insert_with(|| Known { key: Arc::downgrade(key), variants: Vec::new(), used: now });
        known.used = now;
        let found = known.variants.iter().position(|variant| variant.is_like(recording));
        if let Some(found) = found {
            // The next one is most likely the same, and the last goes first.
            known.variants[..=found].rotate_right(1);
            return self.segments.get_mut(&Arc::as_ptr(key).addr()).map(|known| &mut known.variants[0]);
        }
        known.variants.insert(0, Variant::new(recording));
        let surplus = known.variants.len() > VARIANTS_MAX;
        let gone = if surplus { known.variants.pop() } else { None };
        gone.into_iter().for_each(|variant| self.instances -= variant.destroy(recording.device.driver));
        if self.segments.len() > SEGMENTS_MAX {
            self.forget_oldest(recording.device.driver, |_| true);
        }
        None
    }

    fn make_room(&mut self, driver: &Driver) {
        while self.instances > INSTANCES_MAX && self.segments.len() > 1 {
            self.forget_oldest(driver, |known| known.variants.iter().any(|variant| variant.instances() > 0));
        }
    }

    /// Forgets, among some, a segment of a plan that is gone, or else the one that was used longest ago.
    fn forget_oldest(&mut self, driver: &Driver, among: fn(&Known) -> bool) {
        let some = self.segments.iter().filter(|(_, known)| among(known));
        let oldest = some.min_by_key(|(_, known)| (known.key.strong_count() > 0, known.used)).map(|(&key, _)| key);
        let forgotten = oldest.and_then(|key| self.segments.remove(&key)).map_or_else(Vec::new, |known| known.variants);
        self.instances -= forgotten.into_iter().map(|variant| variant.destroy(driver)).sum::<usize>();
    }

    /// Gives everything back. The context is current.
    pub(super) fn destroy(&mut self, driver: &Driver) {
        let variants = self.segments.drain().flat_map(|(_, known)| known.variants);
        variants.for_each(|variant| _ = variant.destroy(driver));
    }
}

impl Variant {
    fn new(recording: &Recording) -> Self {
        Self { ends: ends(recording).collect(), ops: recording.ops.clone(), built: None, refusals: 0 }
    }

    /// Whether both do the same, if to other memory and with other numbers.
    fn is_like(&self, recording: &Recording) -> bool {
        // An instance's, which a launch looks at anyway: fewer lines of the cache.
        let known = self.built.as_ref().and_then(|built| built.instances.first()).map_or(&self.ops, |instance| &instance.ops);
        let is_like = || known.list().iter().zip(recording.ops.list()).all(|(known, op)| node::is_like(known, op));
        known.len() == recording.ops.len() && is_like() && self.ends.iter().copied().eq(ends(recording))
    }

    fn instances(&self) -> usize {
        self.built.as_ref().map_or(0, |built| built.instances.len())
    }

    /// Launches it. Returns true.
    fn launch(&mut self, recording: &Recording, device: &Device) -> Result<bool> {
        if self.built.is_none() {
            self.built = Some(Built::new(recording, device)?);
        }
        let built = self.built.as_mut().expect("it was built just now");
        let at = built.instance_for(recording, device)?;
        let instance = &mut built.instances[at];
        instance.update(&recording.ops, &built.nodes, device)?;
        // SAFETY: the stream is of this context; memory that the graph names is held by the recording.
        device.check(unsafe { (device.driver.exec_launch)(instance.exec, recording.stream().handle()) })?;
        instance.last = (recording.lane, device.issued(recording.lane));
        Ok(true)
    }

    /// Returns how many instances there were.
    fn destroy(self, driver: &Driver) -> usize {
        self.built.map_or(0, |built| built.destroy(driver))
    }
}

/// For each part where its operations end.
fn ends(recording: &Recording) -> impl Iterator<Item = u32> + '_ {
    (0..recording.parts.len()).map(|part| recording.ops_of(part).end as u32)
}

impl Built {
    fn new(recording: &Recording, device: &Device) -> Result<Self> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        device.check(unsafe { (device.driver.graph_create)(&mut graph, 0) })?;
        let mut built = Self { graph, nodes: Vec::with_capacity(recording.ops.len()), instances: Vec::new() };
        match built.add_nodes(recording, device) {
            Ok(()) => Ok(built),
            Err(error) => {
                built.destroy(device.driver);
                Err(error)
            }
        }
    }

    /// Adds a node for each operation: after the one before it in its part; the first of a part after what
    /// its part comes after.
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

    /// Returns where the instance is that was launched on this lane last, or else one that is not at work, or
    /// a new one. So no two were launched last on the same lane: they are at most as many as lanes, and no
    /// launch waits for another lane.
    fn instance_for(&mut self, recording: &Recording, device: &Device) -> Result<usize> {
        let own = self.instances.iter().position(|instance| instance.last.0 == recording.lane);
        let idle = || self.instances.iter().position(|instance| device.has_reached(instance.last));
        if let Some(at) = own.or_else(idle) {
            return Ok(at);
        }
        let mut exec = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        device.check(unsafe { (device.driver.graph_instantiate)(&mut exec, self.graph, 0) })?;
        // As the graph was when it was built; what differs now is set before the launch.
        let ops = self.instances.first().map_or_else(|| recording.ops.clone(), |_| Ops::default());
        self.instances.push(Instance { exec, ops, last: (recording.lane, 0) });
        Ok(self.instances.len() - 1)
    }

    fn destroy(self, driver: &Driver) -> usize {
        for instance in &self.instances {
            // SAFETY: nobody launches it again; the driver keeps what is at work.
            let code = unsafe { (driver.exec_destroy)(instance.exec) };
            debug_assert!(code == SUCCESS || !driver.fault(code).name.is_empty());
        }
        // SAFETY: nobody else has it.
        unsafe { (driver.graph_destroy)(self.graph) };
        self.instances.len()
    }
}

impl Instance {
    /// Sets what differs from the last launch.
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
