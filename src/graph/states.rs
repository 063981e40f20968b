//! The states of a loop, or what goes through a branch: one value, or a tuple of up to eight. Each is read,
//! and shared from then on; or taken.

use super::NodeId;
use super::builder::Graph;
use super::control_node::{Origin, State};
use super::handle::{Take, Value};
use super::values::{Maker, Transfer, Use};
use crate::name::Name;
use crate::value::Slot;
use crate::value::args::{Sealed, tuples};

/// What goes into a loop or a branch: `&value`, [`take`](crate::take)`(&value)`, or a tuple of up to eight of
/// these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the states of a loop, or go through a branch",
    label = "`&value`, `take(&value)`, or a tuple of up to eight of these"
)]
pub trait States: Sealed {
    /// The same in the inner graphs, and as it comes out.
    type Values;
    #[doc(hidden)]
    fn enter(self, graph: &mut Graph, node: NodeId) -> Vec<State>;
    #[doc(hidden)]
    fn views(inner: &mut Graph, states: &[State]) -> Self::Values;
    #[doc(hidden)]
    fn gives(graph: &mut Graph, node: NodeId, states: &[State]) -> Self::Values;
    #[doc(hidden)]
    fn origins(given: Self::Values, inner: &mut Graph) -> Vec<Origin>;
}

/// One of them.
pub trait OneState: Sealed {
    /// Its type.
    type Of: Send + Sync + 'static;
    #[doc(hidden)]
    fn enter(self, graph: &mut Graph, node: NodeId, number: u32) -> State;
}

impl<T: Send + Sync + 'static> OneState for &Value<T> {
    type Of = T;

    fn enter(self, graph: &mut Graph, node: NodeId, number: u32) -> State {
        state(graph, self, node, number, Use::Keep)
    }
}

impl<T: Send + Sync + 'static> OneState for Take<T> {
    type Of = T;

    fn enter(self, graph: &mut Graph, node: NodeId, number: u32) -> State {
        state(graph, &self.0, node, number, Use::Take)
    }
}

fn state<T: Send + Sync + 'static>(graph: &mut Graph, first: &Value<T>, node: NodeId, number: u32, how: Use) -> State {
    let name = graph.state_name(node, number, graph.owns(first).then_some(first.index));
    let first = graph.read_value(first, node, how).offset();
    let offset = graph.layout.slot::<T>().offset();
    State { offset, spare: u32::MAX, first, is_taken: how == Use::Take, name, transfer: Transfer::of::<T>() }
}

impl Graph {
    /// Returns the name of a loop's or a branch's state in messages, with its first value, if that is of this
    /// graph. Full names would grow with the depth of nesting.
    pub(super) fn state_name(&self, node: NodeId, number: u32, first: Option<u32>) -> Name {
        let given = first.map(|first| match self.values[first as usize].maker {
            Maker::Node(node) => format!(" ('{}')", self.shape().name_of(node)),
            Maker::Input(state) if self.is_inner() => format!(" (state {state} around it)"),
            Maker::Input(input) => format!(" ('{}')", self.inputs[input as usize].name),
        });
        format!("state {number} of '{}'{}", self.shape().name_of(node), given.unwrap_or_default()).into()
    }
}

fn view<T: Send + Sync + 'static>(inner: &mut Graph, states: &[State], number: usize) -> Value<T> {
    let value = inner.add_input(states[number].name.clone(), Slot::at(states[number].offset));
    // A loop may have states that only its condition reads, or only its body.
    inner.values[value.index as usize].is_read = true;
    value
}

impl<S: OneState> States for S {
    type Values = Value<S::Of>;

    fn enter(self, graph: &mut Graph, node: NodeId) -> Vec<State> {
        States::enter((self,), graph, node)
    }

    fn views(inner: &mut Graph, states: &[State]) -> Self::Values {
        <(S,)>::views(inner, states).0
    }

    fn gives(graph: &mut Graph, node: NodeId, states: &[State]) -> Self::Values {
        <(S,)>::gives(graph, node, states).0
    }

    fn origins(given: Self::Values, inner: &mut Graph) -> Vec<Origin> {
        <(S,)>::origins((given,), inner)
    }
}

macro_rules! many {
    ($($S:ident $s:ident $T:ident $t:ident $number:tt),*) => {
        impl<$($S: OneState),*> States for ($($S,)*) {
            type Values = ($(Value<$S::Of>,)*);

            fn enter(self, graph: &mut Graph, node: NodeId) -> Vec<State> {
                let ($($s,)*) = self;
                vec![$($s.enter(graph, node, $number)),*]
            }

            fn views(inner: &mut Graph, states: &[State]) -> Self::Values {
                ($(view(inner, states, $number),)*)
            }

            fn gives(graph: &mut Graph, node: NodeId, states: &[State]) -> Self::Values {
                ($(graph.value(Slot::at(states[$number].offset), Maker::Node(node)),)*)
            }

            fn origins(given: Self::Values, inner: &mut Graph) -> Vec<Origin> {
                let ($($s,)*) = given;
                vec![$(inner.origin(&$s)),*]
            }
        }
    };
}

tuples!(many);
