//! Typed handles to the values of a graph.

use std::fmt;
use std::marker::PhantomData;

/// A typed handle to a value of one graph: what a node gives, or an input.
///
/// It is a name, not the value: reading it in another node makes an edge. A node that reads `&Value<T>` gets
/// `&T` (an async node an `Arc<T>`); any number of nodes can, without a copy. One node can [`take`] it and
/// gets the `T`.
pub struct Value<T> {
    pub(super) graph: usize,
    pub(super) index: u32,
    /// The offset of its cell, where inner graphs read it.
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

/// A value that a node takes by value; made by [`take`].
#[derive(Debug, Clone, Copy)]
pub struct Take<T>(pub(super) Value<T>);

/// What can be taken instead of read: a [`Value`] of a graph, by a node, or a [`Var`](crate::Var) of an
/// engine, by an operation.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken",
    label = "take a value of a graph or a variable of an engine, one by one: `take(&value)`; slices are read"
)]
pub trait Takable {
    /// How it is named among what is read.
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

/// Lets a node take `value` itself instead of a reference to it; or an operation a variable's, which then has
/// none until it is written.
///
/// Only one node can take a value. It runs after all nodes that read it, which the plan sees to by order-only
/// edges, so the taker needs no copy and the memory can be used again; if one of them fails, it is skipped.
/// Outputs and values read by async nodes are shared and cannot be taken; `compile` says so. A variable's
/// value cannot be taken while a value from [`Var::read`](crate::Var::read) or
/// [`Flow::get`](crate::Flow::get) is kept: then the operation does not begin and leaves its variables as
/// they were, and its handle has the error. If others may look at any time, read it and return a new one.
pub fn take<V: Takable>(value: V) -> V::Take {
    value.take()
}
