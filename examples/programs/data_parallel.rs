//! A training step on several ranks: each has its own part of the batch, and the gradients are added up.
//!
//! ```sh
//! cargo run --example data_parallel
//! ```
//!
//! The sum of a layer's gradient over all ranks reads that gradient alone. So the plan has `sum 2` and the
//! backward pass of layer 1 on two streams: the gradient is on its way while the pass goes on.

use std::{array, thread};

use anabranch::comm::World;
use anabranch::scope::Sum;
use anabranch::{Executor, Graph, Result, inputs, take};
use futures::executor::block_on;

const RANKS: u32 = 4;
/// The samples of a rank: each has two numbers, and 1 for the bias.
const SAMPLES: usize = 32;
const INPUTS: usize = 3;
const HIDDEN: usize = 16;
const RATE: f64 = 0.5;
const BATCH: f64 = RANKS as f64 * SAMPLES as f64;

type Matrix = Vec<f64>;

fn main() -> Result<()> {
    println!("{}", step().compile_for(&World::local(1)?[0])?);
    let (losses, _) = &train(300)?[0];
    losses.iter().enumerate().step_by(30).for_each(|(step, loss)| println!("step {step:>3}: loss {loss:.5}"));
    Ok(())
}

/// Trains on all ranks, each a thread. Returns the losses and the weights of each rank.
pub(crate) fn train(steps: usize) -> Result<Vec<(Vec<f64>, [Matrix; 2])>> {
    let rank = |world: World| -> Result<_> {
        let (exec, plan, mut losses) = (Executor::inline(), step().compile_for(&world)?, Vec::new());
        // The samples are a rank's own, the first weights are those of all.
        let ((x, y), mut dice) = (samples(world.rank()), fastrand::Rng::with_seed(1));
        let [mut w1, mut w2] = [INPUTS * HIDDEN, HIDDEN].map(|n| Matrix::from_iter((0..n).map(|_| dice.f64() - 0.5)));
        for _ in 0..steps {
            let inputs = inputs! { "x" => x.clone(), "y" => y.clone(), "w1" => w1, "w2" => w2 };
            let mut outputs = block_on(exec.run(&plan, inputs))?;
            [w1, w2] = [outputs.take::<Matrix>("w1")?.to_vec(), outputs.take::<Matrix>("w2")?.to_vec()];
            losses.push(*outputs.take::<f64>("loss")?);
        }
        Ok((losses, [w1, w2]))
    };
    thread::scope(|threads| {
        let ranks: Vec<_> = World::local(RANKS)?.into_iter().map(|world| threads.spawn(|| rank(world))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank does not panic")).collect()
    })
}

/// One step: forward, backward, and new weights, which are the same on all ranks.
fn step() -> Graph {
    let mut g = Graph::new();
    let [x, y, w1, w2] = ["x", "y", "w1", "w2"].map(|name| g.input::<Matrix>(name));
    let h = g.task("layer 1", (&x, &w1), |x: &Matrix, w: &Matrix| Matrix::from_iter(product(x, w, INPUTS).map(f64::tanh)));
    let e = g.task("layer 2", (&h, &w2, &y), |h: &Matrix, w: &Matrix, y: &Matrix| {
        Matrix::from_iter(product(h, w, HIDDEN).zip(y).map(|(is, y)| is - y))
    });
    let g2 = g.task("gradient 2", (&h, &e), |h: &Matrix, e: &Matrix| gradient(h, e, HIDDEN));
    let sum2 = g.all_reduce("sum 2", take(&g2), Sum);
    let back = g.task("back", (&e, &w2, &h), |e: &Matrix, w: &Matrix, h: &Matrix| {
        Matrix::from_iter(product(e, w, 1).zip(h).map(|(back, h)| back * (1.0 - h * h)))
    });
    let g1 = g.task("gradient 1", (&x, &back), |x: &Matrix, back: &Matrix| gradient(x, back, INPUTS));
    let sum1 = g.all_reduce("sum 1", take(&g1), Sum);
    let squares = g.task("squares", &e, |e: &Matrix| e.iter().map(|e| e * e / BATCH).sum::<f64>());
    let loss = g.all_reduce("loss", &squares, Sum);
    for (name, w, sum) in [("w1", &w1, &sum1), ("w2", &w2, &sum2)] {
        let new = g.task(format!("new {name}"), (take(w), sum), |w: Matrix, sum: &Matrix| {
            Matrix::from_iter(w.iter().zip(sum).map(|(w, sum)| w - RATE * sum / BATCH))
        });
        g.output(name, &new);
    }
    g.output("loss", &loss);
    g
}

/// Points of this rank, and the product of their coordinates, which is to be learnt.
fn samples(rank: u32) -> (Matrix, Matrix) {
    let mut dice = fastrand::Rng::with_seed(rank.into());
    let points: [[f64; 2]; SAMPLES] = array::from_fn(|_| array::from_fn(|_| 2.0 * dice.f64() - 1.0));
    (points.iter().flat_map(|[a, b]| [*a, *b, 1.0]).collect(), points.iter().map(|[a, b]| a * b).collect())
}

/// The product of two matrices, row by row; `a` has so many columns.
fn product(a: &[f64], b: &[f64], columns: usize) -> impl Iterator<Item = f64> {
    let at = move |row: &[f64], n: usize| row.iter().zip(b.iter().skip(n).step_by(b.len() / columns)).map(|(a, b)| a * b).sum();
    a.chunks(columns).flat_map(move |row| (0..b.len() / columns).map(move |n| at(row, n)))
}

/// The product of the transposed `a`, which has so many columns, and `b`.
fn gradient(a: &[f64], b: &[f64], columns: usize) -> Matrix {
    let transposed: Matrix = (0..columns).flat_map(|column| a.iter().skip(column).step_by(columns).copied()).collect();
    product(&transposed, b, a.len() / columns).collect()
}
