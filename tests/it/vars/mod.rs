//! Variables: the reads and writes of operations determine their order.

mod blocked;
mod bounds;
mod bulk;
mod devices;
mod failures;
mod fair;
mod futures;
mod left;
mod order;
mod producers;
mod refused;
mod simulated;
mod untold;
mod waits;
mod workload;

use anabranch::engine::Pushed;
use anabranch::{Engine, Executor, Op, Result};

use crate::support::{block_on, executor};

/// The engines of most tests: in the pushing thread, with one, two and eight workers, and simulated.
fn engines() -> Vec<(Executor, Engine)> {
    [0, 1, 2, 8].into_iter().map(engine).chain([on(Executor::sim(11))]).collect()
}

fn engine(workers: usize) -> (Executor, Engine) {
    on(executor(workers))
}

fn on(exec: Executor) -> (Executor, Engine) {
    let engine = Engine::new(&exec).unwrap();
    (exec, engine)
}

/// Pushes an operation whose end is not awaited.
fn push(engine: &Engine, op: Op<'_>) {
    drop(pushed(engine, op));
}

fn pushed(engine: &Engine, op: Op<'_>) -> Pushed {
    block_on(engine.push(op)).unwrap()
}

fn idle(engine: &Engine) -> Result<()> {
    block_on(engine.idle())
}
