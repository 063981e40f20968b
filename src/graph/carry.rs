//! What a loop or a branch moves between cells, and when: its first states in, new states in the place of old ones, the last ones out.
//!
//! ```text
//! (x0, x1) ← (x1, next)      wait: x1 ▶ spare 0     drop x0     spare 0 ▶ x0     drop x1 (gone already)     next ▶ x1
//! ```
//! A value that is given once moves, whatever it is. One that is given twice, or that lies in a graph around, or that an async node reads,
//! is an `Arc`: then nobody can take it by value, which is checked here.

use std::sync::Arc;

use super::builder::Graph;
use super::control::{ControlNode, Flow, Inner, Origin, State};
use super::inner::{InnerGraph, InnerId};
use super::values::ValueInfo;
use crate::error::{Kind, Result};
use crate::value::Cells;

/// One move.
#[derive(Clone, Copy)]
pub(crate) enum Carry {
    Clear { at: u32, act: fn(Cells<'_>, u32) },
    Move { from: u32, to: u32, act: fn(Cells<'_>, u32, u32) },
}

impl Carry {
    pub(crate) fn act(&self, cells: Cells<'_>) {
        match *self {
            Self::Clear { at, act } => act(cells, at),
            Self::Move { from, to, act } => act(cells, from, to),
        }
    }
}

/// All moves of a loop or a branch.
#[derive(Clone)]
pub(crate) struct Carries {
    /// When it begins.
    pub(crate) enter: Box<[Carry]>,
    /// When its body, or one of its arms, is done.
    pub(crate) give: Box<[Box<[Carry]>]>,
    /// When it ends.
    pub(crate) leave: Box<[Carry]>,
}

impl Flow {
    /// Returns the inner graphs that give states.
    pub(crate) fn givers(&self) -> &[Inner] {
        match self {
            Self::Repeat { body, .. } => std::slice::from_ref(body),
            Self::Branch { arms, .. } => arms,
        }
    }
}

impl Graph {
    /// Returns what a control moves. `inner` are the inner graphs of the outermost graph.
    ///
    /// # Errors
    /// If a state is taken that may be shared, or that its control needs itself.
    pub(crate) fn carries<'g>(
        &'g self,
        control: &'g ControlNode,
        inner: &'g dyn Fn(InnerId) -> &'g InnerGraph,
    ) -> Result<Carries> {
        let settling = Settling { graph: self, control, inner };
        let shared: Vec<bool> = (0..control.states.len()).map(|state| settling.is_shared(state)).collect();
        settling.check_given()?;
        settling.check_takers(&settling.held(&shared))?;
        let states = || control.states.iter().zip(&shared);
        let clear = |state: &State| Carry::Clear { at: state.offset, act: state.transfer.clear };
        let enter = states().flat_map(|(state, &is_shared)| {
            let act = match (state.is_taken, is_shared) {
                (true, false) => state.transfer.carry,
                (true, true) => state.transfer.carry_shared,
                (false, _) => state.transfer.copy,
            };
            [clear(state), Carry::Move { from: state.first, to: state.offset, act }]
        });
        let first = self.works[control.node.index()].value as usize;
        let values = &self.values[first..first + control.states.len()];
        let leave = states().zip(values).filter(|((_, is_shared), value)| !**is_shared && value.sharer.is_some());
        let leave = leave.map(|((state, _), _)| {
            let act = state.transfer.carry_shared;
            Carry::Move { from: state.offset, to: state.offset, act }
        });
        let give = control.flow.givers().iter().map(|giver| given(&control.states, &shared, giver).into());
        Ok(Carries { enter: enter.collect(), give: give.collect(), leave: leave.collect() })
    }
}

/// Returns the moves behind an inner graph.
fn given(states: &[State], shared: &[bool], giver: &Inner) -> Vec<Carry> {
    let uses = |origin: &Origin| giver.results.iter().filter(|other| *other == origin).count();
    let mut moves = Vec::new();
    // All that changes places waits in between, so that no state is gone before it was read.
    for (at, origin) in giver.results.iter().enumerate() {
        if let Origin::State(from) = *origin
            && from as usize != at
        {
            let (transfer, from) = (states[at].transfer, states[from as usize].offset);
            let act = if uses(origin) == 1 { transfer.carry } else { transfer.split };
            moves.push(Carry::Move { from, to: states[at].spare, act });
        }
    }
    for (at, origin) in giver.results.iter().enumerate() {
        let State { offset: to, spare, transfer, .. } = states[at];
        let carry = if shared[at] { transfer.carry_shared } else { transfer.carry };
        let (from, act) = match *origin {
            Origin::State(from) if from as usize == at => continue,
            Origin::State(_) => (spare, carry),
            Origin::Node { offset, .. } if uses(origin) == 1 => (offset, carry),
            Origin::Node { offset, .. } => (offset, transfer.split),
            Origin::Around(offset) => (offset, transfer.copy),
            Origin::Nowhere => continue,
        };
        moves.extend([Carry::Clear { at: to, act: transfer.clear }, Carry::Move { from, to, act }]);
    }
    for (at, origin) in giver.results.iter().enumerate() {
        if let Origin::Node { offset, .. } = *origin
            && uses(origin) > 1
        {
            moves.push(Carry::Clear { at: offset, act: states[at].transfer.clear });
        }
    }
    moves
}

/// A control while it is found out what of its states is whose.
struct Settling<'g> {
    graph: &'g Graph,
    control: &'g ControlNode,
    inner: &'g dyn Fn(InnerId) -> &'g InnerGraph,
}

impl<'g> Settling<'g> {
    /// Returns the inner graphs, and how each sees a state.
    fn views(&self, state: usize) -> impl Iterator<Item = (&'g Graph, &'g ValueInfo)> + '_ {
        let graphs = self.control.flow.inner().map(|(id, _)| &(self.inner)(id).graph);
        graphs.map(move |graph| (graph, &graph.values[graph.inputs[state].value as usize]))
    }

    /// Whether something in an inner graph holds a state beside it.
    fn is_shared(&self, state: usize) -> bool {
        self.views(state).any(|(_, view)| view.sharer.is_some())
    }

    /// Returns for each state whether it is its control's alone whenever an inner graph begins, and whether when the control ends.
    fn held(&self, shared: &[bool]) -> Vec<(bool, bool)> {
        let mut held: Vec<bool> =
            self.control.states.iter().zip(shared).map(|(state, shared)| state.is_taken && !shared).collect();
        let gives = |held: &[bool], giver: &Inner, state: usize| {
            let origin = giver.results[state];
            let is_once = giver.results.iter().filter(|other| **other == origin).count() == 1;
            is_once
                && match origin {
                    Origin::State(from) => held[from as usize],
                    Origin::Node { value, .. } => (self.inner)(giver.id).graph.values[value as usize].sharer.is_none(),
                    Origin::Around(_) | Origin::Nowhere => false,
                }
        };
        let all_give =
            |held: &[bool], state: usize| held[state] && self.control.flow.givers().iter().all(|giver| gives(held, giver, state));
        if let Flow::Branch { .. } = self.control.flow {
            return (0..held.len()).map(|state| (held[state], all_give(&held, state))).collect();
        }
        // What one iteration shares the next one begins with. Each round but the last finds one more.
        while let Some(lost) = (0..held.len()).find(|&state| held[state] && !all_give(&held, state)) {
            held[lost] = false;
        }
        held.into_iter().map(|is_held| (is_held, is_held)).collect()
    }

    /// Nobody takes what an inner graph gives, or what a condition is asked for.
    fn check_given(&self) -> Result<()> {
        for giver in self.control.flow.givers() {
            let graph = &(self.inner)(giver.id).graph;
            for origin in &giver.results {
                let value = match *origin {
                    Origin::State(state) => &graph.values[graph.inputs[state as usize].value as usize],
                    Origin::Node { value, .. } => &graph.values[value as usize],
                    Origin::Around(_) | Origin::Nowhere => continue,
                };
                if let Some(taker) = value.taker {
                    return Err(self.taken(graph, value, taker, "gives it on"));
                }
            }
        }
        let Flow::Repeat { condition: Some(condition), .. } = self.control.flow else { return Ok(()) };
        let graph = &(self.inner)(condition).graph;
        let outputs = graph.shape().outputs();
        for value in &graph.values {
            let is_asked = matches!(value.maker, super::Maker::Node(node) if outputs.iter().any(|output| output.0 == node));
            let is_state = matches!(value.maker, super::Maker::Input(_));
            if let (Some(taker), true) = (value.taker, is_asked || is_state) {
                return Err(self.taken(graph, value, taker, "needs it afterwards"));
            }
        }
        Ok(())
    }

    /// Who takes a state finds it in place.
    fn check_takers(&self, held: &[(bool, bool)]) -> Result<()> {
        let first = self.graph.works[self.control.node.index()].value as usize;
        for (state, &(begins, ends)) in held.iter().enumerate() {
            let takers = self.views(state).filter_map(|(graph, view)| Some((graph, view, view.taker?)));
            if let Some((graph, view, taker)) = takers.into_iter().next().filter(|_| !begins) {
                return Err(self.taken(
                    graph,
                    view,
                    taker,
                    "may share it: take it into the loop or branch, and give one that nothing else holds",
                ));
            }
            let value = &self.graph.values[first + state];
            if let Some(taker) = value.taker.filter(|_| !ends) {
                return Err(self.taken(
                    self.graph,
                    value,
                    taker,
                    "may share it: take its states into it, and give ones that nothing else holds",
                ));
            }
        }
        Ok(())
    }

    fn taken(&self, graph: &Graph, value: &ValueInfo, taker: super::NodeId, why: &'static str) -> crate::error::Error {
        let name = |node| -> Arc<str> { graph.shape().name_of(node).clone() };
        let control = self.graph.shape().name_of(self.control.node).clone();
        Kind::TakenState { value: graph.maker_name(value.maker), taker: name(taker), control, why }.into()
    }
}
