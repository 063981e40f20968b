//! A scope while its closure builds it.

use std::future::Future;
use std::marker::PhantomData;

use super::args::{Append, Target};
use super::bodies::{Loaded, Once, PartsByClosure, Reduced, Saved, Tasked};
use super::body::{Body, PartMaker};
use super::draft::{Draft, Mode, Use, Used};
use super::memory::{ALIGN, BYTES_MAX};
use super::place::Scoped;
use super::results::Kept;
use super::scalar::{Operator, Scalar};
use super::store::{Shape, Space, Store};
use super::streaming::Streaming;
use super::tile::TilePlace;
use crate::device::Element;
use crate::error::BoxError;
use crate::graph::{Data, Reads, TaskFn};
use crate::name::Name;
use crate::tiles::VOLUME_MAX;
use crate::value::args::{Fallible, Finish, Infallible};

/// An array program: stores, and operations on them in order. Made by
/// [`Graph::scope`](crate::Graph::scope), whose closure gets it.
///
/// An operation runs in batches. Each writes one tile of a store, and reads the tiles that go with it. The
/// closure of an operation gets one argument for each thing that is read: a [`Tile`](super::Tile) of a
/// [`Store`], or of a view of it such as [`halo`](Store::halo); `&T` of a [`Scalar`], or of a
/// [`Value`](crate::Value) of the graph around. The last argument is the [`TileMut`](super::TileMut) that is
/// written. Write the types of the arguments out.
///
/// What an operation writes must depend on the elements that it reads, and not on the size of tiles. Then the
/// results are the same, bit by bit, for all settings of [`Streaming`] and on all executors.
///
/// ```
/// use anabranch::scope::{Scope, Streaming, Sum, Tile, TileMut};
/// # let mut g = anabranch::Graph::new();
/// let x = g.scope("x", Streaming::strict(), |s| {
///     // A part of a scope that several scopes share.
///     fn ones(s: &mut Scope) -> anabranch::scope::Store<f64, 1> {
///         let ones = s.store("ones", [1000]);
///         s.write("fill", (), &ones, |mut a: TileMut<f64, 1>| a.fill(1.0));
///         ones
///     }
///     let ones = ones(s);
///     s.fold("sum", &ones, Sum, |a: Tile<f64, 1>| a.as_slice().iter().sum::<f64>())
/// });
/// # g.output("x", &x);
/// # let exec = anabranch::Executor::inline();
/// # let run = exec.run(&g.compile()?, anabranch::Inputs::new());
/// # let mut outputs = futures::executor::block_on(run)?;
/// assert_eq!(*outputs.take::<f64>("x")?, 1000.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Scope {
    pub(super) draft: Draft,
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Draft { name, stores, ops, .. } = &self.draft;
        f.debug_struct("Scope").field("name", name).field("stores", &stores.len()).field("ops", &ops.len()).finish()
    }
}

impl Scope {
    /// Adds a store of this shape. It has no memory before something is written. If there is a store of this
    /// name already, this one gets a number behind its name; so do operations.
    pub fn store<T: Element, const N: usize>(&mut self, name: impl Into<Name>, shape: [usize; N]) -> Store<T, N> {
        self.add_store(name.into(), shape)
    }

    pub(super) fn add_store<T: Element, const N: usize, M: Space>(&mut self, name: Name, shape: [usize; N]) -> Store<T, N, M> {
        if !(1..=super::AXES_MAX).contains(&N) {
            self.draft.fault(format!("store '{name}' has {N} axes: it may have from 1 to {}", super::AXES_MAX));
        }
        // Also of a store without elements: its rows have some.
        let elements = shape.iter().try_fold(1_u64, |volume, &along| volume.checked_mul(along.max(1) as u64));
        if elements.is_none_or(|elements| elements > VOLUME_MAX) {
            self.draft.fault(format!("store '{name}' has more than 2^40 elements: {shape:?}: make it smaller, or split it"));
        } else if elements.and_then(|elements| elements.checked_mul(size_of::<T>() as u64)).is_none_or(|bytes| bytes > BYTES_MAX)
        {
            let size = size_of::<T>();
            let shape = format!("{shape:?} elements of {size}");
            self.draft.fault(format!("store '{name}' has more than 2^47 bytes: {shape}: make it smaller, or split it"));
        }
        self.check_element::<T>(&format!("store '{name}'"));
        self.draft.add_store(&name, shape.iter().map(|&along| along as u64).collect(), None)
    }

    /// Checks that memory can have the elements of something.
    pub(super) fn check_element<T: Element>(&mut self, of: &str) {
        if size_of::<T>() == 0 || align_of::<T>() as u64 > ALIGN {
            self.draft.fault(format!("the elements of {of} have no bytes, or are aligned to more than {ALIGN}"));
        }
    }

    /// Sets the shape of a store's tiles. Without it they are whole rows, as many as fit into the cache.
    pub fn tiles<T: Element, const N: usize, M: Space>(&mut self, store: &Store<T, N, M>, shape: [usize; N]) {
        if !self.draft.owns(store) {
            return self.draft.foreign("`tiles` gets a store");
        }
        let name = self.draft.stores[store.index as usize].name.clone();
        if shape.contains(&0) {
            return self
                .draft
                .fault(format!("the tiles of store '{name}' have no elements: {shape:?}: give one or more along each axis"));
        }
        self.draft.stores[store.index as usize].tile = Some(shape.iter().map(|&along| along as u64).collect());
    }

    /// Adds an operation that writes a store: all its elements, a tile in each batch.
    pub fn write<T, const N: usize, I, F>(&mut self, name: impl Into<Name>, reads: I, target: &Store<T, N>, work: F)
    where
        T: Element,
        I: Reads<Scoped, Params: Append<Target<T, N>>>,
        F: TaskFn<Scoped, <I::Params as Append<Target<T, N>>>::Out, ()>,
    {
        self.add::<T, N, I, F, _, Infallible>(name.into(), reads, target, Mode::Write, work);
    }

    /// Adds an operation that writes a store and can fail.
    ///
    /// # Errors
    /// An error of `work` fails the scope: the error names the operation and its tile.
    pub fn try_write<T, const N: usize, I, F>(&mut self, name: impl Into<Name>, reads: I, target: &Store<T, N>, work: F)
    where
        T: Element,
        I: Reads<Scoped, Params: Append<Target<T, N>>>,
        F: TaskFn<Scoped, <I::Params as Append<Target<T, N>>>::Out, Result<(), BoxError>>,
    {
        self.add::<T, N, I, F, _, Fallible>(name.into(), reads, target, Mode::Write, work);
    }

    /// Adds an operation that changes a store, and returns the changed one. If nothing uses the old one
    /// afterwards, it is changed where it is; otherwise the changed one is another.
    #[must_use = "the store that was given has the old elements"]
    pub fn update<T, const N: usize, I, F>(
        &mut self,
        name: impl Into<Name>,
        reads: I,
        store: &Store<T, N>,
        work: F,
    ) -> Store<T, N>
    where
        T: Element,
        I: Reads<Scoped, Params: Append<Target<T, N>>>,
        F: TaskFn<Scoped, <I::Params as Append<Target<T, N>>>::Out, ()>,
    {
        let name = name.into();
        let target = self.updated(&name, store);
        self.add::<T, N, I, F, _, Infallible>(name, reads, &target, Mode::Update, work);
        target
    }

    /// Adds an operation that changes a store and can fail, as [`update`](Scope::update).
    ///
    /// # Errors
    /// As for [`try_write`](Scope::try_write).
    #[must_use = "the store that was given has the old elements"]
    pub fn try_update<T, const N: usize, I, F>(
        &mut self,
        name: impl Into<Name>,
        reads: I,
        store: &Store<T, N>,
        work: F,
    ) -> Store<T, N>
    where
        T: Element,
        I: Reads<Scoped, Params: Append<Target<T, N>>>,
        F: TaskFn<Scoped, <I::Params as Append<Target<T, N>>>::Out, Result<(), BoxError>>,
    {
        let name = name.into();
        let target = self.updated(&name, store);
        self.add::<T, N, I, F, _, Fallible>(name, reads, &target, Mode::Update, work);
        target
    }

    pub(super) fn updated<T: Element, const N: usize, M: Space>(
        &mut self,
        name: &Name,
        store: &Store<T, N, M>,
    ) -> Store<T, N, M> {
        if !self.draft.owns(store) {
            self.draft.foreign(&format!("operation '{}{name}' updates a store", self.draft.prefix));
            return *store;
        }
        let known = &self.draft.stores[store.index as usize];
        let (name, extents) = (known.name.to_string(), known.extents.clone());
        self.draft.add_store(&name, extents, Some(store.index))
    }

    fn add<T, const N: usize, I, F, R, K>(&mut self, name: Name, reads: I, target: &Store<T, N>, mode: Mode, work: F)
    where
        T: Element,
        I: Reads<Scoped, Params: Append<Target<T, N>>>,
        F: TaskFn<Scoped, <I::Params as Append<Target<T, N>>>::Out, R>,
        K: Finish<R, Value = ()>,
        R: 'static,
    {
        let mut uses = self.draft.begin(&name);
        let params = reads.bind(&mut uses);
        let params = params.append(Target::new(uses.store(target, Shape::own(N), mode)));
        uses.end(Body::Task(Box::new(Tasked::<_, _, R, K> { params, work, kind: PhantomData })));
    }

    /// Adds a reduction: `work` makes a value of the elements that it reads, and `operator` combines the
    /// values in the order of the elements. The values are of leaves of the first store that is read. A leaf
    /// is a row, or the most rows, a power of two, with at most 4096 elements in each store of the scope that
    /// has as many rows as this one. So the result does not depend on tiles.
    pub fn fold<A, I, O, F>(&mut self, name: impl Into<Name>, reads: I, operator: O, work: F) -> Scalar<A>
    where
        A: Data,
        I: Reads<Scoped>,
        O: Operator<A>,
        F: TaskFn<Scoped, I::Params, A>,
    {
        let name = name.into();
        let scalar = self.draft.add_scalar::<A>(&name);
        let mut uses = self.draft.begin(&name);
        let params = reads.bind(&mut uses);
        uses.add(Use { of: Used::Scalar(scalar.index), mode: Mode::Reduce(operator.name()), shape: Shape::own(1) });
        let fold = Reduced { operator, scalar: scalar.index, value: PhantomData };
        let maker = PartsByClosure::<_, _, A> { params, work, value: PhantomData };
        uses.end(Body::Fold(Box::new(fold), PartMaker::Closure(Box::new(maker))));
        scalar
    }

    /// Adds a value that is made once. It reads other scalars, values of the graph around, and whole stores.
    pub fn value<A, I, F>(&mut self, name: impl Into<Name>, reads: I, work: F) -> Scalar<A>
    where
        A: Data,
        I: Reads<Scoped>,
        F: TaskFn<Scoped, I::Params, A>,
    {
        self.add_value::<A, _, _, _, Infallible>(name.into(), reads, work)
    }

    /// Adds a value that is made once and can fail.
    ///
    /// # Errors
    /// An error of `work` fails the scope.
    pub fn try_value<A, I, F>(&mut self, name: impl Into<Name>, reads: I, work: F) -> Scalar<A>
    where
        A: Data,
        I: Reads<Scoped>,
        F: TaskFn<Scoped, I::Params, Result<A, BoxError>>,
    {
        self.add_value::<A, _, _, _, Fallible>(name.into(), reads, work)
    }

    fn add_value<A, I, F, R, K>(&mut self, name: Name, reads: I, work: F) -> Scalar<A>
    where
        A: Data,
        I: Reads<Scoped>,
        F: TaskFn<Scoped, I::Params, R>,
        K: Finish<R, Value = A>,
        R: 'static,
    {
        let scalar = self.draft.add_scalar::<A>(&name);
        let mut uses = self.draft.begin(&name);
        let params = reads.bind(&mut uses);
        uses.add(Use { of: Used::Scalar(scalar.index), mode: Mode::Write, shape: Shape::own(1) });
        uses.end(Body::Task(Box::new(Once::<_, _, R, K> { params, work, scalar: scalar.index, kind: PhantomData })));
        scalar
    }

    /// Adds an operation that brings a store in from outside, tile by tile: `work` gets the place of a tile
    /// and a buffer of as many elements, fills the buffer, and gives it back. Tiles come in order, one at a
    /// time, while other operations go on. None is asked for before there is memory for it.
    ///
    /// # Errors
    /// An error of `work`, or a buffer of another length, fails the scope: the error names the tile.
    ///
    /// # Cancellation
    /// When the run is cancelled or dropped, the future is dropped.
    ///
    /// # Examples
    /// From a file, in blocking calls outside of the async runtime. The closure is called for each tile, so
    /// it gives each future what it needs.
    /// ```no_run
    /// use std::os::unix::fs::FileExt;
    /// use std::sync::Arc;
    ///
    /// use anabranch::scope::{Streaming, Sum, Tile};
    ///
    /// # fn main() -> Result<(), anabranch::BoxError> {
    /// let file = Arc::new(std::fs::File::open("bytes.raw")?);
    /// let mut g = anabranch::Graph::new();
    /// let sum = g.scope("total", Streaming::strict(), |s| {
    ///     let bytes = s.store("bytes", [1 << 30]);
    ///     s.load("read", &bytes, move |place, mut buffer: Vec<u8>| {
    ///         let file = file.clone();
    ///         async move {
    ///             let read = tokio::task::spawn_blocking(move || {
    ///                 file.read_exact_at(&mut buffer, place.start[0] as u64)?;
    ///                 Ok(buffer)
    ///             });
    ///             read.await?
    ///         }
    ///     });
    ///     s.fold("sum", &bytes, Sum, |bytes: Tile<u8, 1>| bytes.as_slice().iter().map(|&byte| u64::from(byte)).sum::<u64>())
    /// });
    /// # let _ = sum;
    /// # Ok(())
    /// # }
    /// ```
    pub fn load<T, const N: usize, F, Fut>(&mut self, name: impl Into<Name>, target: &Store<T, N>, work: F)
    where
        T: Element,
        F: Fn(TilePlace<N>, Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<T>, BoxError>> + Send + 'static,
    {
        self.add_load(name.into(), target, true, work);
    }

    /// Adds an operation that brings a store in from outside, as [`load`](Scope::load), but several tiles at
    /// a time, as many as [batches are in flight](Streaming::in_flight), and in any order: for data that is
    /// far away.
    ///
    /// # Errors
    /// As for [`load`](Scope::load).
    ///
    /// # Cancellation
    /// As for [`load`](Scope::load).
    pub fn load_unordered<T, const N: usize, F, Fut>(&mut self, name: impl Into<Name>, target: &Store<T, N>, work: F)
    where
        T: Element,
        F: Fn(TilePlace<N>, Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<T>, BoxError>> + Send + 'static,
    {
        self.add_load(name.into(), target, false, work);
    }

    fn add_load<T, const N: usize, F, Fut>(&mut self, name: Name, target: &Store<T, N>, is_ordered: bool, work: F)
    where
        T: Element,
        F: Fn(TilePlace<N>, Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<T>, BoxError>> + Send + 'static,
    {
        let mut uses = self.draft.begin(&name);
        let at = uses.store(target, Shape::own(N), Mode::Write);
        uses.end(Body::Transfer(Box::new(Loaded::<T, N, F> { at, work, element: PhantomData }), is_ordered));
    }

    /// Adds an operation that brings a store out, tile by tile: `work` gets the place of a tile and a copy of
    /// its elements, and gives the buffer back. Tiles come in order, one at a time.
    ///
    /// # Errors
    /// An error of `work` fails the scope: the error names the tile.
    ///
    /// # Cancellation
    /// When the run is cancelled or dropped, the future is dropped.
    pub fn save<T, const N: usize, F, Fut>(&mut self, name: impl Into<Name>, store: &Store<T, N>, work: F)
    where
        T: Element,
        F: Fn(TilePlace<N>, Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<T>, BoxError>> + Send + 'static,
    {
        self.add_save(name.into(), store, true, work);
    }

    /// Adds an operation that brings a store out, as [`save`](Scope::save), but several tiles at a time, and
    /// in any order, as [`load_unordered`](Scope::load_unordered) does.
    ///
    /// # Errors
    /// As for [`save`](Scope::save).
    ///
    /// # Cancellation
    /// As for [`save`](Scope::save).
    pub fn save_unordered<T, const N: usize, F, Fut>(&mut self, name: impl Into<Name>, store: &Store<T, N>, work: F)
    where
        T: Element,
        F: Fn(TilePlace<N>, Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<T>, BoxError>> + Send + 'static,
    {
        self.add_save(name.into(), store, false, work);
    }

    fn add_save<T, const N: usize, F, Fut>(&mut self, name: Name, store: &Store<T, N>, is_ordered: bool, work: F)
    where
        T: Element,
        F: Fn(TilePlace<N>, Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<T>, BoxError>> + Send + 'static,
    {
        let mut uses = self.draft.begin(&name);
        let at = uses.store(store, Shape::own(N), Mode::Read);
        uses.end(Body::Transfer(Box::new(Saved::<T, N, F> { at, work, element: PhantomData }), is_ordered));
    }

    /// Keeps a store whole, as a result of the scope.
    pub fn keep<T: Element, const N: usize>(&mut self, store: &Store<T, N>) -> Kept<T, N> {
        if self.draft.owns(store) {
            self.draft.stores[store.index as usize].is_kept = true;
        } else {
            self.draft.foreign("`keep` gets a store");
        }
        Kept(*store)
    }

    /// Builds a part of this scope, whose operations get `name` before theirs. An inner scope streams as the
    /// outer one does, and its operations with those around them.
    ///
    /// # Errors
    /// Of `compile`, if `streaming` is not that of the outer scope.
    pub fn scope<R>(&mut self, name: impl Into<Name>, streaming: Streaming, build: impl FnOnce(&mut Self) -> R) -> R {
        let name = name.into();
        if streaming != self.draft.settings {
            let fault = format!(
                "the inner scope '{}{name}' streams in another way: give it the same `Streaming`, or make it a scope of the graph",
                self.draft.prefix
            );
            self.draft.fault(fault);
        }
        let around = self.draft.prefix.clone();
        self.draft.prefix = format!("{around}{name}/");
        let built = build(self);
        self.draft.prefix = around;
        built
    }
}
