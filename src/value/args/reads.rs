//! What nodes, operations and calls read.

use super::params::{Param, Params, Place};

/// Seals [`Reads`]: a view gives access only to the values that its binder has recorded.
pub trait Sealed {}

/// Seals [`OneRead`]. No tuple has this trait.
pub trait Single {}

impl<R: Single> Sealed for R {}

/// One thing that is read: a value (`&x`), one that is taken ([`take`](crate::take)`(&x)`), or any number of
/// one type (`&xs[..]`). Nodes of a [`Graph`](crate::Graph) read its [`Value`](crate::Value)s. Operations and
/// calls read [`Var`](crate::Var)s.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read here",
    label = "give `&x`, `take(&x)`, `&xs[..]`, in a pipeline `&mut state` or `&*feedback`, a tuple of up to eight of these, or `()`: a node reads `Value`s of its graph, an operation or a call reads `Var`s; in a scope, give `&store`, a view of one, `&scalar` or `&value`, and read stores on a device in kernels"
)]
pub trait OneRead<X: Place>: Single {
    #[doc(hidden)]
    type Param: Param<X>;
    #[doc(hidden)]
    fn bind(self, binder: &mut X::Binder<'_>) -> Self::Param;
}

/// Everything that is read: `()`, one [`OneRead`], or a tuple of up to eight.
///
/// A closure gets one argument for each:
///
/// | read | tasks and kernels | async closures |
/// |---|---|---|
/// | `&x` | `&T` | `Arc<T>` |
/// | `take(&x)` | `T` | `T` |
/// | `&xs[..]` | [`Each<T>`](super::Each) | `Vec<Arc<T>>` |
/// | `&[&x, &y][..]`, operations only | [`Each<T>`](super::Each) | `Vec<Arc<T>>` |
///
/// In a pipeline, a node also reads `&*feedback`, as a value, and `&mut state`: `&mut T`, or a
/// `StateGuard<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read here",
    label = "give `&x`, `take(&x)`, `&xs[..]`, in a pipeline `&mut state` or `&*feedback`, a tuple of up to eight of these, or `()`: a node reads `Value`s of its graph, an operation or a call reads `Var`s; in a scope, give `&store`, a view of one, `&scalar` or `&value`, and read stores on a device in kernels"
)]
pub trait Reads<X: Place>: Sealed {
    #[doc(hidden)]
    type Params: Params<X>;
    #[doc(hidden)]
    fn bind(self, binder: &mut X::Binder<'_>) -> Self::Params;
}

impl<X: Place, R: OneRead<X>> Reads<X> for R
where
    R: Single,
{
    type Params = (R::Param,);

    #[inline(always)]
    fn bind(self, binder: &mut X::Binder<'_>) -> Self::Params {
        (OneRead::bind(self, binder),)
    }
}
