//! Values that a scope makes once: results of reductions, and values computed of them.

use std::fmt;
use std::marker::PhantomData;

use crate::name::Name;

/// A value that a scope makes once: by [`Scope::fold`](super::Scope::fold) of all batches, or by
/// [`Scope::value`](super::Scope::value). Operations read it as `&scalar`, and the closure of a scope returns
/// it as a result.
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

/// Adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sum;
/// Multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Product;
/// Takes the smaller one. A NaN counts only among NaNs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Min;
/// Takes the larger one. A NaN counts only among NaNs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Max;

macro_rules! operators {
    ($($number:ty, $zero:literal, $one:literal, $lowest:expr, $highest:expr);* $(;)?) => { $(
        operators!(Sum, $number, "+", $zero, |before, behind| before + behind);
        operators!(Product, $number, "*", $one, |before, behind| before * behind);
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

            fn combine(&self, before: $number, behind: $number) -> $number {
                let combine: fn($number, $number) -> $number = $combine;
                combine(before, behind)
            }
        }
    };
}

operators! {
    f64, 0.0, 1.0, f64::NEG_INFINITY, f64::INFINITY;
    f32, 0.0, 1.0, f32::NEG_INFINITY, f32::INFINITY;
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
pub struct Own<I, C> {
    name: Name,
    identity: I,
    combine: C,
}

/// Returns an operator: what no elements give, and what two neighbouring parts give. Both must be the same
/// functions wherever the name is the same.
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
