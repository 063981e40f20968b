//! Variables: operations run in an order that follows from what they read and write.

mod bounds;
mod failures;
mod order;
mod producers;
mod workload;

use anabranch::{Engine, Op, Pushed, Result};

use crate::support::{block_on, executor};

/// Engines that everything must work on: in the pushing thread, and with one, two and eight workers.
fn engines() -> Vec<(anabranch::Executor, Engine)> {
    [0, 1, 2, 8].into_iter().map(engine).collect()
}

fn engine(workers: usize) -> (anabranch::Executor, Engine) {
    let exec = executor(workers);
    let engine = Engine::new(&exec).unwrap();
    (exec, engine)
}

/// Pushes an operation whose end nobody waits for.
fn push(engine: &Engine, op: Op<'_>) {
    drop(pushed(engine, op));
}

fn pushed(engine: &Engine, op: Op<'_>) -> Pushed {
    block_on(engine.push(op)).unwrap()
}

fn idle(engine: &Engine) -> Result<()> {
    block_on(engine.idle())
}
