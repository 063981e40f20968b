//! The states of a loop or a branch: one value, or a tuple of up to eight. A state is read, and shared from
//! then on, or taken.

use super::NodeId;
use super::builder::Graph;
use super::control_node::{Origin, State};
use super::handle::{Take, Value};
use super::values::{Maker, Transfer, Type, Use};
use crate::name::Name;
use crate::value::args::{Sealed, tuples};

/// The first values of the states of a loop or a branch: `&value`, [`take`](crate::take)`(&value)`, or a
/// tuple of up to eight of these.
///
/// # Examples
/// A function of yours that repeats a step ten times, of any states:
/// ```
/// use anabranch::graph::{States, times};
/// use anabranch::{Executor, Graph, Inputs};
///
/// fn ten_times<S: States, F>(g: &mut Graph, first: S, step: F) -> S::Values
/// where
///     F: FnOnce(&mut Graph, S::Values) -> S::Values,
/// {
///     g.repeat("ten times", first, times(10), step)
/// }
///
/// let mut g = Graph::new();
/// let (a, b) = (g.task("a", (), || 0), g.task("b", (), || 1));
/// let (a, _) = ten_times(&mut g, (&a, &b), |g, (a, b)| {
///     let sum = g.task("add", (&a, &b), |a: &u32, b: &u32| a + b);
///     (b, sum)
/// });
/// g.output("fibonacci", &a);
/// # let (exec, plan) = (Executor::inline(), g.compile()?);
/// # let mut outputs = futures::executor::block_on(exec.run(&plan, Inputs::new()))?;
/// assert_eq!(*outputs.take::<u32>("fibonacci")?, 55);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the states of a loop, or go through a branch",
    label = "`&value`, `take(&value)`, or a tuple of up to eight of these"
)]
pub trait States: Sealed {
    /// The states as values, in the inner graphs and after the end.
    type Values;
    #[doc(hidden)]
    fn enter(self, graph: &mut Graph, node: NodeId) -> Vec<State>;
    /// Adds the states to `graph`: as values of `maker`, or as inputs if it is an inner graph.
    #[doc(hidden)]
    fn values(graph: &mut Graph, maker: Option<NodeId>, states: &[State]) -> Self::Values;
    #[doc(hidden)]
    fn origins(given: Self::Values, inner: &mut Graph) -> Vec<Origin>;
}

/// The first value of one state.
///
/// # Examples
/// A list that is shared, and one that the loop owns:
/// ```
/// use anabranch::graph::{OneState, times};
/// use anabranch::{Graph, Value, take};
///
/// fn reversed<S: OneState<Of = Vec<u8>>>(g: &mut Graph, name: &'static str, list: S) -> Value<Vec<u8>> {
///     g.repeat(name, list, times(3), |b, list| {
///         b.task("reverse", &list, |list: &Vec<u8>| list.iter().rev().copied().collect::<Vec<u8>>())
///     })
/// }
///
/// let mut g = Graph::new();
/// let (left, right) = (g.input::<Vec<u8>>("left"), g.input::<Vec<u8>>("right"));
/// let reversed = [reversed(&mut g, "first", &left), reversed(&mut g, "second", take(&right))];
/// g.output("left", &reversed[0]);
/// g.output("right", &reversed[1]);
/// # g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no state of a loop or a branch",
    label = "give `&value`, `take(&value)`, or a tuple of up to eight of these"
)]
pub trait OneState: Sealed {
    /// The type of the state.
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
    /// Adds a state: as a value of `maker`, or as an input of an inner graph. Returns its number.
    pub(super) fn state_value(&mut self, maker: Option<NodeId>, of: Type, state: &State) -> u32 {
        if let Some(node) = maker {
            return self.value_of_type(of, state.offset, Maker::Node(node));
        }
        let value = self.input_of_type(state.name.clone(), of, state.offset);
        // Only the condition may read it, or only the body, so an unread state is valid.
        self.values[value as usize].is_read = true;
        value
    }

    /// Returns the name of a loop's or a branch's state for messages, with its first value, if that value is
    /// in this graph. It has no full names: these would grow with the depth of nesting.
    pub(super) fn state_name(&self, node: NodeId, number: u32, first: Option<u32>) -> Name {
        let given = first.map(|first| match self.values[first as usize].maker {
            Maker::Node(node) => format!(" ('{}')", self.shape().name_of(node)),
            Maker::Input(state) if self.is_inner() => format!(" (state {state} around it)"),
            Maker::Input(_) => format!(" ({})", self.maker_name(self.values[first as usize].maker)),
        });
        format!("state {number} of '{}'{}", self.shape().name_of(node), given.unwrap_or_default()).into()
    }
}

fn value<T: Send + Sync + 'static>(graph: &mut Graph, maker: Option<NodeId>, state: &State) -> Value<T> {
    let value = graph.state_value(maker, Type::of::<T>(), state);
    graph.value_at(value)
}

impl<S: OneState> States for S {
    type Values = Value<S::Of>;

    fn enter(self, graph: &mut Graph, node: NodeId) -> Vec<State> {
        vec![OneState::enter(self, graph, node, 0)]
    }

    fn values(graph: &mut Graph, maker: Option<NodeId>, states: &[State]) -> Self::Values {
        value(graph, maker, &states[0])
    }

    fn origins(given: Self::Values, inner: &mut Graph) -> Vec<Origin> {
        vec![inner.origin(&given)]
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

            fn values(graph: &mut Graph, maker: Option<NodeId>, states: &[State]) -> Self::Values {
                ($(value(graph, maker, &states[$number]),)*)
            }

            fn origins(given: Self::Values, inner: &mut Graph) -> Vec<Origin> {
                let ($($s,)*) = given;
                vec![$(inner.origin(&$s)),*]
            }
        }
    };
}

tuples!(many);
