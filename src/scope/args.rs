//! What the operations of a scope read, and what their closures get for it: tiles of stores, values that the
//! scope makes once, and values of the graph around.

use std::convert::Infallible;
use std::marker::PhantomData;

use super::batch::Batch;
use super::device_tile::{DeviceTile, DeviceTileMut, Parts};
use super::draft::{Mode, Uses};
use super::place::{Queued, Scoped};
use super::scalar::Scalar;
use super::store::{OnDevice, OnHost, Shape, Space, Store, View};
use super::tile::{Tile, TileMut};
use crate::device::Element;
use crate::graph::{Data, Value};
use crate::value::args::{OneRead, Param, Single, tuples};

/// An argument: the tile of a use of the operation.
///
/// It follows from what an operation reads. A program does not name it.
#[derive(Debug)]
pub struct TileOf<T, const N: usize, M = OnHost> {
    at: u32,
    element: PhantomData<fn() -> (T, M)>,
}

/// An argument: the tile that the operation writes.
///
/// A function that adds operations names it: see [`Append`].
#[derive(Debug)]
pub struct Target<T, const N: usize, M = OnHost> {
    at: u32,
    element: PhantomData<fn() -> (T, M)>,
}

/// An argument: the parts of a reduction by a kernel.
///
/// It follows from what an operation reads. A program does not name it.
#[derive(Debug)]
pub struct PartsOf<A>(PhantomData<fn() -> A>);

/// An argument: a value that the scope makes once.
///
/// It follows from what an operation reads. A program does not name it.
#[derive(Debug)]
pub struct ScalarOf<T> {
    index: u32,
    value: PhantomData<fn() -> T>,
}

/// An argument: a value of the graph around.
///
/// It follows from what an operation reads. A program does not name it.
#[derive(Debug)]
pub struct GivenOf<T> {
    index: u32,
    value: PhantomData<fn() -> T>,
}

impl<T, const N: usize, M> Target<T, N, M> {
    pub(super) fn new(at: u32) -> Self {
        Self { at, element: PhantomData }
    }
}

impl<A> PartsOf<A> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T, const N: usize, M> Single for &Store<T, N, M> {}
impl<T, const N: usize, M> Single for View<T, N, M> {}
impl<T, const N: usize, M> Single for &View<T, N, M> {}
impl<T> Single for &Scalar<T> {}

/// What the operations of a place read.
macro_rules! reads {
    ($Place:ty) => {
        // Else rustc lists the reads of scopes where a node or an operation reads something wrong.
        #[diagnostic::do_not_recommend]
        impl<T: Element, const N: usize, M: Space> OneRead<$Place> for &Store<T, N, M>
        where
            TileOf<T, N, M>: Param<$Place>,
        {
            type Param = TileOf<T, N, M>;

            fn bind(self, uses: &mut Uses<'_>) -> TileOf<T, N, M> {
                TileOf { at: uses.store(self, Shape::own(N), Mode::Read), element: PhantomData }
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: Element, const N: usize, M: Space> OneRead<$Place> for View<T, N, M>
        where
            TileOf<T, N, M>: Param<$Place>,
        {
            type Param = TileOf<T, N, M>;

            fn bind(self, uses: &mut Uses<'_>) -> TileOf<T, N, M> {
                TileOf { at: uses.store(&self.store, self.shape, Mode::Read), element: PhantomData }
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: Element, const N: usize, M: Space> OneRead<$Place> for &View<T, N, M>
        where
            TileOf<T, N, M>: Param<$Place>,
        {
            type Param = TileOf<T, N, M>;

            fn bind(self, uses: &mut Uses<'_>) -> TileOf<T, N, M> {
                OneRead::<$Place>::bind(self.clone(), uses)
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: Data> OneRead<$Place> for &Scalar<T> {
            type Param = ScalarOf<T>;

            fn bind(self, uses: &mut Uses<'_>) -> ScalarOf<T> {
                ScalarOf { index: uses.scalar(self), value: PhantomData }
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: Data> OneRead<$Place> for &Value<T> {
            type Param = GivenOf<T>;

            fn bind(self, uses: &mut Uses<'_>) -> GivenOf<T> {
                GivenOf { index: uses.given(self), value: PhantomData }
            }
        }
    };
}

reads!(Scoped);
reads!(Queued);

/// An argument of a place: its type, what closures get, and how it is found.
macro_rules! param {
    ($Place:ty, [$($generics:tt)*] $Param:ty => $Arg:ty, |$own:ident, $batch:ident| $find:expr) => {
        impl<$($generics)*> Param<$Place> for $Param {
            type Arg<'a> = $Arg;
            // No operation of a scope is async and has arguments.
            type Owned = Infallible;

            fn fetch<'a>(&'a self, $batch: Batch<'a>) -> Result<$Arg, Infallible> {
                let $own = self;
                Ok($find)
            }

            fn own(&self, _: Batch<'_>) -> Result<Infallible, Infallible> {
                unreachable!("what is loaded and saved is no argument")
            }

            fn check<'a>(&'a self, _: Batch<'a>) -> Result<(), Infallible> {
                Ok(())
            }
        }
    };
}

/// The arguments of all places.
macro_rules! params {
    ($Place:ty) => {
        param!($Place, [T: Element, const N: usize] TileOf<T, N> => Tile<'a, T, N>, |own, batch| batch.tile(own.at));
        param!($Place, [T: Data] ScalarOf<T> => &'a T, |own, batch| batch.scalar(own.index));
        param!($Place, [T: Data] GivenOf<T> => &'a T, |own, batch| batch.given(own.index));
    };
}

params!(Scoped);
params!(Queued);
param!(Scoped, [T: Element, const N: usize] Target<T, N> => TileMut<'a, T, N>, |own, batch| batch.target(own.at));
param!(Queued, [T: Element, const N: usize] TileOf<T, N, OnDevice> => DeviceTile<'a, T, N>, |own, batch| batch.device_tile(own.at));
param!(Queued, [T: Element, const N: usize] Target<T, N, OnDevice> => DeviceTileMut<'a, T, N>, |own, batch| batch.device_target(own.at));
param!(Queued, [A: Element] PartsOf<A> => Parts<'a, A>, |_own, batch| batch.parts());

/// Arguments with one more behind them.
///
/// ```
/// use anabranch::device::Element;
/// use anabranch::graph::{Reads, TaskFn};
/// use anabranch::scope::{Append, Scope, Scoped, Store, Target};
///
/// /// Adds a store, and an operation with any reads that writes it.
/// fn map<T, I, F>(s: &mut Scope, name: &'static str, len: usize, reads: I, work: F) -> Store<T, 1>
/// where
///     T: Element,
///     I: Reads<Scoped, Params: Append<Target<T, 1>>>,
///     F: TaskFn<Scoped, <I::Params as Append<Target<T, 1>>>::Out, ()>,
/// {
///     let made = s.store(name, [len]);
///     s.write(name, reads, &made, work);
///     made
/// }
/// ```
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
