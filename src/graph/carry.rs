//! The moves of values between cells for a loop or a branch. First the initial states move in, then new
//! states replace old ones, at the end the last states move out.
//!
//! ```text
//! (x0, x1) ← (x1, next)     wait: x1 ▶ spare 0     spare 0 ▶ x0, whose value is dropped     next ▶ x1
//! ```
//! A value that is given once is moved, of any type. A value that is given twice, that lies in a graph
//! around, or that an async node reads is an `Arc`. No node can take such a value, which is checked here.

use std::collections::HashMap;

use super::NodeId;
use super::between::Kept;
use super::builder::Graph;
use super::control_node::{ControlKind, ControlNode, Inner, Origin, State};
use super::nested::Role;
use super::values::{Maker, ValueInfo};
use crate::error::{Error, Kind, Result};
use crate::name::Name;
use crate::value::Cells;

/// The most states of a chain that a message names. Each of them is given for the one before it.
const CHAIN_MAX: usize = 4;

#[derive(Clone, Copy)]
pub(crate) enum Carry {
    Clear {
        at: u32,
        act: fn(Cells<'_>, u32),
    },
    /// Drops the old value at `to`.
    Move {
        from: u32,
        to: u32,
        act: fn(Cells<'_>, u32, u32),
    },
}

impl Carry {
    pub(crate) fn act(&self, cells: Cells<'_>) {
        match *self {
            Self::Clear { at, act } => act(cells, at),
            Self::Move { from, to, act } => act(cells, from, to),
        }
    }
}

/// The moves of a loop or a branch.
#[derive(Clone)]
pub(crate) struct Carries {
    /// The moves at its start.
    pub(crate) enter: Box<[Carry]>,
    /// The moves after each inner graph that gives states.
    pub(crate) give: Box<[Box<[Carry]>]>,
    /// The moves at its end.
    pub(crate) leave: Box<[Carry]>,
}

impl ControlKind {
    /// Returns the inner graphs that give states, in order.
    pub(crate) fn givers(&self) -> &[Inner] {
        match self {
            Self::Repeat { body, .. } => std::slice::from_ref(body),
            Self::Branch { arms, .. } => arms,
        }
    }
}

impl Graph {
    /// Returns the moves of a control.
    ///
    /// # Errors
    /// If a node takes a state that may be shared, or that the control itself needs.
    pub(crate) fn carries(&self, control: &ControlNode) -> Result<Carries> {
        let uses = control.flow.givers().iter().map(uses).collect();
        let settling = Settling { graph: self, control, uses };
        let shared: Vec<bool> = (0..control.states.len()).map(|state| settling.is_shared(state)).collect();
        settling.check_given()?;
        settling.check_takers(&settling.lost(&shared))?;
        let states = || control.states.iter().zip(&shared);
        let enter = states().map(|(state, &is_shared)| {
            let act = match (state.is_taken, is_shared) {
                (true, false) => state.transfer.carry,
                (true, true) => state.transfer.carry_shared,
                (false, _) => state.transfer.copy,
            };
            Carry::Move { from: state.first, to: state.offset, act }
        });
        let first = self.works[control.node.index()].value as usize;
        let values = &self.values[first..first + control.states.len()];
        let leave = states().zip(values).filter(|((_, is_shared), value)| !**is_shared && value.sharer.is_some());
        let leave = leave.map(|((state, _), _)| {
            let act = state.transfer.carry_shared;
            Carry::Move { from: state.offset, to: state.offset, act }
        });
        let givers = control.flow.givers().iter().zip(&settling.uses);
        let give = givers.map(|(giver, uses)| given(&control.states, &shared, giver, uses).into());
        Ok(Carries { enter: enter.collect(), give: give.collect(), leave: leave.collect() })
    }
}

/// Returns how often an inner graph gives each value.
fn uses(giver: &Inner) -> HashMap<Origin, u32> {
    let mut uses = HashMap::with_capacity(giver.results.len());
    giver.results.iter().for_each(|origin| *uses.entry(*origin).or_default() += 1);
    uses
}

/// Returns the moves after an inner graph.
fn given(states: &[State], shared: &[bool], giver: &Inner, uses: &HashMap<Origin, u32>) -> Vec<Carry> {
    let mut moves = Vec::new();
    // States that change places wait in spare cells meanwhile, so that each is read before it is replaced.
    for (at, origin) in giver.results.iter().enumerate() {
        if let Origin::State(from) = *origin
            && from as usize != at
        {
            let (transfer, from) = (states[at].transfer, states[from as usize].offset);
            let act = if uses[origin] == 1 { transfer.carry } else { transfer.split };
            moves.push(Carry::Move { from, to: states[at].spare, act });
        }
    }
    for (at, origin) in giver.results.iter().enumerate() {
        let State { offset: to, spare, transfer, .. } = states[at];
        let carry = if shared[at] { transfer.carry_shared } else { transfer.carry };
        let (from, act) = match *origin {
            Origin::State(from) if from as usize == at => continue,
            Origin::State(_) => (spare, carry),
            Origin::Node { offset, .. } if uses[origin] == 1 => (offset, carry),
            Origin::Node { offset, .. } => (offset, transfer.split),
            Origin::Around(offset) => (offset, transfer.copy),
            Origin::Nowhere => continue,
        };
        moves.push(Carry::Move { from, to, act });
    }
    for (at, origin) in giver.results.iter().enumerate() {
        if let Origin::Node { offset, .. } = *origin
            && uses[origin] > 1
        {
            moves.push(Carry::Clear { at: offset, act: states[at].transfer.clear });
        }
    }
    moves
}

/// The state of the check which finds the states that a control alone owns.
struct Settling<'g> {
    graph: &'g Graph,
    control: &'g ControlNode,
    /// How often each giver gives each value.
    uses: Vec<HashMap<Origin, u32>>,
}

impl<'g> Settling<'g> {
    /// Returns the inner graphs, each with its value for a state.
    fn views(&self, state: usize) -> impl Iterator<Item = (&'g Graph, &'g ValueInfo)> + '_ {
        let graphs = self.control.flow.inner().map(|(id, _)| self.graph.inner.get(id));
        graphs.map(move |graph| (graph, &graph.values[graph.inputs[state].value as usize]))
    }

    /// Returns whether a node of an inner graph shares a state.
    fn is_shared(&self, state: usize) -> bool {
        self.views(state).any(|(_, view)| view.sharer.is_some())
    }

    /// Returns for each state whether it may have another owner, and why: at the start of an inner graph, and
    /// at the end of the control.
    fn lost(&self, shared: &[bool]) -> Vec<[Option<Lost>; 2]> {
        let is_lost = |(state, &is_shared): (&State, &bool)| match (state.is_taken, is_shared) {
            (false, _) => Some(Lost::Read),
            (true, true) => Some(Lost::Shared),
            (true, false) => None,
        };
        let mut lost: Vec<Option<Lost>> = self.control.states.iter().zip(shared).map(is_lost).collect();
        let gives = |lost: &[Option<Lost>], number: usize, state: usize| {
            let giver = &self.control.flow.givers()[number];
            let origin = giver.results[state];
            self.uses[number][&origin] == 1
                && match origin {
                    Origin::State(from) => lost[from as usize].is_none(),
                    Origin::Node { value, .. } => self.graph.inner.get(giver.id).values[value as usize].sharer.is_none(),
                    Origin::Around(_) | Origin::Nowhere => false,
                }
        };
        let newly = |lost: &[Option<Lost>], state: usize| {
            let mut givers = 0..self.uses.len();
            if lost[state].is_some() { None } else { givers.find(|&giver| !gives(lost, giver, state)).map(Lost::Given) }
        };
        let ControlKind::Repeat { body, .. } = &self.control.flow else {
            return (0..lost.len()).map(|state| [lost[state], lost[state].or_else(|| newly(&lost, state))]).collect();
        };
        // The next iteration begins with the values that this one shares. A state that is lost in this step
        // loses at most one more state: the one for which it alone is given.
        let mut given_for = vec![None; lost.len()];
        for (state, origin) in body.results.iter().enumerate() {
            if let Origin::State(from) = *origin {
                given_for[from as usize] = Some(state);
            }
        }
        for first in 0..lost.len() {
            let mut next = Some(first);
            while let Some((state, why)) = next.and_then(|state| Some((state, newly(&lost, state)?))) {
                lost[state] = Some(why);
                next = given_for[state];
            }
        }
        lost.into_iter().map(|why| [why, why]).collect()
    }

    /// Checks that no node takes a value that an inner graph gives, or that is read after a condition.
    fn check_given(&self) -> Result<()> {
        for (number, giver) in self.control.flow.givers().iter().enumerate() {
            let graph = self.graph.inner.get(giver.id);
            for (origin, state) in giver.results.iter().zip(0..) {
                let value = match *origin {
                    Origin::State(state) => &graph.values[graph.inputs[state as usize].value as usize],
                    Origin::Node { value, .. } => &graph.values[value as usize],
                    Origin::Around(_) | Origin::Nowhere => continue,
                };
                if let Some(taker) = value.taker {
                    let (path, state): (_, u32) = (self.path(number), state);
                    let why =
                        format!("'{path}' gives it on as state {state}: give what '{}' makes of it", graph.full_name(taker));
                    return Err(taken(graph, value, taker, why));
                }
            }
        }
        let ControlKind::Repeat { condition: Some(condition), .. } = self.control.flow else { return Ok(()) };
        let graph = self.graph.inner.get(condition);
        let outputs = graph.shape().outputs();
        for value in &graph.values {
            let is_asked = matches!(value.maker, Maker::Node(node) if outputs.iter().any(|output| output.0 == node));
            let is_state = matches!(value.maker, Maker::Input(_));
            if let (Some(taker), true) = (value.taker, is_asked || is_state) {
                let why = format!("'{}' needs it after its condition: read it by reference", self.name());
                return Err(taken(graph, value, taker, why));
            }
        }
        Ok(())
    }

    /// Checks that no node takes a state that may have another owner.
    fn check_takers(&self, lost: &[[Option<Lost>; 2]]) -> Result<()> {
        let first = self.graph.works[self.control.node.index()].value as usize;
        let reasons = |at: usize| lost.iter().map(move |lost| lost[at]).collect::<Vec<_>>();
        for (state, &[begins, ends]) in lost.iter().enumerate() {
            let takers = self.views(state).filter_map(|(graph, view)| Some((graph, view, view.taker?)));
            if let Some((graph, view, taker)) = takers.into_iter().next().filter(|_| begins.is_some()) {
                let (why, instead) = self.why(&reasons(0), state);
                return Err(taken(graph, view, taker, format!("{why}: {instead}")));
            }
            let value = &self.graph.values[first + state];
            if ends.is_none() || value.taker.is_none() && value.kept != Some(Kept::Result) {
                continue;
            }
            let (value, taker) = (self.control.states[state].name.to_string(), value.taker);
            let (why, instead) = self.why(&reasons(1), state);
            return Err(match taker.map(|taker| self.graph.full_name(taker)) {
                Some(taker) => Kind::TakenState { value, taker, why: format!("{why}: {instead}") }.into(),
                None => Kind::SharedResult { value, why }.into(),
            });
        }
        Ok(())
    }

    /// Returns why a state may have another owner, and how to change the graph.
    fn why(&self, lost: &[Option<Lost>], mut state: usize) -> (String, String) {
        let (mut chain, mut links) = (String::new(), 0);
        while let Some(Lost::Given(number)) = lost[state]
            && let origin @ Origin::State(from) = self.control.flow.givers()[number].results[state]
            && self.uses[number][&origin] == 1
        {
            (state, links) = (from as usize, links + 1);
            if links <= CHAIN_MAX {
                chain += &format!("'{}' gives state {from} for it, and ", self.path(number));
            }
        }
        if links > CHAIN_MAX {
            chain += &format!("so on as far as state {state}, and ");
        }
        let (why, instead) = self.why_at_first(lost, state);
        (chain + &why, instead)
    }

    /// Returns the same for a state for which no other state is given alone.
    fn why_at_first(&self, lost: &[Option<Lost>], state: usize) -> (String, String) {
        let (name, of) = (self.name(), &self.control.states[state].name);
        let number = match lost[state] {
            None | Some(Lost::Read) => {
                let instead = "give that to it as `take(&value)` (in JSON, \"take\": true)";
                return (format!("'{name}' only reads what the state begins with"), instead.into());
            }
            Some(Lost::Shared) => {
                let sharers = self.views(state).filter_map(|(graph, view)| Some(graph.sharer_name(view.sharer?)));
                let sharer = sharers.into_iter().next().unwrap_or_default();
                return (format!("{sharer} shares it as an Arc"), "read it by reference instead".into());
            }
            Some(Lost::Given(number)) => number,
        };
        let (giver, path) = (&self.control.flow.givers()[number], self.path(number));
        let (graph, origin) = (self.graph.inner.get(giver.id), giver.results[state]);
        let twice = giver.results.iter().enumerate().position(|(other, given)| other != state && *given == origin);
        match (origin, twice) {
            (_, Some(other)) => {
                (format!("'{path}' gives one value as states {state} and {other}"), "give each a value of its own".into())
            }
            (Origin::Node { value, .. }, None) => {
                let value = &graph.values[value as usize];
                let (value, sharer) = (graph.maker_name(value.maker), value.sharer.map(|sharer| graph.sharer_name(sharer)));
                let sharer = sharer.unwrap_or_default();
                let why = format!("'{path}' gives {value} for it, which {sharer} shares as an Arc");
                (why, "give one that nothing else holds".into())
            }
            (Origin::State(_) | Origin::Around(_) | Origin::Nowhere, None) => {
                (format!("'{path}' gives {of} a value of the graph around"), format!("give one that '{path}' makes"))
            }
        }
    }

    fn name(&self) -> Name {
        self.graph.full_name(self.control.node)
    }

    /// Returns the path of an inner graph that gives states.
    fn path(&self, giver: usize) -> String {
        match self.control.flow {
            ControlKind::Repeat { .. } => format!("{}/{}", self.name(), Role::Body),
            ControlKind::Branch { .. } => format!("{}/{}", self.name(), Role::Arm(giver as u32)),
        }
    }
}

/// The reason why a control is not the only owner of a state.
#[derive(Clone, Copy)]
enum Lost {
    /// The control only reads the first value of the state.
    Read,
    /// A node in an inner graph keeps the state.
    Shared,
    /// The value that this inner graph gives for the state may have another owner.
    Given(usize),
}

fn taken(graph: &Graph, value: &ValueInfo, taker: NodeId, why: String) -> Error {
    Kind::TakenState { value: graph.maker_name(value.maker), taker: graph.full_name(taker), why }.into()
}
