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
///
/// # Examples
/// Three reads of one node: a value, one that is taken, and several of one type:
/// ```
/// use anabranch::graph::Each;
/// use anabranch::{Graph, take};
///
/// let mut g = Graph::new();
/// let (mark, text) = (g.input::<char>("mark"), g.input::<String>("text"));
/// let names = ["a", "b"].map(|name| g.input::<String>(name));
/// let write = |mark: &char, mut text: String, names: Each<String>| {
///     names.iter().for_each(|name| text.extend([&mark.to_string(), name.as_str()]));
///     text
/// };
/// let line = g.task("line", (&mark, take(&text), &names[..]), write);
/// g.output("line", &line);
/// # g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
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
///
/// # Examples
/// A function of yours that adds a task with any reads:
/// ```
/// use anabranch::graph::{Reads, TaskFn};
/// use anabranch::{Graph, Value};
///
/// fn costly<R, F>(g: &mut Graph, reads: R, work: F) -> Value<f64>
/// where
///     R: Reads<Graph>,
///     F: TaskFn<Graph, R::Params, f64>,
/// {
///     let value = g.task("costly", reads, work);
///     g.node(&value).cost_us(500.0);
///     value
/// }
///
/// let mut g = Graph::new();
/// let (x, y) = (g.input::<f64>("x"), g.input::<f64>("y"));
/// let power = costly(&mut g, (&x, &y), |x: &f64, y: &f64| x.powf(*y));
/// g.output("power", &power);
/// # g.compile()?;
/// # Ok::<(), anabranch::Error>(())
/// ```
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
