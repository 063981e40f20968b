//! Loops and branches as their graph holds them: states, inner graphs, and what the inner graphs make.

use super::nested::Role;
use super::select::Test;
use super::shape::NodeId;
use super::values::Transfer;
use crate::name::Name;
use crate::value::Cells;

/// A loop or a branch of a graph.
pub(crate) struct ControlNode {
    pub(crate) node: NodeId,
    pub(crate) states: Vec<State>,
    pub(crate) flow: ControlKind,
}

/// One value that goes in and comes out.
#[derive(Clone, Debug)]
pub struct State {
    /// The offset of its cell: the inner graphs read it, and it is the node's value in the graph around.
    pub(crate) offset: u32,
    /// The offset of the cell that holds a value while states change places, if they do.
    pub(crate) spare: u32,
    /// The offset of the cell of its first value, and whether the value is taken from there.
    pub(crate) first: u32,
    pub(crate) is_taken: bool,
    /// Its name in messages, with its first value: `state 0 of 'loop' ('x')`.
    pub(crate) name: Name,
    pub(crate) transfer: &'static Transfer,
}

/// What a control does with its inner graphs.
#[derive(Clone)]
pub(crate) enum ControlKind {
    Repeat {
        /// None if the condition has no nodes.
        condition: Option<InnerId>,
        test: Test,
        body: Inner,
    },
    Branch {
        selector: u32,
        select: fn(Cells<'_>, u32) -> i64,
        arms: Vec<Inner>,
    },
}

/// An inner graph that makes new states.
#[derive(Clone)]
pub(crate) struct Inner {
    pub(crate) id: InnerId,
    pub(crate) results: Vec<Origin>,
}

/// Where a new state comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// It is an old one.
    State(u32),
    /// A node of the inner graph makes it: the value's number there, and the offset of its cell.
    Node { value: u32, offset: u32 },
    /// The offset of its cell, in a graph around.
    Around(u32),
    /// It belongs to no known graph. This becomes a mistake.
    Nowhere,
}

/// The number of an inner graph among those of the graph around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InnerId(pub(super) u32);

impl ControlKind {
    /// Returns the inner graphs, with their roles.
    pub(crate) fn inner(&self) -> impl Iterator<Item = (InnerId, Role)> + '_ {
        let (condition, body, arms) = match self {
            Self::Repeat { condition, body, .. } => (*condition, Some(body.id), &[][..]),
            Self::Branch { arms, .. } => (None, None, &arms[..]),
        };
        let arms = arms.iter().zip(0..).map(|(arm, number)| (arm.id, Role::Arm(number)));
        condition.map(|id| (id, Role::Condition)).into_iter().chain(body.map(|id| (id, Role::Body))).chain(arms)
    }
}
