//! What a loop asks before each iteration, and what a branch is told.

use super::builder::Graph;
use super::source::{Use, Value};
use super::values::{Maker, Transfer};
use crate::value::{Cells, Slot};

/// What the condition of a loop may be: a [`Value`] that [`Holds`] or does not, or [`times`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the condition of a loop",
    label = "a value of type `bool`, or `above(residual, tolerance)`; or `times(n)` instead of the closure"
)]
pub trait Condition {
    #[doc(hidden)]
    fn settle(self, inner: &mut Graph) -> Test;
}

/// How a loop knows whether to go on.
#[derive(Clone, Copy)]
pub enum Test {
    #[doc(hidden)]
    Times(u64),
    #[doc(hidden)]
    Value(Asked),
}

/// A value that says whether a loop goes on.
#[derive(Clone, Copy)]
pub struct Asked {
    pub(crate) offset: u32,
    /// Whether the condition made it, so that it is to be dropped once it was asked.
    pub(crate) is_own: bool,
    pub(crate) transfer: &'static Transfer,
    pub(crate) holds: fn(Cells<'_>, u32) -> Option<bool>,
}

/// A type whose values say whether a loop goes on.
#[diagnostic::on_unimplemented(
    message = "a value of type `{Self}` does not say whether a loop goes on",
    label = "let the condition return a `bool`, or `above(residual, tolerance)`, of which NaN is an error"
)]
pub trait Holds: Send + Sync + 'static {
    /// Returns whether the loop goes on; none if nobody can tell, which is an error.
    fn holds(&self) -> Option<bool>;
}

impl Holds for bool {
    fn holds(&self) -> Option<bool> {
        Some(*self)
    }
}

/// Whether a residual is still above its tolerance; made by [`above`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Above<F>(F, F);

/// As the condition of a loop: goes on while `residual` is above `tolerance`. If one of them is NaN the run
/// fails, and the error names the loop.
pub fn above<F: PartialOrd>(residual: F, tolerance: F) -> Above<F> {
    Above(residual, tolerance)
}

impl<F: PartialOrd + Send + Sync + 'static> Holds for Above<F> {
    fn holds(&self) -> Option<bool> {
        self.0.partial_cmp(&self.1).map(std::cmp::Ordering::is_gt)
    }
}

/// A number of iterations; made by [`times`].
#[derive(Clone, Copy, Debug)]
pub struct Times(u64);

/// As the condition of a loop: goes on `n` times.
///
/// ```
/// # let mut g = anabranch::Graph::new();
/// # let one = g.task("one", (), || 1.0);
/// let grown = g.repeat("grow", &one, anabranch::times(5), |b, z| b.task("mul", &z, |z: &f64| z * 1.11));
/// ```
pub fn times<V>(n: u64) -> impl FnOnce(&mut Graph, V) -> Times {
    move |_, _| Times(n)
}

impl Condition for Times {
    fn settle(self, _: &mut Graph) -> Test {
        Test::Times(self.0)
    }
}

impl<T: Holds> Condition for Value<T> {
    fn settle(self, inner: &mut Graph) -> Test {
        let own = inner.owns(&self).then(|| inner.give(self.index));
        let offset = match own {
            Some(_) => inner.values[self.index as usize].offset,
            None => inner.capture_result(&self, Use::Read).map_or(u32::MAX, Slot::offset),
        };
        let is_own = matches!(own, Some(Maker::Node(_)));
        let holds = |cells: Cells<'_>, offset| cells.get(Slot::<T>::at(offset)).holds();
        Test::Value(Asked { offset, is_own, transfer: Transfer::of::<T>(), holds })
    }
}

/// A type whose values say which arm of a branch is taken, counted from 0; -1 is none of them.
#[diagnostic::on_unimplemented(
    message = "a value of type `{Self}` does not say which arm of a branch is taken",
    label = "`usize`, `Option<usize>`, `i64` or `i32`"
)]
pub trait Select: Send + Sync + 'static {
    /// Returns the number of the arm, or -1.
    fn select(&self) -> i64;

    #[doc(hidden)]
    fn select_at(cells: Cells<'_>, offset: u32) -> i64
    where
        Self: Sized,
    {
        cells.get(Slot::<Self>::at(offset)).select()
    }
}

impl Select for usize {
    fn select(&self) -> i64 {
        i64::try_from(*self).unwrap_or(i64::MAX)
    }
}

impl Select for Option<usize> {
    fn select(&self) -> i64 {
        self.as_ref().map_or(-1, Select::select)
    }
}

impl Select for i64 {
    fn select(&self) -> i64 {
        *self
    }
}

impl Select for i32 {
    fn select(&self) -> i64 {
        i64::from(*self)
    }
}
