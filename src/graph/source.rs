//! What a node reads: typed handles to values, and how a body gets them. The types here tie a closure's
//! arguments to cells.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use super::NodeId;
use super::builder::Graph;
use crate::value::{Cells, Slot};

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
/// edges, so the taker needs no copy and the memory can be used again. Outputs and values read by async nodes
/// are shared and cannot be taken; `compile` says so. A variable's value cannot be taken while somebody keeps
/// what [`Var::read`](crate::Var::read) or [`Flow::get`](crate::Flow::get) gave him: then the operation does
/// not begin and leaves its variables as they were, and its handle has the error. Where others may look at
/// any time, read it and return a new one.
pub fn take<V: Takable>(value: V) -> V::Take {
    value.take()
}

/// How one argument of a body comes out of its cell.
pub trait Param: Send + Sync + 'static {
    /// What a task or kernel gets.
    type Arg<'a>;
    /// What an async node gets.
    type Owned: Send + 'static;

    #[doc(hidden)]
    fn fetch<'a>(&'a self, cells: Cells<'a>) -> Self::Arg<'a>;
    #[doc(hidden)]
    fn own(&self, cells: Cells<'_>) -> Self::Owned;
}

/// An argument read by reference.
pub struct Read<T>(Slot<T>);

impl<T: Send + Sync + 'static> Param for Read<T> {
    type Arg<'a> = &'a T;
    type Owned = Arc<T>;

    #[inline(always)]
    fn fetch<'a>(&'a self, cells: Cells<'a>) -> &'a T {
        cells.get(self.0)
    }

    fn own(&self, cells: Cells<'_>) -> Arc<T> {
        cells.share(self.0)
    }
}

/// An argument taken by value.
pub struct Own<T>(Slot<T>);

impl<T: Send + Sync + 'static> Param for Own<T> {
    type Arg<'a> = T;
    type Owned = T;

    #[inline(always)]
    fn fetch<'a>(&'a self, cells: Cells<'a>) -> T {
        cells.take(self.0)
    }

    fn own(&self, cells: Cells<'_>) -> T {
        cells.take(self.0)
    }
}

/// An argument that reads any number of values of one type.
pub struct Many<T>(Box<[Slot<T>]>);

/// The values that a node reads through one `&[Value<T>]`, in the order of the slice.
pub struct Each<'a, T> {
    slots: &'a [Slot<T>],
    cells: Cells<'a>,
}

impl<'a, T: 'static> Each<'a, T> {
    /// Returns the values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a T> + DoubleEndedIterator + use<'a, T> {
        let cells = self.cells;
        self.slots.iter().map(move |&slot| cells.get(slot))
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if the node reads no values here.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl<T: Send + Sync + 'static> Param for Many<T> {
    type Arg<'a> = Each<'a, T>;
    type Owned = Vec<Arc<T>>;

    fn fetch<'a>(&'a self, cells: Cells<'a>) -> Each<'a, T> {
        Each { slots: &self.0, cells }
    }

    fn own(&self, cells: Cells<'_>) -> Vec<Arc<T>> {
        self.0.iter().map(|&slot| cells.share(slot)).collect()
    }
}

/// One thing that a node reads: `&Value<T>`, [`take`]`(&value)`, or `&[Value<T>]` for any number of one type.
pub trait Source {
    /// How the body's argument comes out of its cell.
    type Param: Param;
    #[doc(hidden)]
    fn bind(self, binder: &mut Binder<'_>) -> Self::Param;
}

impl<T: Send + Sync + 'static> Source for &Value<T> {
    type Param = Read<T>;

    fn bind(self, binder: &mut Binder<'_>) -> Read<T> {
        Read(binder.bind(self, Use::Read))
    }
}

impl<T: Send + Sync + 'static> Source for Take<T> {
    type Param = Own<T>;

    fn bind(self, binder: &mut Binder<'_>) -> Own<T> {
        Own(binder.bind(&self.0, Use::Take))
    }
}

impl<T: Send + Sync + 'static> Source for &[Value<T>] {
    type Param = Many<T>;

    fn bind(self, binder: &mut Binder<'_>) -> Many<T> {
        Many(self.iter().map(|value| binder.bind(value, Use::Read)).collect())
    }
}

#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing that a node reads",
    label = "give `&value`, `take(&value)`, `&values[..]`, a tuple of up to eight of them, or `()`"
)]
/// Everything that a node reads: `()`, one [`Source`], or a tuple of up to eight.
pub trait Sources {
    /// How the body's arguments come out of their cells.
    type Params: Send + Sync + 'static;
    #[doc(hidden)]
    fn bind(self, binder: &mut Binder<'_>) -> Self::Params;
}

/// A closure that is the body of a task with arguments `P` and value `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take what the node reads",
    label = "one argument per value read: `&T` for `&value`, `T` for `take(&value)`, `Each<T>` for `&values[..]`; write their types out: `|x: &T| ...`"
)]
pub trait TaskFn<P, R>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call(&self, params: &P, cells: Cells<'_>) -> R;
}

/// A closure that is the body of a kernel on streams of type `S`, with arguments `P` and value `R`.
#[diagnostic::on_unimplemented(
    message = "this closure does not take a stream and what the node reads",
    label = "first `&mut` the stream, then one argument per value read; write their types out: `|s: &mut HostStream, x: &T| ...`"
)]
pub trait KernelFn<S, P, R>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call(&self, stream: &mut S, params: &P, cells: Cells<'_>) -> R;
}

/// An async closure (or a closure that returns a future) that is the body of an async node with arguments
/// `P`.
#[diagnostic::on_unimplemented(
    message = "this async closure does not take what the node reads, or its future is not Send",
    label = "one argument per value read: `Arc<T>` for `&value`, `T` for `take(&value)`, `Vec<Arc<T>>` for `&values[..]`; clone what it captures into the future"
)]
pub trait FutureFn<P, Fut: Future>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call(&self, params: &P, cells: Cells<'_>) -> Fut;
}

/// How a node uses a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Take,
    /// By an async node, which outlives any borrow.
    Await,
    /// By a loop or a branch, for itself or for a node in it.
    Keep,
}

/// Notes down what one node reads while its arguments are bound.
pub struct Binder<'g> {
    pub(super) graph: &'g mut Graph,
    pub(super) reader: NodeId,
    /// An async node outlives any borrow, so what it reads must be shared.
    pub(super) is_async: bool,
}

impl Binder<'_> {
    fn bind<T: 'static>(&mut self, value: &Value<T>, how: Use) -> Slot<T> {
        let how = if self.is_async && how == Use::Read { Use::Await } else { how };
        self.graph.read_value(value, self.reader, how)
    }
}
