//! The parts that all plans of a graph share, for any policy: for the graph and each inner graph the bodies,
//! the facts about values, and the loops and branches.

use std::sync::Arc;

use super::code::{ControlDraft, ControlFlow};
use super::nest::{InnerGraphs, Nested, nested};
use crate::error::Result;
use crate::graph::{Body, Control, ControlKind, Graph, NodeId, Transfer};
use crate::value::Arena;

/// The outermost graph, followed by the inner graphs in the order of
/// [`Schedule::inner`](super::Schedule::inner).
pub(super) struct Fabric(Vec<Unit>);

pub(super) struct Unit {
    pub(super) facts: Vec<Facts>,
    pub(super) bodies: Arena<dyn Body>,
    pub(super) controls: Vec<Arc<ControlDraft>>,
    pub(super) left_behind: Vec<(u32, &'static Transfer)>,
}

/// Facts about a node and its value.
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
    /// The node's value, and all values that it reads, are in place.
    pub(super) is_in_place: bool,
}

impl Graph {
    /// Returns all inner graphs, at any depth. Each comes after the graph around it.
    pub(super) fn nested(&self) -> Vec<Nested<&Graph>> {
        nested(self.own_inner(), |graph| graph.own_inner())
    }

    /// Returns the inner graphs of the loops and branches.
    fn own_inner(&self) -> InnerGraphs<&Self> {
        let controls = self.controls.iter();
        let inner = controls.flat_map(|control| control.flow.inner().map(move |(id, role)| (control.node, role, id)));
        inner.map(|(node, role, id)| (node, role, self.inner.get(id))).collect()
    }
}

/// Returns the most iterations of a loop.
fn max_iterations(graph: &Graph, node: NodeId) -> u64 {
    match graph.shape().nodes()[node.index()].control.as_deref() {
        Some(Control::Repeat { max_iterations: Some(max), .. }) => *max,
        _ => u64::MAX,
    }
}

impl Fabric {
    pub(super) fn new(graph: &Graph, nested: &[Nested<&Graph>]) -> Result<Self> {
        let graphs = std::iter::once(graph).chain(nested.iter().map(|nested| nested.graph));
        // Scopes are numbered as by `nested`.
        let mut next_scope = 0;
        let mut units = Vec::with_capacity(nested.len() + 1);
        for unit in graphs {
            let mut controls = Vec::with_capacity(unit.controls.len());
            for control in &unit.controls {
                let carries = unit.carries(control)?;
                let mut scope = || {
                    next_scope += 1;
                    next_scope - 1
                };
                let flow = match &control.flow {
                    ControlKind::Repeat { condition, test, .. } => ControlFlow::Repeat {
                        condition: condition.map(|_| scope()),
                        test: *test,
                        body: scope(),
                        max_iterations: max_iterations(unit, control.node),
                    },
                    ControlKind::Branch { selector, select, arms } => {
                        let arms = arms.iter().map(|_| scope()).collect();
                        ControlFlow::Branch { selector: *selector, select: *select, arms }
                    }
                };
                let cells = control.states.iter().flat_map(|state| {
                    let spare = (state.spare != u32::MAX).then_some(state.spare);
                    [Some(state.offset), spare].into_iter().flatten().map(|at| (at, state.transfer))
                });
                controls.push(Arc::new(ControlDraft { node: control.node, flow, carries, cells: cells.collect() }));
            }
            units.push(Unit { facts: unit.facts(), bodies: unit.bodies.clone(), controls, left_behind: unit.left_behind() });
        }
        Ok(Self(units))
    }

    /// Returns the outermost graph, or an inner one.
    pub(super) fn unit(&self, inner: Option<usize>) -> &Unit {
        &self.0[inner.map_or(0, |inner| inner + 1)]
    }

    pub(super) fn units(&self) -> impl Iterator<Item = &Unit> {
        self.0.iter()
    }

    /// Returns whether a body may only enqueue its work.
    pub(super) fn has_queued(&self) -> bool {
        self.units().any(|unit| unit.facts.iter().any(|facts| facts.is_queued))
    }
}
