//! Values that decide whether a loop goes on, and which arm a branch takes.

use super::values::Transfer;
use crate::value::{Cells, Slot};

/// The decision of a loop whether to go on.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    #[doc(hidden)]
    Times(u64),
    #[doc(hidden)]
    Value(Asked),
}

/// A value that decides whether a loop goes on.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub(crate) offset: u32,
    /// Whether the condition made the value, so that it is dropped after each decision.
    pub(crate) is_own: bool,
    pub(crate) transfer: &'static Transfer,
    pub(crate) holds: fn(Cells<'_>, u32) -> Option<bool>,
}

/// A type whose values decide whether a loop goes on.
#[diagnostic::on_unimplemented(
    message = "a value of type `{Self}` does not say whether a loop goes on",
    label = "let the condition return a `bool`, or `above(residual, tolerance)`, of which NaN is an error"
)]
pub trait Holds: Send + Sync + 'static {
    /// Returns whether the loop goes on. None means undefined, which is an error.
    fn holds(&self) -> Option<bool>;
}

impl Holds for bool {
    fn holds(&self) -> Option<bool> {
        Some(*self)
    }
}

/// The comparison of a residual with its tolerance. Made by [`above`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Above<F>(F, F);

/// A condition of a loop that holds while `residual` is above `tolerance`. If one of them is NaN, the run
/// fails and the error names the loop.
pub fn above<F: PartialOrd>(residual: F, tolerance: F) -> Above<F> {
    Above(residual, tolerance)
}

impl<F: PartialOrd + Send + Sync + 'static> Holds for Above<F> {
    fn holds(&self) -> Option<bool> {
        self.0.partial_cmp(&self.1).map(std::cmp::Ordering::is_gt)
    }
}

/// A type whose values select the arm of a branch, counted from 0. -1 means no arm.
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
