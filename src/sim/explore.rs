//! The exploration of all orders in which a schedule's nodes can run.

use super::{SimLog, Simulation};
use crate::device::sim::{Order, next_order};
use crate::error::Result;

/// The result of an exploration. Made by [`Simulation::explore`] and [`explore`](crate::explore).
///
/// ```
/// use anabranch::graph::{Backend, Shape};
/// use anabranch::sim::Simulation;
///
/// # let mut shape = Shape::new();
/// # let [a, b, c] = ["a", "b", "c"].map(|name| shape.node(name, Backend::Gpu));
/// # [(a, b), (a, c)].into_iter().for_each(|(from, to)| shape.read(from, 0, to));
/// // `b` and `c` read `a`, so one of the two comes first.
/// let explored = Simulation::new(&shape.schedule()?).explore(100, |log| {
///     assert_eq!(log.failed().count(), 0);
///     Ok(())
/// })?;
/// assert_eq!((explored.orders, explored.is_complete), (2, true));
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Explored {
    /// The number of orders that were tried.
    pub orders: u64,
    /// Whether these are all orders. Otherwise the bound was reached.
    pub is_complete: bool,
}

impl Simulation {
    /// Runs the simulation in every order that the programs allow, one node at a time, and calls `check` with
    /// each log. It tries at most `orders_max` orders. A real machine runs the nodes in one of these orders.
    ///
    /// The number of orders grows very fast: a fan of 8 nodes with a join has 40,320.
    ///
    /// # Errors
    /// Those of [`Simulation::run`], and the first error that `check` returns. The
    /// [`choices`](SimLog::choices) of its log replay that order.
    pub fn explore(&self, orders_max: u64, mut check: impl FnMut(&SimLog) -> Result<()>) -> Result<Explored> {
        let mut simulation = self.clone().one_at_a_time().hand_off_us(0.0);
        let (mut choices, mut orders) = (Vec::new(), 0);
        loop {
            if orders == orders_max {
                return Ok(Explored { orders, is_complete: false });
            }
            simulation = simulation.order(Order::Replay(choices));
            let log = simulation.run()?;
            orders += 1;
            check(&log)?;
            match next_order(&log.choices) {
                Some(next) => choices = next,
                None => return Ok(Explored { orders, is_complete: true }),
            }
        }
    }
}
