//! Loops and branches of a shape: a state gets the type of its first value, and each inner graph is loaded
//! where the builder would build it.

use std::any::TypeId;
use std::cell::OnceCell;
use std::sync::Arc;

use super::Loader;
use crate::error::{Error, Result};
use crate::graph::bodies::Loose;
use crate::graph::builder::Graph;
use crate::graph::control_node::{ControlKind, Origin, State};
use crate::graph::select::Test;
use crate::graph::values::Use;
use crate::graph::{Backend, Control, NodeId, Role, Shape};

/// The expected number of iterations, and the maximum.
type Bounds = (u64, Option<u64>);

impl Loader<'_> {
    /// Adds a loop. Returns its last states.
    pub(super) fn add_loop(
        &self,
        graph: &mut Graph,
        node: NodeId,
        condition: Option<&Shape>,
        body: &Shape,
        (iterations, max_iterations): Bounds,
        first: &[Loose],
    ) -> Result<Vec<Loose>> {
        if first.is_empty() {
            return Err(self.fault(node, "is a loop and reads nothing: what it reads are its states".into()));
        }
        let new = graph.shape_mut().node(self.shape.name_of(node).clone(), Backend::Cpu);
        let inside = Inside::new(self, graph, node, new, (first, 0));
        let ask = |inner: &mut Graph| inside.test(inner, condition, iterations);
        graph.make_loop(inside.at, ask, |inner| inside.origins(inner, Role::Body, body));
        if let Some(Control::Repeat { iterations: expected, max_iterations: max, .. }) = graph.control_mut(new) {
            (*expected, *max) = (iterations, max_iterations);
        }
        inside.close(graph)
    }

    /// Adds a branch. Returns its values.
    pub(super) fn add_branch(
        &self,
        graph: &mut Graph,
        node: NodeId,
        arms: &[Arc<Shape>],
        taken: Option<u32>,
        given: &[Loose],
    ) -> Result<Vec<Loose>> {
        let Some((selector, first @ [_, ..])) = given.split_first() else {
            return Err(
                self.fault(node, "is a branch, and needs two inputs or more: its selector, and what goes through it".into())
            );
        };
        let select = selector.decides.select.ok_or_else(|| {
            let of = selector.of.name;
            self.fault(
                node,
                format!("reads a `{of}` first, which selects no arm: give the body that makes it by `Bodies::selector`"),
            )
        })?;
        let new = graph.shape_mut().node(self.shape.name_of(node).clone(), Backend::Cpu);
        let selector = graph.read_own(selector.value, new, Use::Read);
        let inside = Inside::new(self, graph, node, new, (first, 1));
        graph.controls[inside.at].flow = ControlKind::Branch { selector, select, arms: Vec::new() };
        for (arm, number) in arms.iter().zip(0..) {
            graph.add_arm(inside.at, |inner| inside.origins(inner, Role::Arm(number), arm));
        }
        if let Some(Control::Branch { taken: expected, .. }) = graph.control_mut(new) {
            *expected = taken;
        }
        inside.close(graph)
    }
}

/// Adds the reads of the first values of a loop's or a branch's states, or takes them.
fn enter(graph: &mut Graph, node: NodeId, first: &[Loose], is_taken: impl Fn(u32) -> bool) -> Vec<State> {
    let state = |(first, number): (&Loose, u32)| {
        let (transfer, name) = (first.of.transfer, graph.state_name(node, number, Some(first.value)));
        let is_taken = is_taken(number);
        let from = graph.read_own(first.value, node, if is_taken { Use::Take } else { Use::Keep });
        let offset = (transfer.place)(&mut graph.layout);
        State { offset, spare: u32::MAX, first: from, is_taken, name, transfer }
    };
    first.iter().zip(0..).map(state).collect()
}

/// Adds states to `graph`: as values of `maker`, or as its inputs if it is an inner graph.
fn loose(graph: &mut Graph, maker: Option<NodeId>, first: &[Loose], states: &[State]) -> Vec<Loose> {
    let value = |(first, state): (&Loose, &State)| Loose { value: graph.state_value(maker, first.of, state), ..*first };
    first.iter().zip(states).map(value).collect()
}

/// A loop or a branch whose inner graphs are being loaded.
struct Inside<'a> {
    loader: &'a Loader<'a>,
    node: NodeId,
    /// The first values of its states.
    first: &'a [Loose],
    states: Vec<State>,
    /// Its place among the controls of its graph.
    at: usize,
    /// The states after its end.
    outs: Vec<Loose>,
    /// The first fault of an inner graph. It is not kept in the graph, because a body may replace the graph.
    fault: OnceCell<Error>,
}

impl<'a> Inside<'a> {
    /// Adds a control for `node`, without inner graphs, as node `new` of `graph`. Its states begin with
    /// `first`. It has `before` other inputs before these.
    fn new(loader: &'a Loader<'a>, graph: &mut Graph, node: NodeId, new: NodeId, (first, before): (&'a [Loose], u32)) -> Self {
        let states = enter(graph, new, first, |state| loader.shape.is_taken(node, state + before));
        let outs = loose(graph, Some(new), first, &states);
        let at = graph.add_empty_control(new, outs[0].value, states.clone());
        Self { loader, node, first, states, at, outs, fault: OnceCell::new() }
    }

    /// Loads an inner graph. Returns the values that it gives.
    fn load(&self, inner: &mut Graph, role: Role, shape: &Shape) -> Result<Vec<Loose>> {
        let views = loose(inner, None, self.first, &self.states);
        let Loader { bodies, depth, .. } = *self.loader;
        let mut loader = Loader::new(bodies, shape, format!("{}/", self.path(role)), depth + 1);
        loader.load(inner, &views)?;
        Ok(loader.outputs()?.into_iter().map(|(_, _, value)| value).collect())
    }

    fn path(&self, role: Role) -> String {
        format!("{}{}/{role}", self.loader.path, self.loader.shape.name_of(self.node))
    }

    /// Loads the body or an arm. Returns the origins of the new states.
    fn origins(&self, inner: &mut Graph, role: Role, shape: &Shape) -> Vec<Origin> {
        let given = self.load(inner, role, shape).and_then(|given| match self.misfit(&given, role) {
            None => Ok(given),
            Some(fault) => Err(self.loader.fault(self.node, fault)),
        });
        let kept = (0..self.states.len() as u32).map(Origin::State);
        match given {
            Err(fault) => {
                _ = self.fault.set(fault);
                kept.collect()
            }
            Ok(given) => {
                let new: Vec<Origin> = given.iter().map(|given| inner.own_origin(given.value)).collect();
                let count = new.len();
                new.into_iter().chain(kept.skip(count)).collect()
            }
        }
    }

    /// Returns why `given` cannot be the new states, or None if they can.
    fn misfit(&self, given: &[Loose], role: Role) -> Option<String> {
        if given.len() > self.first.len() {
            return Some(format!("gives {} values with its {role}, more than it has states", given.len()));
        }
        let mut pairs = given.iter().zip(self.first).zip(0..);
        let ((given, first), state): (_, u32) = pairs.find(|((given, first), _)| given.of.id != first.of.id)?;
        let is_unit = given.of.id == TypeId::of::<()>();
        let hint = if is_unit { ": if nothing is to come out of there, write \"outputs\": []" } else { "" };
        let (given, first) = (given.of.name, first.of.name);
        Some(format!("has a `{first}` as state {state}, counted from 0, and its {role} gives a `{given}` for it{hint}"))
    }

    /// Loads the condition of a loop, if it has one.
    fn test(&self, inner: &mut Graph, condition: Option<&Shape>, iterations: u64) -> Test {
        let Some(shape) = condition else { return Test::Times(iterations) };
        let test = self.load(inner, Role::Condition, shape).and_then(|given| match given[..] {
            [Loose { value, decides, of }] => decides.test.map(|test| test(inner, value)).ok_or_else(|| {
                let of = of.name;
                let fault =
                    format!("goes on by a `{of}`, which does not say that: give the body that makes it by `Bodies::condition`");
                self.loader.fault(self.node, fault)
            }),
            _ => {
                let fault = format!("has a condition of {} values: name the one that decides in its outputs", given.len());
                Err(self.loader.fault(self.node, fault))
            }
        });
        test.unwrap_or_else(|fault| {
            _ = self.fault.set(fault);
            Test::Times(0)
        })
    }

    /// Ends the control. Returns its states after the end.
    fn close(self, graph: &Graph) -> Result<Vec<Loose>> {
        match self.fault.into_inner().or_else(|| graph.fault()) {
            Some(fault) => Err(fault),
            None => Ok(self.outs),
        }
    }
}
