//! What the operations of a scope read, and what their closures get for it: tiles of stores, values that the
//! scope makes once, and values of the graph around.

use std::convert::Infallible;
use std::marker::PhantomData;

use super::batch::Batch;
use super::draft::{Mode, Uses};
use super::place::Scoped;
use super::scalar::Scalar;
use super::store::{Shape, Store, View};
use super::tile::{Tile, TileMut};
use crate::device::Element;
use crate::graph::{Data, Value};
use crate::value::args::{OneRead, Param, Single, tuples};

/// An argument: the tile of a use of the operation.
#[derive(Debug)]
pub struct TileOf<T, const N: usize> {
    at: u32,
    element: PhantomData<fn() -> T>,
}

/// An argument: the tile that the operation writes.
#[derive(Debug)]
pub struct Target<T, const N: usize> {
    at: u32,
    element: PhantomData<fn() -> T>,
}

/// An argument: a value that the scope makes once.
#[derive(Debug)]
pub struct ScalarOf<T> {
    index: u32,
    value: PhantomData<fn() -> T>,
}

/// An argument: a value of the graph around.
#[derive(Debug)]
pub struct GivenOf<T> {
    index: u32,
    value: PhantomData<fn() -> T>,
}

impl<T, const N: usize> Target<T, N> {
    pub(super) fn new(at: u32) -> Self {
        Self { at, element: PhantomData }
    }
}

impl<T, const N: usize> Single for &Store<T, N> {}
impl<T, const N: usize> Single for View<T, N> {}
impl<T, const N: usize> Single for &View<T, N> {}
impl<T> Single for &Scalar<T> {}

// Else rustc lists the reads of scopes where a node or an operation reads something wrong.
#[diagnostic::do_not_recommend]
impl<T: Element, const N: usize> OneRead<Scoped> for &Store<T, N> {
    type Param = TileOf<T, N>;

    fn bind(self, uses: &mut Uses<'_>) -> TileOf<T, N> {
        TileOf { at: uses.store(self, Shape::own(N), Mode::Read), element: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Element, const N: usize> OneRead<Scoped> for View<T, N> {
    type Param = TileOf<T, N>;

    fn bind(self, uses: &mut Uses<'_>) -> TileOf<T, N> {
        TileOf { at: uses.store(&self.store, self.shape, Mode::Read), element: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Element, const N: usize> OneRead<Scoped> for &View<T, N> {
    type Param = TileOf<T, N>;

    fn bind(self, uses: &mut Uses<'_>) -> TileOf<T, N> {
        self.clone().bind(uses)
    }
}

#[diagnostic::do_not_recommend]
impl<T: Data> OneRead<Scoped> for &Scalar<T> {
    type Param = ScalarOf<T>;

    fn bind(self, uses: &mut Uses<'_>) -> ScalarOf<T> {
        ScalarOf { index: uses.scalar(self), value: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Data> OneRead<Scoped> for &Value<T> {
    type Param = GivenOf<T>;

    fn bind(self, uses: &mut Uses<'_>) -> GivenOf<T> {
        GivenOf { index: uses.given(self), value: PhantomData }
    }
}

/// No operation of a scope is async and has arguments.
macro_rules! never_owned {
    () => {
        type Owned = Infallible;

        fn own(&self, _: Batch<'_>) -> Result<Infallible, Infallible> {
            unreachable!("what is loaded and saved is no argument")
        }

        fn check<'a>(&'a self, _: Batch<'a>) -> Result<(), Infallible> {
            Ok(())
        }
    };
}

impl<T: Element, const N: usize> Param<Scoped> for TileOf<T, N> {
    type Arg<'a> = Tile<'a, T, N>;

    fn fetch<'a>(&'a self, batch: Batch<'a>) -> Result<Tile<'a, T, N>, Infallible> {
        Ok(batch.tile(self.at))
    }

    never_owned!();
}

impl<T: Element, const N: usize> Param<Scoped> for Target<T, N> {
    type Arg<'a> = TileMut<'a, T, N>;

    fn fetch<'a>(&'a self, batch: Batch<'a>) -> Result<TileMut<'a, T, N>, Infallible> {
        Ok(batch.target(self.at))
    }

    never_owned!();
}

impl<T: Data> Param<Scoped> for ScalarOf<T> {
    type Arg<'a> = &'a T;

    fn fetch<'a>(&'a self, batch: Batch<'a>) -> Result<&'a T, Infallible> {
        Ok(batch.scalar(self.index))
    }

    never_owned!();
}

impl<T: Data> Param<Scoped> for GivenOf<T> {
    type Arg<'a> = &'a T;

    fn fetch<'a>(&'a self, batch: Batch<'a>) -> Result<&'a T, Infallible> {
        Ok(batch.given(self.index))
    }

    never_owned!();
}

/// Arguments with one more behind them.
pub trait Append<P> {
    /// All of them.
    type Out: Send + Sync + 'static;
    #[doc(hidden)]
    fn append(self, last: P) -> Self::Out;
}

macro_rules! append {
    ($($P:ident $p:ident $T:ident $t:ident $number:tt),*) => {
        impl<Last: Send + Sync + 'static, $($P: Send + Sync + 'static),*> Append<Last> for ($($P,)*) {
            type Out = ($($P,)* Last,);

            fn append(self, last: Last) -> Self::Out {
                let ($($p,)*) = self;
                ($($p,)* last,)
            }
        }
    };
}

append!();
tuples!(append);
