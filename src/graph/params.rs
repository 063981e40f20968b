//! The arguments of a body, and how each comes out of its cells.

use std::fmt;
use std::sync::Arc;

use crate::value::{Cells, Slot};

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
#[derive(Debug)]
pub struct Read<T>(pub(super) Slot<T>);

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
#[derive(Debug)]
pub struct Own<T>(pub(super) Slot<T>);

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
#[derive(Debug)]
pub struct Many<T>(pub(super) Box<[Slot<T>]>);

/// The values that a node reads through one `&[Value<T>]`, in the order of the slice.
pub struct Each<'a, T> {
    slots: &'a [Slot<T>],
    cells: Cells<'a>,
}

impl<T: fmt::Debug + 'static> fmt::Debug for Each<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
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
