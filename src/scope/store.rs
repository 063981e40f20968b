//! Stores, and which elements of them an operation's batches read.

use std::fmt;
use std::marker::PhantomData;

use crate::device::Element;
use crate::value::args::Sealed;

/// An array of `N` axes in a scope, known by its shape: made by [`Scope::store`](super::Scope::store). It is
/// in memory tile by tile, unless [`Scope::keep`](super::Scope::keep) keeps it.
///
/// An operation that reads `&store` gets, in each batch, the tile of the same rows as the tile that it
/// writes. Other elements are read as [`halo`](Store::halo), [`shifted`](Store::shifted),
/// [`transposed`](Store::transposed) and [`whole`](Store::whole) say.
///
/// `M` says which memory has its tiles: the host's, or the device's ([`DeviceStore`]).
///
/// ```
/// use anabranch::scope::{Streaming, Tile, TileMut};
/// # let mut g = anabranch::Graph::new();
/// let x = g.scope("x", Streaming::strict(), |s| {
///     let (u, v) = (s.store("u", [100]), s.store("v", [100]));
///     s.write("fill", (), &u, |mut u: TileMut<f64, 1>| u.fill(1.0));
///     // With the neighbours of each element; the store has none at its ends.
///     s.write("near", u.halo([1], [1]), &v, |u: Tile<f64, 1>, mut v: TileMut<f64, 1>| {
///         for i in v.range(0) {
///             v[[i]] = [i.wrapping_sub(1), i, i + 1].iter().filter_map(|&i| u.get([i])).sum();
///         }
///     });
///     s.keep(&v)
/// });
/// # g.output("x", &x);
/// # let exec = anabranch::Executor::inline();
/// # let run = exec.run(&g.compile()?, anabranch::Inputs::new());
/// # let mut outputs = futures::executor::block_on(run)?;
/// let x = outputs.take::<anabranch::scope::Array<f64, 1>>("x")?;
/// assert_eq!((x[[0]], x[[50]]), (2.0, 3.0));
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Store<T, const N: usize, M = OnHost> {
    pub(super) scope: usize,
    pub(super) index: u32,
    element: PhantomData<fn(T) -> (T, M)>,
}

/// A store whose tiles are on the device that runs the graph; made by
/// [`Scope::device_store`](super::Scope::device_store). Kernels read and write it.
pub type DeviceStore<T, const N: usize> = Store<T, N, OnDevice>;

/// The memory of the host.
///
/// ```
/// use anabranch::scope::{OnHost, Store};
///
/// fn name_of(_on_the_host: &Store<f32, 2, OnHost>, _the_same: &Store<f32, 2>) {}
/// ```
#[derive(Debug)]
pub enum OnHost {}

/// The memory of the device that runs the graph.
///
/// ```
/// use anabranch::scope::{DeviceStore, OnDevice, Store};
///
/// fn name_of(_on_the_device: &Store<f32, 2, OnDevice>, _the_same: &DeviceStore<f32, 2>) {}
/// ```
#[derive(Debug)]
pub enum OnDevice {}

/// A memory that stores can be in: [`OnHost`] or [`OnDevice`].
///
/// ```
/// use anabranch::device::Element;
/// use anabranch::scope::{Scope, Space, Store};
///
/// /// Sets the tiles of a store, wherever it is.
/// fn small<T: Element, M: Space>(s: &mut Scope, store: &Store<T, 2, M>) {
///     s.tiles(store, [64, 64]);
/// }
/// ```
pub trait Space: Sealed + 'static {
    #[doc(hidden)]
    const IS_ON_DEVICE: bool;
}

impl Sealed for OnHost {}
impl Sealed for OnDevice {}

impl Space for OnHost {
    const IS_ON_DEVICE: bool = false;
}

impl Space for OnDevice {
    const IS_ON_DEVICE: bool = true;
}

impl<T, const N: usize, M> Clone for Store<T, N, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const N: usize, M> Copy for Store<T, N, M> {}

impl<T, const N: usize, M> fmt::Debug for Store<T, N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store<{}, {N}>({})", std::any::type_name::<T>(), self.index)
    }
}

impl<T: Element, const N: usize, M> Store<T, N, M> {
    pub(super) fn new(scope: usize, index: u32) -> Self {
        Self { scope, index, element: PhantomData }
    }

    /// Reads each tile with a border: so many more elements along each axis, before its first one and behind
    /// its last one. At the edge of the store the border is cut.
    pub fn halo(&self, before: [usize; N], behind: [usize; N]) -> View<T, N, M> {
        let shape = Shape { before: before.into(), behind: behind.into(), ..Shape::own(N) };
        View { store: *self, shape }
    }

    /// Reads the tile that lies so many elements further along each axis. At the edge of the store it is cut.
    pub fn shifted(&self, by: [isize; N]) -> View<T, N, M> {
        View { store: *self, shape: Shape { by: by.into(), ..Shape::own(N) } }
    }

    /// Reads tiles of the transposed store: the element at `[i, j]` there is that at `[j, i]` here. A
    /// [`Tile`](super::Tile) of it has the coordinates of this store.
    pub fn transposed(&self) -> View<T, N, M> {
        View { store: *self, shape: Shape { is_transposed: true, ..Shape::own(N) } }
    }

    /// Reads all elements in every batch.
    pub fn whole(&self) -> View<T, N, M> {
        View { store: *self, shape: Shape { is_whole: true, ..Shape::own(N) } }
    }
}

/// Which elements of a store an operation reads; made by the methods of [`Store`].
///
/// ```
/// use anabranch::scope::{Streaming, Tile, TileMut, View};
/// # let mut g = anabranch::Graph::new();
/// let x = g.scope("x", Streaming::strict(), |s| {
///     let (u, v) = (s.store("u", [100]), s.store("v", [100]));
///     s.write("fill", (), &u, |mut u: TileMut<f64, 1>| {
///         for i in u.range(0) {
///             u[[i]] = i as f64;
///         }
///     });
///     let next: View<f64, 1> = u.shifted([1]);
///     s.write("next", next, &v, |u: Tile<f64, 1>, mut v: TileMut<f64, 1>| {
///         v.range(0).for_each(|i| v[[i]] = u.get([i + 1]).copied().unwrap_or(0.0));
///     });
///     s.keep(&v)
/// });
/// # g.output("x", &x);
/// # let exec = anabranch::Executor::inline();
/// # let run = exec.run(&g.compile()?, anabranch::Inputs::new());
/// # let mut outputs = futures::executor::block_on(run)?;
/// assert_eq!(outputs.take::<anabranch::scope::Array<f64, 1>>("x")?[[7]], 8.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug)]
pub struct View<T, const N: usize, M = OnHost> {
    pub(super) store: Store<T, N, M>,
    pub(super) shape: Shape,
}

impl<T, const N: usize, M> Clone for View<T, N, M> {
    fn clone(&self) -> Self {
        Self { store: self.store, shape: self.shape.clone() }
    }
}

/// The same without types.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shape {
    pub(super) is_whole: bool,
    pub(super) is_transposed: bool,
    pub(super) by: Vec<isize>,
    pub(super) before: Vec<usize>,
    pub(super) behind: Vec<usize>,
}

impl Shape {
    /// The tiles themselves.
    pub(super) fn own(axes: usize) -> Self {
        Self { is_whole: false, is_transposed: false, by: vec![0; axes], before: vec![0; axes], behind: vec![0; axes] }
    }

    pub(super) fn is_own(&self) -> bool {
        *self == Self::own(self.by.len())
    }
}
