//! Training with look-ahead: while the model trains on one batch, the next batches are prepared.
//!
//! ```sh
//! cargo run --example lookahead               # or -- FILE.svg, for the loss as a picture
//! ```
//!
//! `prepare` has no state: several batches are prepared at once, by as many workers as are free. `train`
//! holds the model, and gets the batches one at a time, in order. So every loss is that of a plain loop, bit
//! for bit.

mod model;
mod plot;

use std::path::PathBuf;
use std::time::Instant;

use anabranch::pipe::Phases;
use anabranch::{BoxError, Executor, Pipeline, Ranked, Result};
use futures::{TryStreamExt, stream};
use model::{Model, Sample, prepare};

const BATCHES: u64 = 600;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let path = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("lookahead.svg"), PathBuf::from);
    let training = pipeline()?;
    let (exec, started) = (Executor::host()?, Instant::now());
    let losses = train(&exec, &training).await?;
    println!("{BATCHES} batches, with look-ahead in {:.0?}", started.elapsed());
    let started = Instant::now();
    let plain = plain_loop();
    let verdict = if losses == plain { "the same" } else { "different" };
    println!("a plain loop takes {:.0?}, and its losses are {verdict}", started.elapsed());
    println!("loss {:.3} at first, {:.3} in the last 50 batches", losses[0], mean(&losses[losses.len() - 50..]));
    plot::draw(&path, &losses)?;
    println!("the picture is {}", path.display());
    Ok(())
}

fn pipeline() -> Result<Pipeline<u64, f32>> {
    let training = Pipeline::new("training", &Ranked::default(), |g, number| {
        let batch = g.task("prepare", &number, |number: &u64| prepare(*number));
        let mut model = g.state("model", Model::new);
        g.task("train", (&mut model, &batch), |model: &mut Model, batch: &Vec<Sample>| model.train(batch))
    })?;
    training.phases(Phases::Each)?.in_flight(6)
}

/// Returns the loss of each batch, in order.
async fn train(exec: &Executor, training: &Pipeline<u64, f32>) -> Result<Vec<f32>> {
    exec.pipe(training, stream::iter(0..BATCHES)).try_collect().await
}

fn plain_loop() -> Vec<f32> {
    let mut model = Model::new();
    (0..BATCHES).map(|number| model.train(&prepare(number))).collect()
}

fn mean(losses: &[f32]) -> f32 {
    losses.iter().sum::<f32>() / losses.len() as f32
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn the_losses_are_those_of_a_plain_loop_bit_for_bit() -> Result<()> {
        // Seen to fail when the dice of `prepare` are not its batch's own.
        let bits = |losses: Vec<f32>| losses.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let (training, plain) = (pipeline()?, bits(plain_loop()));
        let hosts = [0, 1, 2, 8].map(|workers| Executor::builder().workers(workers).build());
        for exec in hosts.into_iter().chain((0..4).map(|seed| Ok(Executor::sim(seed)))) {
            assert_eq!(bits(block_on(train(&exec?, &training))?), plain);
        }
        Ok(())
    }

    #[test]
    fn the_model_learns_the_two_moons() {
        let losses = plain_loop();
        assert!(losses[0] > 0.5 && mean(&losses[losses.len() - 50..]) < 0.1);
    }
}
