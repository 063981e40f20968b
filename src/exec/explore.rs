//! Real runs on the simulated device: one node at a time, in a chosen order, with injected faults. They test
//! graphs with their closures. [`Simulation`](crate::sim::Simulation) runs plans without closures.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::Executor;
use crate::device::sim::{Order, next_order};
use crate::error::{Error, Kind, Result};
use crate::sim::{Explored, Faults};

impl Executor {
    /// Returns an executor on the simulated device. It has no threads, and runs one node at a time. `seed`
    /// decides which of the nodes that could run comes next. The same seed gives the same order on every
    /// machine, if async nodes use no time and no I/O.
    ///
    /// # Examples
    /// ```
    /// use anabranch::{Executor, Graph, Inputs};
    ///
    /// let mut g = Graph::new();
    /// let (left, right) = (g.task("left", (), || 20), g.task("right", (), || 22));
    /// let sum = g.task("sum", (&left, &right), |a: &i32, b: &i32| a + b);
    /// g.output("sum", &sum);
    /// let plan = g.compile()?;
    /// for seed in 0..100 {
    ///     let mut outputs = futures::executor::block_on(Executor::sim(seed).run(&plan, Inputs::new()))?;
    ///     assert_eq!(*outputs.take::<i32>("sum")?, 42, "seed {seed}");
    /// }
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn sim(seed: u64) -> Self {
        Self::builder().simulated(Order::Seeded(seed), Faults::default()).build().expect("a simulated executor starts no threads")
    }

    /// Returns the choices of a simulated executor. To replay them:
    /// `Executor::builder().simulated(Order::Replay(choices), Faults::default())`. For other executors the
    /// list is empty.
    pub fn choices(&self) -> Vec<u32> {
        self.choices_made().into_iter().map(|choice| choice.0).collect()
    }

    /// Returns `; it chose 'a', 'b'`, for an error.
    fn chosen(&self) -> String {
        let names = self.core().choices.as_ref().map_or_else(Vec::new, |choices| choices.names());
        let (count, named) = (self.choices().len(), names.len());
        let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        let more = if count > named { format!(" and {} more", count - named) } else { String::new() };
        if names.is_empty() { String::new() } else { format!("; it chose {}{more}", names.join(", ")) }
    }

    fn choices_made(&self) -> Vec<(u32, u32)> {
        self.core().choices.as_ref().map_or_else(Vec::new, |choices| choices.made())
    }
}

/// Calls `test` with a simulated executor once for each order in which its nodes can run, at most
/// `orders_max` times. On real threads, the nodes of a graph run in one of these orders.
///
/// `test` must do the same each time, except for the choices of the executor. So it awaits runs one by one,
/// and uses no time and no I/O. If a node has I/O, let it be a closure or an input, for which the test has a
/// constant.
///
/// `test` may also await the results of a pipeline, or of [`Executor::run_stream`]: then the nodes of all
/// items in flight run in every order. If it awaits each result at once, an item begins as soon as there is
/// room for it.
///
/// # Errors
/// If `test` returns an error. It is the source of the returned error, which shows the choices. If `test`
/// panics, `explore` prints the choices, and the panic continues. To replay them:
/// `Executor::builder().simulated(Order::Replay(vec![1, 0]), Faults::default()).build()?`.
///
/// # Examples
/// ```
/// use anabranch::{Executor, Graph, Inputs, explore};
///
/// let mut g = Graph::new();
/// let (left, right) = (g.task("left", (), || 20), g.task("right", (), || 22));
/// let sum = g.task("sum", (&left, &right), |a: &i32, b: &i32| a + b);
/// g.output("sum", &sum);
/// let plan = g.compile()?;
/// let explored = explore(1_000, |exec| {
///     let mut outputs = futures::executor::block_on(exec.run(&plan, Inputs::new()))?;
///     assert_eq!(*outputs.take::<i32>("sum")?, 42);
///     Ok(())
/// })?;
/// assert!(explored.is_complete && explored.orders == 2);
/// # Ok::<(), anabranch::Error>(())
/// ```
pub fn explore(orders_max: u64, mut test: impl FnMut(&Executor) -> Result<()>) -> Result<Explored> {
    let (mut order, mut orders) = (Order::Replay(Vec::new()), 0);
    loop {
        if orders == orders_max {
            return Ok(Explored { orders, is_complete: false });
        }
        let exec = Executor::builder().simulated(order, Faults::default()).build()?;
        let failing = || Kind::Order { order: orders, choices: exec.choices(), chosen: exec.chosen() };
        let tested = catch_unwind(AssertUnwindSafe(|| test(&exec))).unwrap_or_else(|panic| {
            eprintln!("{}", failing().into());
            resume_unwind(panic)
        });
        tested.map_err(|error| Error::with_source(failing(), Box::new(error)))?;
        orders += 1;
        match next_order(&exec.choices_made()) {
            Some(choices) => order = Order::Replay(choices),
            None => return Ok(Explored { orders, is_complete: true }),
        }
    }
}
