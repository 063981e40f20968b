//! The condition of a loop: a value of an inner graph, or a number of iterations.

use super::builder::Graph;
use super::handle::Value;
use super::select::{Asked, Holds, Test};
use super::values::{Maker, Transfer, Use};
use crate::value::{Cells, Slot};

/// The types of a loop's condition: a [`Value`] of a type that [`Holds`], or [`times`].
///
/// # Examples
/// A loop whose caller says when it ends:
/// ```
/// use anabranch::graph::{Condition, times};
/// use anabranch::{Executor, Graph, Inputs, Result, Value};
///
/// fn halved<K: Condition>(goes_on: impl FnOnce(&mut Graph, Value<f64>) -> K) -> Result<f64> {
///     let mut g = Graph::new();
///     let x = g.task("x", (), || 16.0);
///     let end = g.repeat("loop", &x, goes_on, |b, x| b.task("halve", &x, |x: &f64| x / 2.0));
///     g.output("end", &end);
///     let exec = Executor::inline();
///     let mut outputs = futures::executor::block_on(exec.run(&g.compile()?, Inputs::new()))?;
///     Ok(*outputs.take::<f64>("end")?)
/// }
///
/// assert_eq!(halved(times(3))?, 2.0);
/// assert_eq!(halved(|c, x| c.task("is large", &x, |x: &f64| *x > 5.0))?, 4.0);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the condition of a loop",
    label = "a value of type `bool`, or `above(residual, tolerance)`; or `times(n)` instead of the closure"
)]
pub trait Condition {
    #[doc(hidden)]
    fn settle(self, inner: &mut Graph) -> Test;
}

/// A number of iterations. Made by [`times`].
///
/// # Examples
/// Ten iterations:
/// ```
/// use anabranch::graph::times;
/// use anabranch::{Executor, Graph, Inputs};
///
/// let mut g = Graph::new();
/// let one = g.task("one", (), || 1);
/// let power = g.repeat("power", &one, times(10), |b, x| b.task("double", &x, |x: &i32| x * 2));
/// g.output("power", &power);
/// # let (exec, plan) = (Executor::inline(), g.compile()?);
/// let mut outputs = futures::executor::block_on(exec.run(&plan, Inputs::new()))?;
/// assert_eq!(*outputs.take::<i32>("power")?, 1024);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Times(u64);

/// A condition of a loop that lets it run `n` times.
///
/// ```
/// # let mut g = anabranch::Graph::new();
/// # let one = g.task("one", (), || 1.0);
/// let grown = g.repeat("grow", &one, anabranch::graph::times(5), |b, z| b.task("mul", &z, |z: &f64| z * 1.11));
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
            None => inner.read_around(&self, None, Some(Use::Read)).map_or(u32::MAX, Slot::offset),
        };
        let is_own = matches!(own, Some(Maker::Node(_)));
        let holds = |cells: Cells<'_>, offset| cells.get(Slot::<T>::at(offset)).holds();
        Test::Value(Asked { offset, is_own, transfer: Transfer::of::<T>(), holds })
    }
}
