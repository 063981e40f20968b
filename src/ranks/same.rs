//! Which values are the same on all ranks. A loop or a branch with communication inside must take the same
//! way on all ranks, so its decision must be such a value.
//!
//! At first all values count as the same. Then values are found that may differ, and all that depend on
//! them, until no more are found (a fixed point; loops carry values back).

use std::collections::HashMap;

use super::units::{cell_of, communication_in, graphs, infos_of, reads, values_of};
use crate::error::{Kind, Result};
use crate::graph::{ControlKind, ControlNode, Graph, NodeId, NodeShape, Origin, Ranks, Test};

/// The values that may differ between ranks, by the offsets of their cells. Each has the value that it got
/// the difference from, if it was not the first.
struct Differing {
    why: HashMap<u32, Option<u32>>,
    has_changed: bool,
}

impl Differing {
    fn has(&self, offset: u32) -> bool {
        self.why.contains_key(&offset)
    }

    fn first_of(&self, offsets: impl IntoIterator<Item = u32>) -> Option<u32> {
        offsets.into_iter().find(|&offset| self.has(offset))
    }

    fn add(&mut self, offset: u32, why: Option<u32>) {
        if !self.has(offset) {
            self.why.insert(offset, why);
            self.has_changed = true;
        }
    }

    /// Returns the value with which a difference begins.
    fn origin(&self, offset: u32) -> u32 {
        std::iter::successors(Some(offset), |at| self.why.get(at).copied().flatten()).last().unwrap_or(offset)
    }
}

/// Checks that loops and branches with communication inside take the same way on all ranks, and run on all.
///
/// # Errors
/// Names the loop or branch, the node that communicates, and the value that may differ.
pub(crate) fn check_same(graph: &Graph) -> Result<()> {
    let units = graphs(graph);
    let has_any = units.iter().flat_map(|unit| &unit.controls).next().is_some();
    if !has_any {
        return Ok(());
    }
    let reads: Vec<_> = units.iter().map(|unit| reads(unit)).collect();
    let mut differing = Differing { why: HashMap::new(), has_changed: true };
    let inputs = graph.inputs.iter().filter_map(|input| cell_of(input.of.id, input.offset));
    inputs.for_each(|input| differing.add(input, None));
    while std::mem::take(&mut differing.has_changed) {
        for (unit, reads) in units.iter().zip(&reads) {
            spread(unit, reads, &mut differing);
        }
    }
    units
        .iter()
        .try_for_each(|unit| unit.controls.iter().try_for_each(|control| check_control(graph, &units, unit, control, &differing)))
}

/// Adds the values of a graph that may differ, as far as is known.
fn spread(unit: &Graph, reads: &[Vec<u32>], differing: &mut Differing) {
    let controls: HashMap<NodeId, &ControlNode> = unit.controls.iter().map(|control| (control.node, control)).collect();
    for node in unit.shape().topological_order() {
        match controls.get(&node) {
            // The one value of a rank goes to the others.
            Some(_) if matches!(unit.shape().nodes()[node.index()].ranks, Some(Ranks::Same | Ranks::One(_))) => {}
            Some(control) => spread_control(unit, control, differing),
            None => {
                let why = differs(&unit.shape().nodes()[node.index()], &reads[node.index()], differing);
                if let Some(why) = why {
                    values_of(unit, node).for_each(|value| differing.add(value, why));
                }
            }
        }
    }
}

/// Returns whether the values of a node may differ, and the value that it reads which is the reason.
fn differs(node: &NodeShape, reads: &[u32], differing: &Differing) -> Option<Option<u32>> {
    match (node.ranks, &node.communication) {
        // The one value of a rank goes to the others.
        (Some(Ranks::Same | Ranks::One(_)), _) => None,
        (Some(Ranks::Each), _) => Some(None),
        (None, Some(communication)) => (!communication.gives_same()).then_some(None),
        (None, None) if reads.is_empty() => Some(None),
        (None, None) => differing.first_of(reads.iter().copied()).map(Some),
    }
}

/// Returns the value by which a control decides, if there is one.
fn decision(control: &ControlNode) -> Option<u32> {
    match &control.flow {
        ControlKind::Repeat { test: Test::Value(asked), .. } => Some(asked.offset),
        ControlKind::Repeat { test: Test::Times(_), .. } => None,
        ControlKind::Branch { selector, .. } => Some(*selector),
    }
}

/// A state may differ if its first value, a later value, or the way that the control takes may.
fn spread_control(unit: &Graph, control: &ControlNode, differing: &mut Differing) {
    let values = infos_of(unit, control.node);
    for (at, state) in control.states.iter().enumerate() {
        // The states are the values of the control. A unit is the same everywhere.
        if values.get(at).is_some_and(|value| cell_of(value.of.id, value.offset).is_none()) {
            continue;
        }
        let results = control.flow.givers().iter().filter_map(|giver| match giver.results.get(at)? {
            Origin::State(from) => Some(control.states[*from as usize].offset),
            Origin::Node { offset, .. } | Origin::Around(offset) => Some(*offset),
            Origin::Nowhere => None,
        });
        let all: Vec<u32> = [state.first].into_iter().chain(results).chain(decision(control)).collect();
        if let Some(why) = differing.first_of(all) {
            differing.add(state.offset, Some(why));
        }
    }
}

fn check_control(graph: &Graph, units: &[&Graph], unit: &Graph, control: &ControlNode, differing: &Differing) -> Result<()> {
    let Some((inside, node)) = communication_in(unit, control) else { return Ok(()) };
    let (name, node) = (unit.full_name(control.node), inside.full_name(node));
    let Some(offset) = decision(control).filter(|&offset| differing.has(offset)) else { return Ok(()) };
    let (by, from) = (name_of(graph, units, offset), name_of(graph, units, differing.origin(offset)));
    let by = if by == from { by } else { format!("{by}, which depends on {from}") };
    let fault = format!(
        "communicates inside ('{node}'), so all ranks must take the same way, but it decides by {by}, of which each rank may have its own: let it decide by the value of an all-reduce, all-gather or broadcast, or mark the node with `replicated()`"
    );
    Err(Kind::Body { node: name, fault }.into())
}

/// Returns the name of the value in a cell.
fn name_of(graph: &Graph, units: &[&Graph], offset: u32) -> String {
    if let Some(input) = graph.inputs.iter().find(|input| input.offset == offset) {
        return format!("the input '{}'", input.name);
    }
    let made = units.iter().find_map(|unit| {
        let node = unit.shape().ids().find(|&node| values_of(unit, node).any(|value| value == offset))?;
        Some(format!("'{}'", unit.full_name(node)))
    });
    made.unwrap_or_else(|| "a value".into())
}
