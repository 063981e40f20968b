//! Flows: control flow as async code over graphs and operations.

mod bounds;
mod calls;
mod cancelling;
mod cheap_calls;
mod known;
mod mistakes;
mod random;
mod side_by_side;
mod streams;
mod suspended;

use std::fmt::Debug;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use anabranch::{Executor, Flow, Function, Graph, Result, Value, Var, explore};

use crate::support::{block_on, executor};

/// How an operation is pushed. Each program is run in all three ways.
#[derive(Clone, Copy, Debug)]
enum Way {
    Task,
    /// As a future that suspends.
    Future,
    /// As a graph of one node.
    Graph,
}

const WAYS: [Way; 3] = [Way::Task, Way::Future, Way::Graph];

/// Operations on numbers, pushed in one of the ways.
#[derive(Clone)]
struct Maths {
    way: Way,
    mul: Function<(Value<f64>, Value<f64>), Value<f64>>,
    add: Function<(Value<f64>, Value<f64>), Value<f64>>,
}

impl Maths {
    fn new(way: Way) -> Self {
        let function = |name: &'static str, work: fn(&f64, &f64) -> f64| {
            let graph = |g: &mut Graph, (x, y): (Value<f64>, Value<f64>)| g.task(name, (&x, &y), work);
            Function::new(name, graph).unwrap()
        };
        Self { way, mul: function("mul", |x, y| x * y), add: function("add", |x, y| x + y) }
    }

    fn mul(&self, f: &Flow, x: &Var<f64>, y: &Var<f64>) -> Var<f64> {
        match self.way {
            Way::Task => f.task("mul", (x, y), |x: &f64, y: &f64| x * y),
            Way::Future => f.future("mul", (x, y), |x: Arc<f64>, y: Arc<f64>| async move {
                suspend().await;
                Ok(*x * *y)
            }),
            Way::Graph => f.call(&self.mul, (x, y)),
        }
    }

    fn add(&self, f: &Flow, x: &Var<f64>, y: &Var<f64>) -> Var<f64> {
        match self.way {
            Way::Task => f.task("add", (x, y), |x: &f64, y: &f64| x + y),
            Way::Future => f.future("add", (x, y), |x: Arc<f64>, y: Arc<f64>| async move {
                suspend().await;
                Ok(*x + *y)
            }),
            Way::Graph => f.call(&self.add, (x, y)),
        }
    }
}

/// Is pending once.
async fn suspend() {
    let mut is_over = false;
    poll_fn(|cx| {
        if is_over {
            return Poll::Ready(());
        }
        is_over = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Runs a program in every way on inline executors, with 1, 2 and 8 workers, and simulated with a hundred
/// seeds; it must give the same everywhere.
fn everywhere<T: PartialEq + Debug>(expected: T, program: impl AsyncFn(&Flow, &Maths) -> Result<T>) {
    for way in WAYS {
        let maths = Maths::new(way);
        let run = |exec: &Executor| block_on(exec.flow(async |f: &Flow| program(f, &maths).await));
        for workers in [0, 1, 2, 8] {
            assert_eq!(run(&executor(workers)).unwrap(), expected, "{way:?}, {workers} workers");
        }
        #[cfg(all(unix, feature = "cuda"))]
        assert_eq!(run(&crate::cuda::Gpu::new().executor(2)).unwrap(), expected, "{way:?}, a GPU");
        for seed in 0..100 {
            assert_eq!(run(&Executor::sim(seed)).unwrap(), expected, "{way:?}, seed {seed}");
        }
    }
}

/// Runs a small program in every order of its operations. Returns the number of orders.
fn in_every_order<T: PartialEq + Debug>(expected: T, program: impl AsyncFn(&Flow, &Maths) -> Result<T>) -> u64 {
    let maths = Maths::new(Way::Task);
    let explored = explore(200_000, |exec| {
        assert_eq!(block_on(exec.flow(async |f: &Flow| program(f, &maths).await))?, expected);
        Ok(())
    });
    let explored = explored.unwrap();
    assert!(explored.is_complete, "{explored:?}");
    explored.orders
}
