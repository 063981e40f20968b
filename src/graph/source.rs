//! The reads of a node: each becomes an edge of the graph and an argument of the body.

use std::convert::Infallible;
use std::sync::Arc;

use super::NodeId;
use super::builder::Graph;
use super::handle::{Take, Value};
use super::values::Use;
use crate::value::args::{ByRef, ByValue, Each, EachOf, Key, OneRead, Place, Single};
use crate::value::{Cells, Slot};

impl Place for Graph {
    type View<'a> = Cells<'a>;
    /// A node that lacks an input does not run.
    type Fault = Infallible;
    type Binder<'b> = Binder<'b>;
}

impl<T: Send + Sync + 'static> Key for Slot<T> {
    type Place = Graph;
    type Value = T;

    #[inline(always)]
    fn get<'a>(&'a self, cells: Cells<'a>) -> Result<&'a T, Infallible> {
        Ok(cells.get(*self))
    }

    #[inline(always)]
    fn each<'a>(slots: &'a [Self], cells: Cells<'a>) -> Result<Each<'a, T>, Infallible> {
        Ok(Each::in_cells(slots, cells))
    }

    fn share(&self, cells: Cells<'_>) -> Result<Arc<T>, Infallible> {
        Ok(cells.share(*self))
    }

    #[inline(always)]
    fn take(&self, cells: Cells<'_>) -> Result<T, Infallible> {
        Ok(cells.take(*self))
    }

    fn check_take(&self, _: Cells<'_>) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<T> Single for &Value<T> {}
impl<T> Single for Take<T> {}
impl<T> Single for &[Value<T>] {}

impl<T: Send + Sync + 'static> OneRead<Graph> for &Value<T> {
    type Param = ByRef<Slot<T>>;

    fn bind(self, binder: &mut Binder<'_>) -> ByRef<Slot<T>> {
        ByRef(binder.bind(self, Use::Read))
    }
}

impl<T: Send + Sync + 'static> OneRead<Graph> for Take<T> {
    type Param = ByValue<Slot<T>>;

    fn bind(self, binder: &mut Binder<'_>) -> ByValue<Slot<T>> {
        ByValue(binder.bind(&self.0, Use::Take))
    }
}

impl<T: Send + Sync + 'static> OneRead<Graph> for &[Value<T>] {
    type Param = EachOf<Slot<T>>;

    fn bind(self, binder: &mut Binder<'_>) -> EachOf<Slot<T>> {
        EachOf(self.iter().map(|value| binder.bind(value, Use::Read)).collect())
    }
}

/// Records the reads of one node while its arguments are bound.
#[derive(Debug)]
pub struct Binder<'g> {
    pub(super) graph: &'g mut Graph,
    pub(super) reader: NodeId,
    /// An async node outlives any borrow, so its values must be shared.
    pub(super) is_async: bool,
}

impl Binder<'_> {
    fn bind<T: 'static>(&mut self, value: &Value<T>, how: Use) -> Slot<T> {
        let how = if self.is_async && how == Use::Read { Use::Await } else { how };
        self.graph.read_value(value, self.reader, how)
    }
}
