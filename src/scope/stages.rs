//! From a group to pipelines: an item is a step, and a node is an operation. At a step, operations follow
//! each other in the order of the scope.
//!
//! What an operation needs of earlier steps, it waits for: if its batch b meets batches b - reach to b + lag
//! of an operation before it, these ran at the steps from
//!
//! ```text
//!  s - (its skew + reach - skew before)   to   s - (its skew - lag - skew before)
//! ```
//! Each of these that is not step s itself is an edge from item to item. With n batches in flight, a step
//! does not begin before all steps up to n before it have ended. So no edge is longer, and no memory is used
//! again too early: a ring has n - 1 more tiles than its window.

use std::sync::Arc;

use super::batch::Step;
use super::body::{Body, Landing};
use super::draft::{Draft, Mode, OpDraft, StoreDraft, Used};
use super::group::{Group, Stages};
use crate::Pipeline;
use crate::device::DeviceStream;
use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::policy::Ranked;
use crate::tiles::{Group as TileGroup, Outline, Place, conflicts};

/// The nodes of a stage, with the operations that they are.
struct Chain<'c> {
    draft: &'c Draft,
    group: &'c Group,
    /// The places of its operations in the group.
    ops: &'c [usize],
    in_flight: u64,
    waits: Waits,
}

/// For each operation of a group: which others it waits for, and of how many steps before.
type Waits = Vec<Vec<(usize, u32)>>;

/// Returns the pipelines of a group.
pub(super) fn stages(draft: &Draft, group: &Group, streams: &TileGroup, outline: &Outline) -> Result<Stages> {
    let places: Vec<Place> = streams.places().copied().collect();
    let of =
        |is_before: bool| (0..places.len()).filter(|&op| matches!(places[op], Place::Before) == is_before).collect::<Vec<_>>();
    let (before, batches) = (of(true), of(false));
    let is_on_device = group.storages.iter().any(|storage| storage.is_on_device) || group.ops.iter().any(|op| op.parts.is_some());
    let mut stages = Vec::new();
    if is_on_device {
        stages.push((memory(draft)?, 1));
    }
    if !before.is_empty() {
        let waits = vec![Vec::new(); places.len()];
        stages.push((Chain { draft, group, ops: &before, in_flight: 1, waits }.pipeline()?, 1));
    }
    if !batches.is_empty() {
        let waits = waits(group, &batches, outline);
        let rounds = batches.iter().map(|&op| group.ops[op].skew + group.ops[op].batches).max().unwrap_or(0);
        let chain = Chain { draft, group, ops: &batches, in_flight: group.in_flight, waits };
        stages.push((chain.pipeline()?, rounds.div_ceil(group.chunk)));
    }
    Ok(stages)
}

/// Returns the pipeline of one step that makes the memory of a group on the device.
fn memory(draft: &Draft) -> Result<Pipeline<Step, ()>> {
    let bytes = |store: &StoreDraft| store.extents.iter().product::<u64>() * store.element_bytes;
    let bytes: Vec<u64> = draft.stores.iter().map(bytes).collect();
    Pipeline::new(draft.name.clone(), &Ranked::default(), |g: &mut Graph, step: Value<Step>| {
        g.try_kernel("memory", &step, move |s: &mut DeviceStream, step: &Step| step.allocate(s, &bytes))
    })
}

fn waits(group: &Group, ops: &[usize], outline: &Outline) -> Waits {
    let mut waits: Waits = vec![Vec::new(); group.ops.len()];
    for (at, &later) in ops.iter().enumerate() {
        for &earlier in &ops[..at] {
            let [before, behind] = [&group.ops[earlier], &group.ops[later]];
            let ahead = behind.skew as i64 - before.skew as i64;
            for (_, met) in conflicts(outline, before.number, behind.number) {
                // In rounds; a step has `chunk` of them, and begins anywhere in one.
                let (first, last) = ((ahead - met.lag).max(1), ahead + met.reach);
                if first <= last {
                    let chunk = group.chunk as i64;
                    let (first, last) = ((first / chunk).max(1), last.div_euclid(chunk) + i64::from(last % chunk > 0));
                    let steps = first..=last.min(group.in_flight as i64 - 1);
                    waits[later].extend(steps.map(|steps| (earlier, steps as u32)));
                }
            }
        }
        waits[later].sort_unstable();
        waits[later].dedup();
    }
    waits
}

impl Chain<'_> {
    fn pipeline(&self) -> Result<Pipeline<Step, ()>> {
        let pipeline = Pipeline::new(self.draft.name.clone(), &Ranked::default(), |g, step| self.build(g, &step))?;
        pipeline.in_flight(self.in_flight as u32)
    }

    /// Adds the nodes. A phase begins at each node that waits for an earlier step: those before it do not.
    fn build(&self, g: &mut Graph, step: &Value<Step>) -> Value<()> {
        let nodes = vec![None; self.group.ops.len()];
        let (mut links, mut folds) = (Links { g, step, nodes, last: None, phase: 1 }, Vec::new());
        let mut ops = self.ops;
        while let Some(&op) = ops.first() {
            if self.reads_scalar(op) {
                // It may read what one of them gives.
                folds.drain(..).for_each(|fold| self.combine(&mut links, fold));
            }
            let (own, rest) = ops.split_at(self.together(ops));
            let node = if own.len() > 1 { self.several(&mut links, own) } else { self.op(&mut links, op) };
            for &op in own {
                links.nodes[op] = Some(node);
                folds.extend(matches!(self.draft(op).body, Body::Fold(..)).then_some(op));
            }
            ops = rest;
        }
        folds.into_iter().for_each(|fold| self.combine(&mut links, fold));
        links.last.expect("a stage has an operation")
    }

    fn reads_scalar(&self, op: usize) -> bool {
        self.draft(op).uses.iter().any(|used| matches!(used.of, Used::Scalar(_)) && used.mode == Mode::Read)
    }

    /// Returns how many of the first operations one node can run: they are closures on the host, and all but
    /// the first wait for nothing but those before them.
    fn together(&self, ops: &[usize]) -> usize {
        if self.group.is_apart {
            // They have memory of tiles for as long as the node runs.
            return ops.iter().take_while(|&&op| self.group.ops[op].batches > 1).count().max(1);
        }
        let is_plain = |&op: &usize| self.draft(op).body.is_closure();
        let follows = |op: &usize| is_plain(op) && self.waits[*op].is_empty() && !self.reads_scalar(*op);
        if !is_plain(&ops[0]) { 1 } else { 1 + ops[1..].iter().take_while(|op| follows(op)).count() }
    }

    /// Adds the node of several operations.
    fn several(&self, links: &mut Links<'_>, own: &[usize]) -> Value<()> {
        let (name, ops) = (format!("{}{MORE}", self.draft(own[0]).name), own.to_vec());
        let node = links.g.try_task(name, links.step, move |step: &Step| step.perform(&ops));
        let node = self.link(links, own[0], node);
        links.last = Some(node);
        node
    }

    fn draft(&self, op: usize) -> &OpDraft {
        &self.draft.ops[self.group.ops[op].number]
    }

    /// Adds the nodes of an operation, and returns the last one.
    fn op(&self, links: &mut Links<'_>, op: usize) -> Value<()> {
        let OpDraft { name, body, .. } = self.draft(op);
        let (name, step) = (name.clone(), links.step);
        if let Some(kernel) = body.kernel() {
            if !kernel.lands() {
                let enqueue = move |s: &mut DeviceStream, step: &Step| step.enqueue(op, s).map(drop);
                let node = links.g.try_kernel(name, step, enqueue);
                links.last = Some(self.link(links, op, node));
                return node;
            }
            let enqueue = move |s: &mut DeviceStream, step: &Step| step.enqueue(op, s);
            let copy = links.g.try_kernel(format!("{name}{COPY}"), step, enqueue);
            self.link(links, op, copy);
            let land = move |step: &Step, landing: &Option<Landing>| step.land(op, landing);
            let node = links.g.task(name, (step, &copy), land);
            links.g.node(&node).phase(links.phase);
            links.last = Some(node);
            return node;
        }
        let node = match body {
            Body::Transfer(..) => links.g.future(name, step, move |step: Arc<Step>| step.start(op)),
            _ => links.g.try_task(name, step, move |step: &Step| step.perform(&[op])),
        };
        links.last = Some(self.link(links, op, node));
        node
    }

    /// Orders the first node of an operation behind what it waits for.
    fn link<T: Send + Sync + 'static>(&self, links: &mut Links<'_>, op: usize, node: Value<T>) -> Value<T> {
        let is_in_order = matches!(self.draft(op).body, Body::Transfer(_, true)) && self.in_flight > 1;
        links.add(&node, is_in_order || !self.waits[op].is_empty());
        for &(earlier, steps) in &self.waits[op] {
            let earlier = links.nodes[earlier].expect("it stands before");
            links.g.node(&node).after_item(&earlier, steps);
        }
        if is_in_order {
            links.g.node(&node).after_item(&node, 1);
        }
        node
    }

    /// Adds the node that combines the parts of a reduction, in the order of the batches.
    fn combine(&self, links: &mut Links<'_>, op: usize) {
        let name = format!("{}{COMBINE}", self.draft(op).name);
        let node = links.g.task(name, links.step, move |step: &Step| step.combine(op));
        links.add(&node, self.in_flight > 1);
        links.last = Some(node);
        if self.in_flight > 1 {
            links.g.node(&node).after_item(&node, 1);
        }
    }
}

/// The nodes of a step while they are added, each behind the one before.
struct Links<'g> {
    g: &'g mut Graph,
    step: &'g Value<Step>,
    /// The last node of each operation.
    nodes: Vec<Option<Value<()>>>,
    last: Option<Value<()>>,
    phase: u32,
}

impl Links<'_> {
    fn add<T: 'static>(&mut self, node: &Value<T>, begins_phase: bool) {
        self.phase += u32::from(self.last.is_some() && begins_phase);
        let new = self.g.node(node).phase(self.phase);
        if let Some(last) = &self.last {
            new.after(last);
        }
    }
}

/// The ends of the names of nodes that combine the parts of a reduction, that copy to the host, and that run
/// more than one operation.
const COMBINE: &str = " (combine)";
const COPY: &str = " (copy)";
const MORE: &str = " (and more)";
