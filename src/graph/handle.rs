//! Typed handles to the values of a graph.

use std::fmt;
use std::marker::PhantomData;

/// A typed handle to a value of one graph: the value of a node, or an input.
///
/// It is a name, not the value: a node that reads it gets an edge. A node that reads `&Value<T>` gets `&T`
/// (an async node an `Arc<T>`). Any number of nodes can read it, without a copy. One node can [`take`] it and
/// gets the `T`.
///
/// # Examples
/// Functions of yours get and return handles, and so build graphs of parts:
/// ```
/// use anabranch::{Graph, Value};
///
/// fn mean(g: &mut Graph, x: &Value<Vec<f64>>) -> Value<f64> {
///     let sum = g.task("sum", x, |x: &Vec<f64>| x.iter().sum::<f64>());
///     g.task("mean", (&sum, x), |sum: &f64, x: &Vec<f64>| sum / x.len() as f64)
/// }
///
/// let mut g = Graph::new();
/// let x = g.input::<Vec<f64>>("x");
/// let mean = mean(&mut g, &x);
/// g.output("mean", &mean);
/// # g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Value<T> {
    pub(super) graph: usize,
    pub(super) index: u32,
    /// The offset of its cell, from which inner graphs read it.
    pub(super) offset: u32,
    kind: PhantomData<fn(T) -> T>,
}

impl<T> Value<T> {
    pub(super) fn new(graph: usize, index: u32, offset: u32) -> Self {
        Self { graph, index, offset, kind: PhantomData }
    }
}

impl<T> Clone for Value<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Value<T> {}

impl<T> fmt::Debug for Value<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value<{}>({})", std::any::type_name::<T>(), self.index)
    }
}

/// A value that a node takes by value. Made by [`take`].
///
/// # Examples
/// ```
/// use anabranch::graph::Take;
/// use anabranch::{Graph, Value, take};
///
/// fn sorted(g: &mut Graph, list: Take<Vec<u32>>) -> Value<Vec<u32>> {
///     g.task("sort", list, |mut list: Vec<u32>| {
///         list.sort();
///         list
///     })
/// }
///
/// let mut g = Graph::new();
/// let list = g.input::<Vec<u32>>("list");
/// let list = sorted(&mut g, take(&list));
/// g.output("list", &list);
/// # g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Take<T>(pub(crate) Value<T>);

/// A handle to a value that can be taken: a [`Value`] of a graph, by a node, or a [`Var`](crate::Var) of an
/// engine, by an operation.
///
/// # Examples
/// A value of a graph, and a variable of an engine:
/// ```
/// use anabranch::{Engine, Executor, Graph, Op, take};
///
/// let mut g = Graph::new();
/// let text = g.input::<String>("text");
/// let bytes = g.task("bytes", take(&text), |text: String| text.into_bytes());
///
/// let engine = Engine::new(&Executor::inline())?;
/// let (text, bytes) = (engine.var("text", String::from("text")), engine.empty_var::<Vec<u8>>("bytes"));
/// let op = Op::task("bytes", take(&text), &bytes, |text: String| text.into_bytes());
/// # drop(op);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken",
    label = "take a value of a graph or a variable of an engine, one by one: `take(&value)`; slices are read"
)]
pub trait Takable {
    /// The type that stands for it among reads.
    type Take;
    #[doc(hidden)]
    fn take(self) -> Self::Take;
}

impl<T> Takable for &Value<T> {
    type Take = Take<T>;

    fn take(self) -> Take<T> {
        Take(*self)
    }
}

/// Marks `value` to be taken: a node gets the value itself instead of a reference to it. If an operation
/// takes the value of a variable, the variable has no value until it is written again.
///
/// Only one node can take a value. The node runs after all nodes that read the value, by order-only edges
/// that the plan adds. So it needs no copy, and the memory can be used again. If one of the readers fails,
/// the taker is skipped. Outputs, and values that async nodes read, are shared and cannot be taken: `compile`
/// returns an error. An exchange between ranks may take what async nodes read
/// ([`Operand`](crate::comm::Operand)).
///
/// The value of a variable cannot be taken while a value from [`Var::read`](crate::Var::read) or
/// [`Flow::get`](crate::Flow::get) is kept. Then the operation does not begin and leaves its variables
/// unchanged, and its handle has the error. An exchange takes it all the same. If other code may read the
/// variable at any time, read it in the operation and return a new value.
///
/// # Examples
/// One node reads the list. After it, the other node gets the list itself:
/// ```
/// use anabranch::{Executor, Graph, inputs, take};
///
/// let mut g = Graph::new();
/// let list = g.input::<Vec<u32>>("list");
/// let largest = g.task("largest", &list, |list: &Vec<u32>| list.iter().max().copied());
/// let sorted = g.task("sort", take(&list), |mut list: Vec<u32>| {
///     list.sort();
///     list
/// });
/// g.output("largest", &largest);
/// g.output("sorted", &sorted);
///
/// let (exec, plan) = (Executor::host()?, g.compile()?);
/// let mut outputs = futures::executor::block_on(exec.run(&plan, inputs! { "list" => vec![2_u32, 3, 1] }))?;
/// assert_eq!(*outputs.take::<Vec<u32>>("sorted")?, [1, 2, 3]);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn take<V: Takable>(value: V) -> V::Take {
    value.take()
}
