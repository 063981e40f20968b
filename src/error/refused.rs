//! Errors that return the refused value.

use std::error::Error as StdError;
use std::fmt;

use super::Error;

/// An error with the value that was refused: the error of [`Engine::try_push`](crate::Engine::try_push) and
/// [`Executor::try_run`](crate::Executor::try_run).
///
/// In a function that returns an [`Error`], `?` converts it. In a function that returns a boxed error, write
/// `.map_err(anabranch::Error::from)?`: a box cannot hold an operation, which borrows its variables.
///
/// # Examples
/// The inputs come back, for another try:
/// ```
/// use anabranch::{Executor, Graph, inputs};
///
/// # let mut g = Graph::new();
/// # let x = g.input::<u64>("x");
/// # let square = g.task("square", &x, |x: &u64| x * x);
/// # g.output("square", &square);
/// # let plan = g.compile()?;
/// let exec = Executor::builder().workers(0).max_in_flight(1).build()?;
/// let first = exec.try_run(&plan, inputs! { "x" => 2_u64 })?;
/// let refused = exec.try_run(&plan, inputs! { "x" => 3_u64 }).unwrap_err();
/// assert!(refused.error().is_busy());
/// drop(first);
/// let second = exec.try_run(&plan, refused.into_inner())?;
/// # drop(second);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Refused<T> {
    error: Error,
    refused: T,
}

impl<T> Refused<T> {
    pub(crate) fn new(error: Error, refused: T) -> Self {
        Self { error, refused }
    }

    /// Returns the reason of the refusal.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the refused value.
    pub fn into_inner(self) -> T {
        self.refused
    }

    /// Returns the reason and the refused value.
    pub fn into_parts(self) -> (Error, T) {
        (self.error, self.refused)
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<T> StdError for Refused<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}
