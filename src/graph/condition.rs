//! The condition of a loop: a value of an inner graph, or a number of iterations.

use super::builder::Graph;
use super::handle::Value;
use super::select::{Asked, Holds, Test};
use super::values::{Maker, Transfer, Use};
use crate::value::{Cells, Slot};

/// The types of a loop's condition: a [`Value`] of a type that [`Holds`], or [`times`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the condition of a loop",
    label = "a value of type `bool`, or `above(residual, tolerance)`; or `times(n)` instead of the closure"
)]
pub trait Condition {
    #[doc(hidden)]
    fn settle(self, inner: &mut Graph) -> Test;
}

/// A number of iterations. Made by [`times`].
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
