//! What an exchange gives: a value that it reads, or one that it takes.

use crate::engine::{TakeVar, Var};
use crate::graph::{Take, Value};
use crate::value::args::Single;

/// A value that an exchange reads, `&x`, or takes, [`take`](crate::take)`(&x)`. `H` is its handle: a
/// [`Value`] of a graph, or a [`Var`](crate::Var) of a flow.
///
/// Over MPI, the world keeps the memory of `Vec`s that are taken, and receives other ones there: new memory
/// for a large value takes longer than its exchange. It keeps no more than its exchanges have used at one
/// time; if they use less for hundreds of values, it gives the rest back.
///
/// An exchange may take a value that something else still has, for example another exchange, or
/// [`Flow::get`](crate::Flow::get). The value stays as it is then, and its memory is not used again. In a
/// graph, an exchange may take a value that async nodes read, and an input that is an `Arc`; not an output,
/// and not a value that a loop or a branch keeps.
///
/// # Examples
/// A function of yours that averages over the ranks:
/// ```
/// use anabranch::comm::{Operand, World};
/// use anabranch::scope::Sum;
/// use anabranch::{Graph, Value, take};
///
/// fn average(g: &mut Graph, world: &World, x: impl Operand<Value<Vec<f64>>>) -> Value<Vec<f64>> {
///     let size = f64::from(world.size());
///     let sum = g.all_reduce("sum", x, Sum);
///     g.task("average", take(&sum), move |mut sum: Vec<f64>| {
///         sum.iter_mut().for_each(|element| *element /= size);
///         sum
///     })
/// }
///
/// for world in World::local(2)? {
///     let mut g = Graph::new();
///     let gradient = g.input::<Vec<f64>>("gradient");
///     let average = average(&mut g, &world, take(&gradient));
///     g.output("average", &average);
///     g.compile_for(&world)?;
/// }
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "an exchange cannot give `{Self}`",
    label = "give `&x` or `take(&x)`: in a graph a `Value`, in a flow a `Var`"
)]
pub trait Operand<H>: Single {
    /// Returns the handle, and whether the value is taken.
    #[doc(hidden)]
    fn handle(self) -> (H, bool);
}

impl<T> Operand<Value<T>> for &Value<T> {
    fn handle(self) -> (Value<T>, bool) {
        (*self, false)
    }
}

impl<T> Operand<Value<T>> for Take<T> {
    fn handle(self) -> (Value<T>, bool) {
        (self.0, true)
    }
}

impl<'v, T: Send + Sync + 'static> Operand<&'v Var<T>> for &'v Var<T> {
    fn handle(self) -> (&'v Var<T>, bool) {
        (self, false)
    }
}

impl<'v, T: Send + Sync + 'static> Operand<&'v Var<T>> for TakeVar<'v, T> {
    fn handle(self) -> (&'v Var<T>, bool) {
        (self.0, true)
    }
}
