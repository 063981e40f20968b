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
///
/// # Examples
/// A type of yours that decides whether a loop goes on:
/// ```
/// use anabranch::graph::Holds;
/// use anabranch::{Executor, Graph, inputs};
///
/// #[derive(PartialEq)]
/// enum Search {
///     Continues,
///     Found,
/// }
///
/// impl Holds for Search {
///     fn holds(&self) -> Option<bool> {
///         Some(*self == Self::Continues)
///     }
/// }
///
/// let mut g = Graph::new();
/// let n = g.input::<u64>("n");
/// let search = |n: &u64| if n % 7 == 0 { Search::Found } else { Search::Continues };
/// let condition = |c: &mut Graph, n| c.task("search", &n, search);
/// let multiple = g.repeat("loop", &n, condition, |b, n| b.task("next", &n, |n: &u64| n + 1));
/// g.output("multiple", &multiple);
/// # let (exec, plan) = (Executor::inline(), g.compile()?);
/// let mut outputs = futures::executor::block_on(exec.run(&plan, inputs! { "n" => 16_u64 }))?;
/// assert_eq!(*outputs.take::<u64>("multiple")?, 21);
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// # Examples
/// A task that compares returns it:
/// ```
/// use anabranch::graph::{Above, Holds, above};
///
/// fn goes_on(residuals: &[f64]) -> Above<f64> {
///     above(residuals.iter().copied().fold(0.0, f64::max), 1e-6)
/// }
///
/// assert_eq!(goes_on(&[1e-3, 1e-9]).holds(), Some(true));
/// assert_eq!(above(f64::NAN, 1e-6).holds(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Above<F>(F, F);

/// A condition of a loop that holds while `residual` is above `tolerance`. If one of them is NaN, the run
/// fails and the error names the loop.
///
/// # Examples
/// A loop halves an error until it is at most the tolerance:
/// ```
/// use anabranch::graph::above;
/// use anabranch::{Executor, Graph, inputs};
///
/// let mut g = Graph::new();
/// let first = g.input::<f64>("error");
/// let last = g.repeat(
///     "loop",
///     &first,
///     |c, error| c.task("is above", &error, |error: &f64| above(*error, 0.1)),
///     |b, error| b.task("halve", &error, |error: &f64| error / 2.0),
/// );
/// g.output("error", &last);
/// # let (exec, plan) = (Executor::inline(), g.compile()?);
/// let mut outputs = futures::executor::block_on(exec.run(&plan, inputs! { "error" => 1.0 }))?;
/// assert_eq!(*outputs.take::<f64>("error")?, 0.0625);
///
/// let failed = futures::executor::block_on(exec.run(&plan, inputs! { "error" => f64::NAN }));
/// assert_eq!(failed.unwrap_err().node(), Some("loop"));
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn above<F: PartialOrd>(residual: F, tolerance: F) -> Above<F> {
    Above(residual, tolerance)
}

impl<F: PartialOrd + Send + Sync + 'static> Holds for Above<F> {
    fn holds(&self) -> Option<bool> {
        self.0.partial_cmp(&self.1).map(std::cmp::Ordering::is_gt)
    }
}

/// A type whose values select the arm of a branch, counted from 0. -1 means no arm: the values pass
/// unchanged.
///
/// # Examples
/// A type of yours that selects an arm:
/// ```
/// use anabranch::graph::Select;
/// use anabranch::{Executor, Graph, inputs};
///
/// enum Format {
///     Raw,
///     Reversed,
/// }
///
/// impl Select for Format {
///     fn select(&self) -> i64 {
///         match self {
///             Self::Raw => -1,
///             Self::Reversed => 0,
///         }
///     }
/// }
///
/// let mut g = Graph::new();
/// let (format, text) = (g.input::<Format>("format"), g.input::<String>("text"));
/// let reverse = |text: &String| text.chars().rev().collect::<String>();
/// let text = g.branch("decode", &format, &text).arm(|a, text| a.task("reverse", &text, reverse)).join();
/// g.output("text", &text);
/// # let (exec, plan) = (Executor::inline(), g.compile()?);
/// let run = exec.run(&plan, inputs! { "format" => Format::Reversed, "text" => "cba".to_string() });
/// assert_eq!(*futures::executor::block_on(run)?.take::<String>("text")?, "abc");
/// # Ok::<(), anabranch::Error>(())
/// ```
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
