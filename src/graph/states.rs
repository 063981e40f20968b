//! The states of a loop, or what goes through a branch: one value, or a tuple of up to four. Each is read,
//! and shared from then on; or taken.

use std::sync::Arc;

use super::NodeId;
use super::builder::Graph;
use super::control_node::{Origin, State};
use super::handle::{Take, Value};
use super::values::{Maker, Transfer, Use};
use crate::value::Slot;

/// What goes into a loop or a branch: `&value`, [`take`](crate::take)`(&value)`, or a tuple of up to four of
/// these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the states of a loop, or go through a branch",
    label = "`&value`, `take(&value)`, or a tuple of up to four of these"
)]
pub trait States {
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
pub trait OneState {
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
    pub(super) fn state_name(&self, node: NodeId, number: u32, first: Option<u32>) -> Arc<str> {
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

macro_rules! one {
    ($this:ty) => {
        impl<T: Send + Sync + 'static> States for $this {
            type Values = Value<T>;

            fn enter(self, graph: &mut Graph, node: NodeId) -> Vec<State> {
                vec![OneState::enter(self, graph, node, 0)]
            }

            fn views(inner: &mut Graph, states: &[State]) -> Value<T> {
                view(inner, states, 0)
            }

            fn gives(graph: &mut Graph, node: NodeId, states: &[State]) -> Value<T> {
                graph.value(Slot::at(states[0].offset), Maker::Node(node))
            }

            fn origins(given: Value<T>, inner: &mut Graph) -> Vec<Origin> {
                vec![inner.origin(&given)]
            }
        }
    };
}

one!(&Value<T>);
one!(Take<T>);

macro_rules! many {
    ($($S:ident $s:ident $number:tt),*) => {
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

many!(A a 0);
many!(A a 0, B b 1);
many!(A a 0, B b 1, C c 2);
many!(A a 0, B b 1, C c 2, D d 3);
