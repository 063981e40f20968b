//! The reads of a node: each becomes an edge of the graph and an argument of the body.

use super::NodeId;
use super::builder::Graph;
use super::handle::{Take, Value};
use super::params::{Many, Own, Param, Read};
use super::values::Use;
use crate::value::Slot;

/// One thing that a node reads: `&Value<T>`, [`take`](super::take)`(&value)`, or `&[Value<T>]` for any number
/// of one type.
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

/// Records the reads of one node while its arguments are bound.
#[derive(Debug)]
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
