//! Loops and branches as their graph stores them: states, inner graphs, and the results of the inner graphs.

use super::nested::Role;
use super::select::Test;
use super::shape::NodeId;
use super::values::Transfer;
use crate::name::Name;
use crate::value::Cells;

/// A loop or a branch of a graph.
#[derive(Clone)]
pub(crate) struct ControlNode {
    pub(crate) node: NodeId,
    pub(crate) states: Vec<State>,
    pub(crate) flow: ControlKind,
}

/// A state: a value that goes in and comes out.
#[derive(Clone, Debug)]
pub struct State {
    /// The offset of the state's cell. The inner graphs read it, and it is the node's value in the graph
    /// around.
    pub(crate) offset: u32,
    /// The offset of the cell in which the value waits while states change places, if they do.
    pub(crate) spare: u32,
    /// The offset of the cell of its first value, and whether the control takes that value.
    pub(crate) first: u32,
    pub(crate) is_taken: bool,
    /// The state's name in messages, with its first value: `state 0 of 'loop' ('x')`.
    pub(crate) name: Name,
    pub(crate) transfer: &'static Transfer,
}

/// The kind of a control, with its inner graphs.
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

/// The origin of a new state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// An old state.
    State(u32),
    /// The value of a node of the inner graph: its number there, and the offset of its cell.
    Node { value: u32, offset: u32 },
    /// A value of a graph around, by the offset of its cell.
    Around(u32),
    /// A value of no known graph. It becomes a mistake.
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
