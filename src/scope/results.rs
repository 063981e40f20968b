//! What comes out of a scope: scalars and kept stores become values of the graph around.

use std::any::Any;
use std::sync::Arc;

use super::array::Array;
use super::draft::Draft;
use super::memory::Block;
use super::scalar::Scalar;
use super::store::Store;
use crate::device::Element;
use crate::graph::{Data, Made, NewJob, Value};
use crate::value::args::tuples;

/// A store that is kept whole; made by [`Scope::keep`](super::Scope::keep).
///
/// ```
/// use anabranch::scope::{Array, Kept, Streaming, TileMut};
/// # let mut g = anabranch::Graph::new();
/// let x = g.scope("x", Streaming::strict(), |s| {
///     let a = s.store("a", [2, 3]);
///     s.write("fill", (), &a, |mut a: TileMut<f32, 2>| a.fill(1.0));
///     let kept: Kept<f32, 2> = s.keep(&a);
///     kept
/// });
/// # g.output("x", &x);
/// # let exec = anabranch::Executor::inline();
/// # let run = exec.run(&g.compile()?, anabranch::Inputs::new());
/// # let mut outputs = futures::executor::block_on(run)?;
/// assert_eq!(outputs.take::<Array<f32, 2>>("x")?.shape(), [2, 3]);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Kept<T, const N: usize>(pub(super) Store<T, N>);

/// A result: what gives it.
pub(super) enum Given {
    /// The scalar of this number.
    Scalar(u32),
    /// The elements of this store, once they are there.
    Store {
        store: u32,
        make: fn(Arc<Block>, &[u64]) -> Made,
    },
    Nothing,
}

/// What the closure of a scope returns: a [`Scalar`], a [`Kept`] store, a tuple of up to eight of these, or
/// `()`. Each becomes a value of the graph around: of `A` for a `Scalar<A>`, of an [`Array`] for a kept
/// store.
///
/// ```
/// use anabranch::scope::{Array, Streaming, Sum, Tile, TileMut};
/// use anabranch::{Graph, Value};
///
/// let mut g = Graph::new();
/// let (a, sum): (Value<Array<f64, 1>>, Value<f64>) = g.scope("two results", Streaming::strict(), |s| {
///     let a = s.store("a", [10]);
///     s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(1.0));
///     let sum = s.fold("sum", &a, Sum, |a: Tile<f64, 1>| a.as_slice().iter().sum::<f64>());
///     (s.keep(&a), sum)
/// });
/// # g.output("a", &a);
/// # g.output("sum", &sum);
/// # g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a scope",
    label = "let the closure return a `Scalar`, what `keep` returned, a tuple of up to eight of these, or `()`"
)]
pub trait Results {
    /// The values of the graph.
    type Values;
    #[doc(hidden)]
    fn declare(self, results: &mut Declared<'_, '_>) -> Self::Values;
}

/// The results of a scope while they are declared.
///
/// A program does not name it: [`Results`] is for the types that the closure of a scope returns.
pub struct Declared<'d, 'g> {
    pub(super) draft: &'d mut Draft,
    pub(super) job: &'d mut NewJob<'g>,
    pub(super) given: Vec<Given>,
    /// The value of each.
    pub(super) values: Vec<Box<dyn Any>>,
}

impl Declared<'_, '_> {
    /// Returns the value of a result: one, however often it is returned.
    fn value<T: Data>(&mut self, given: Given) -> Value<T> {
        let mut known = self.given.iter().zip(&self.values).filter(|(known, _)| known.is_same(&given));
        // That of another scope, which is a mistake, may have another type.
        if let Some(&value) = known.find_map(|(_, value)| value.downcast_ref()) {
            return value;
        }
        let value = self.job.make::<T>();
        self.given.push(given);
        self.values.push(Box::new(value));
        value
    }
}

impl Given {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Scalar(one), Self::Scalar(other)) => one == other,
            (Self::Store { store: one, .. }, Self::Store { store: other, .. }) => one == other,
            (Self::Nothing, Self::Nothing) => true,
            _ => false,
        }
    }
}

impl std::fmt::Debug for Declared<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Declared").field("results", &self.given.len()).finish_non_exhaustive()
    }
}

impl Results for () {
    type Values = Value<()>;

    fn declare(self, results: &mut Declared<'_, '_>) -> Value<()> {
        results.value(Given::Nothing)
    }
}

impl<A: Data> Results for Scalar<A> {
    type Values = Value<A>;

    fn declare(self, results: &mut Declared<'_, '_>) -> Value<A> {
        if !results.draft.owns_scalar(&self) {
            results.draft.foreign("its closure returns a scalar");
        }
        results.value(Given::Scalar(self.index))
    }
}

impl<T: Element, const N: usize> Results for Kept<T, N> {
    type Values = Value<Array<T, N>>;

    fn declare(self, results: &mut Declared<'_, '_>) -> Value<Array<T, N>> {
        if !results.draft.owns(&self.0) {
            results.draft.foreign("its closure returns a store");
        }
        results.value(Given::Store { store: self.0.index, make: Array::<T, N>::of_block })
    }
}

macro_rules! results {
    ($($V:ident $v:ident $T:ident $t:ident $number:tt),*) => {
        impl<$($V: Results),*> Results for ($($V,)*) {
            type Values = ($($V::Values,)*);

            fn declare(self, results: &mut Declared<'_, '_>) -> Self::Values {
                let ($($v,)*) = self;
                ($($v.declare(results),)*)
            }
        }
    };
}

tuples!(results);
