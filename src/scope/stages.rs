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
use super::body::Body;
use super::draft::{Draft, Mode, Used};
use super::group::{Group, Stages};
use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::policy::Ranked;
use crate::tiles::{Group as TileGroup, Outline, Place, conflicts};
use crate::{Name, Pipeline};

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
    let mut stages = Vec::new();
    if !before.is_empty() {
        let waits = vec![Vec::new(); places.len()];
        stages.push((Chain { draft, group, ops: &before, in_flight: 1, waits }.pipeline()?, 1));
    }
    if !batches.is_empty() {
        let waits = waits(group, &batches, outline);
        let steps = batches.iter().map(|&op| group.ops[op].skew + group.ops[op].batches).max().unwrap_or(0);
        stages.push((Chain { draft, group, ops: &batches, in_flight: group.in_flight, waits }.pipeline()?, steps));
    }
    Ok(stages)
}

fn waits(group: &Group, ops: &[usize], outline: &Outline) -> Waits {
    let mut waits: Waits = vec![Vec::new(); group.ops.len()];
    for (at, &later) in ops.iter().enumerate() {
        for &earlier in &ops[..at] {
            let [before, behind] = [&group.ops[earlier], &group.ops[later]];
            let ahead = behind.skew as i64 - before.skew as i64;
            for (_, met) in conflicts(outline, before.number, behind.number) {
                let (first, last) = ((ahead - met.lag).max(1), (ahead + met.reach).min(group.in_flight as i64 - 1));
                waits[later].extend((first..=last).map(|steps| (earlier, steps as u32)));
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
        let mut nodes: Vec<Option<Value<()>>> = vec![None; self.group.ops.len()];
        let (mut chain, mut folds) = (Links { last: None, phase: 1 }, Vec::new());
        for &op in self.ops {
            let draft = &self.draft.ops[self.group.ops[op].number];
            if draft.uses.iter().any(|used| matches!(used.of, Used::Scalar(_)) && used.mode == Mode::Read) {
                // It may read what one of them gives.
                folds.drain(..).for_each(|fold| self.combine(g, step, fold, &mut chain));
            }
            let node = match draft.body {
                Body::Task(_) | Body::Fold(_) => g.try_task(draft.name.clone(), step, move |step: &Step| step.perform(op)),
                Body::Transfer(_) => g.future(draft.name.clone(), step, move |step: Arc<Step>| step.start(op)),
            };
            let is_in_order = matches!(draft.body, Body::Transfer(_)) && self.in_flight > 1;
            chain.add(g, &node, is_in_order || !self.waits[op].is_empty());
            for &(earlier, steps) in &self.waits[op] {
                let earlier = nodes[earlier].expect("it stands before");
                g.node(&node).after_item(&earlier, steps);
            }
            if is_in_order {
                g.node(&node).after_item(&node, 1);
            }
            folds.extend(matches!(draft.body, Body::Fold(_)).then_some(op));
            nodes[op] = Some(node);
        }
        folds.into_iter().for_each(|fold| self.combine(g, step, fold, &mut chain));
        chain.last.expect("a stage has an operation")
    }

    /// Adds the node that combines the parts of a reduction, in the order of the batches.
    fn combine(&self, g: &mut Graph, step: &Value<Step>, op: usize, chain: &mut Links) {
        let name = combine_name(&self.draft.ops[self.group.ops[op].number].name);
        let node = g.task(name, step, move |step: &Step| step.combine(op));
        chain.add(g, &node, self.in_flight > 1);
        if self.in_flight > 1 {
            g.node(&node).after_item(&node, 1);
        }
    }
}

/// The nodes of a step, each behind the one before.
struct Links {
    last: Option<Value<()>>,
    phase: u32,
}

impl Links {
    fn add(&mut self, g: &mut Graph, node: &Value<()>, begins_phase: bool) {
        self.phase += u32::from(self.last.is_some() && begins_phase);
        let new = g.node(node).phase(self.phase);
        if let Some(last) = &self.last {
            new.after(last);
        }
        self.last = Some(*node);
    }
}

/// The end of the name of a node that combines the parts of a reduction.
const COMBINE: &str = " (combine)";

fn combine_name(op: &Name) -> Name {
    format!("{op}{COMBINE}").into()
}

/// Returns the operation of which a node is.
pub(super) fn op_of(node: &str) -> &str {
    node.strip_suffix(COMBINE).unwrap_or(node)
}
