//! Loops and branches as nodes.

mod breakers;
mod builders;
mod failures;
mod known;
mod messages;
mod nesting;
mod not_taken;
mod random;
mod shapes;
mod states;

use anabranch::{Executor, Graph, Value, take};

use crate::support::executors;

/// All kinds of executors, and simulated ones with many seeds.
fn many_executors() -> impl Iterator<Item = Executor> {
    executors().into_iter().chain((0..100).map(Executor::sim))
}

/// A future that is pending before it is ready, and wakes itself.
async fn suspended<T>(value: T) -> T {
    let mut is_woken = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut is_woken, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
    value
}

/// The scalar of the examples: `x < 0` is 0, `x < 1` stays, `x < 2` becomes `0.5 x + 0.5`, all else 1.5.
fn piecewise(g: &mut Graph, name: &'static str, x: &Value<f64>) -> Value<f64> {
    let which = g.task(format!("{name} which"), x, |x: &f64| match *x {
        x if x < 0.0 => Some(0),
        x if x < 1.0 => None,
        x if x < 2.0 => Some(1),
        _ => Some(2),
    });
    g.branch(name, &which, x)
        .arm(|a, _| a.task("zero", (), || 0.0))
        .arm(|a, x| a.task("half", &x, |x: &f64| 0.5 * x + 0.5))
        .arm(|a, _| a.task("top", (), || 1.5))
        .join()
}

/// Adds a node that adds one, and suspends once.
fn counted(g: &mut Graph, name: &'static str, x: &Value<u64>) -> Value<u64> {
    g.future(name, take(x), async |x: u64| Ok(suspended(x).await + 1))
}
