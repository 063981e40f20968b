//! Values that a scope makes once: results of reductions, and values computed of them.

use std::fmt;
use std::marker::PhantomData;

use crate::name::Name;

/// A value that a scope makes once: by [`Scope::fold`](super::Scope::fold) of all batches, or by
/// [`Scope::value`](super::Scope::value). Operations read it as `&scalar`, and the closure of a scope returns
/// it as a result.
///
/// ```
/// use anabranch::scope::{Scalar, Streaming, Sum, Tile, TileMut};
/// # let mut g = anabranch::Graph::new();
/// let x = g.scope("x", Streaming::strict(), |s| {
///     let a = s.store("a", [1000]);
///     s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(2.0));
///     let sum: Scalar<f64> = s.fold("sum", &a, Sum, |a: Tile<f64, 1>| a.as_slice().iter().sum::<f64>());
///     s.value("mean", &sum, |sum: &f64| sum / 1000.0)
/// });
/// # g.output("x", &x);
/// # let exec = anabranch::Executor::inline();
/// # let run = exec.run(&g.compile()?, anabranch::Inputs::new());
/// # let mut outputs = futures::executor::block_on(run)?;
/// assert_eq!(*outputs.take::<f64>("x")?, 2.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Scalar<T> {
    pub(super) scope: usize,
    pub(super) index: u32,
    value: PhantomData<fn(T) -> T>,
}

impl<T> Scalar<T> {
    pub(super) fn new(scope: usize, index: u32) -> Self {
        Self { scope, index, value: PhantomData }
    }
}

impl<T> Clone for Scalar<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Scalar<T> {}

impl<T> fmt::Debug for Scalar<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scalar<{}>({})", std::any::type_name::<T>(), self.index)
    }
}

/// How the parts of a reduction are combined. It must be associative: parts are combined in the order of
/// their elements, each behind [`identity`](Operator::identity) or what was combined before.
///
/// ```
/// use anabranch::scope::{Max, Operator, Sum};
///
/// /// Combines values as a reduction does.
/// fn combined<A, O: Operator<A>>(operator: &O, values: impl IntoIterator<Item = A>) -> A {
///     values.into_iter().fold(operator.identity(), |before, behind| operator.combine(before, behind))
/// }
/// assert_eq!((combined(&Sum, [1, 2, 3]), combined(&Max, [1, 7, 3])), (6, 7));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not combine values of type `{A}`",
    label = "give an operator for `{A}`: of your own with `operator(\"name\", || identity, |before, behind| combined)`"
)]
pub trait Operator<A>: Send + Sync + 'static {
    /// Returns its name. Reductions of one store by one operator commute.
    fn name(&self) -> Name;
    /// Returns what no elements give.
    fn identity(&self) -> A;
    /// Returns what two neighbouring parts give.
    fn combine(&self, before: A, behind: A) -> A;
}

/// Adds. Integers wrap around, as over MPI and NCCL.
///
/// ```
/// use anabranch::scope::{Sum, Operator};
///
/// assert_eq!(Sum.combine(3.0, Sum.combine(2.0, Sum.identity())), 5.0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sum;
/// Multiplies. Integers wrap around, as over MPI and NCCL.
///
/// ```
/// use anabranch::scope::{Product, Operator};
///
/// assert_eq!(Product.combine(3.0, Product.combine(2.0, Product.identity())), 6.0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Product;
/// Takes the smaller one. A NaN counts only among NaNs.
///
/// ```
/// use anabranch::scope::{Min, Operator};
///
/// assert_eq!(Min.combine(3.0, Min.combine(2.0, Min.identity())), 2.0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Min;
/// Takes the larger one. A NaN counts only among NaNs.
///
/// ```
/// use anabranch::scope::{Max, Operator};
///
/// assert_eq!(Max.combine(3.0, Max.combine(2.0, Max.identity())), 3.0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Max;

macro_rules! operators {
    ($add:expr, $multiply:expr; $($number:ty, $zero:literal, $one:literal, $lowest:expr, $highest:expr);* $(;)?) => { $(
        operators!(Sum, $number, "+", $zero, $add);
        operators!(Product, $number, "*", $one, $multiply);
        operators!(Min, $number, "min", $highest, |before, behind| before.min(behind));
        operators!(Max, $number, "max", $lowest, |before, behind| before.max(behind));
    )* };
    ($Op:ident, $number:ty, $name:literal, $identity:expr, $combine:expr) => {
        impl Operator<$number> for $Op {
            fn name(&self) -> Name {
                Name::from($name)
            }

            fn identity(&self) -> $number {
                $identity
            }

            // Loops over elements are compiled in other crates.
            #[inline]
            fn combine(&self, before: $number, behind: $number) -> $number {
                let combine: fn($number, $number) -> $number = $combine;
                combine(before, behind)
            }
        }
    };
}

operators! {
    |before, behind| before + behind, |before, behind| before * behind;
    f64, 0.0, 1.0, f64::NEG_INFINITY, f64::INFINITY;
    f32, 0.0, 1.0, f32::NEG_INFINITY, f32::INFINITY;
}

operators! {
    |before, behind| before.wrapping_add(behind), |before, behind| before.wrapping_mul(behind);
    u8, 0, 1, u8::MIN, u8::MAX;
    i8, 0, 1, i8::MIN, i8::MAX;
    u16, 0, 1, u16::MIN, u16::MAX;
    i16, 0, 1, i16::MIN, i16::MAX;
    u32, 0, 1, u32::MIN, u32::MAX;
    i32, 0, 1, i32::MIN, i32::MAX;
    u64, 0, 1, u64::MIN, u64::MAX;
    i64, 0, 1, i64::MIN, i64::MAX;
    usize, 0, 1, usize::MIN, usize::MAX;
}

/// An operator of your own; made by [`operator`].
///
/// ```
/// use anabranch::scope::{Operator, operator};
///
/// let longest = operator("longest", String::new, |a: String, b: String| if b.len() > a.len() { b } else { a });
/// assert_eq!(longest.combine("ab".to_string(), "abc".to_string()), "abc");
/// ```
pub struct Own<I, C> {
    name: Name,
    identity: I,
    combine: C,
}

/// Returns an operator: what no elements give, and what two neighbouring parts give. Both must be the same
/// functions wherever the name is the same.
///
/// ```
/// use anabranch::scope::{Streaming, Tile, TileMut, operator};
/// # let mut g = anabranch::Graph::new();
/// let x = g.scope("x", Streaming::strict(), |s| {
///     let a = s.store("a", [1000]);
///     s.write("fill", (), &a, |mut a: TileMut<i64, 1>| a.fill(-3));
///     // The smallest element and the largest one.
///     type Range = (i64, i64);
///     let range = operator("range", || (i64::MAX, i64::MIN), |a: Range, b: Range| (a.0.min(b.0), a.1.max(b.1)));
///     s.fold("range", &a, range, |a: Tile<i64, 1>| {
///         a.as_slice().iter().fold((i64::MAX, i64::MIN), |range, &a| (range.0.min(a), range.1.max(a)))
///     })
/// });
/// # g.output("x", &x);
/// # let exec = anabranch::Executor::inline();
/// # let run = exec.run(&g.compile()?, anabranch::Inputs::new());
/// # let mut outputs = futures::executor::block_on(run)?;
/// assert_eq!(*outputs.take::<(i64, i64)>("x")?, (-3, -3));
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn operator<A, I, C>(name: impl Into<Name>, identity: I, combine: C) -> Own<I, C>
where
    I: Fn() -> A + Send + Sync + 'static,
    C: Fn(A, A) -> A + Send + Sync + 'static,
{
    Own { name: name.into(), identity, combine }
}

impl<A, I: Fn() -> A + Send + Sync + 'static, C: Fn(A, A) -> A + Send + Sync + 'static> Operator<A> for Own<I, C> {
    fn name(&self) -> Name {
        self.name.clone()
    }

    fn identity(&self) -> A {
        (self.identity)()
    }

    fn combine(&self, before: A, behind: A) -> A {
        (self.combine)(before, behind)
    }
}

impl<I, C> fmt::Debug for Own<I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("name", &self.name).finish_non_exhaustive()
    }
}
