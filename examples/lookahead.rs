//! Training with look-ahead: while the model trains on one batch, the next batches are prepared.
//!
//! ```sh
//! cargo run --example lookahead               # or -- FILE.svg, for the loss as a picture
//! ```
//!
//! `prepare` has no state: several batches are prepared at once, by as many workers as are free. `train`
//! holds the model: it has the batches one at a time, in order. So every loss is, bit for bit, that of a plain
//! loop.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anabranch::pipe::Phases;
use anabranch::{BoxError, Executor, Pipeline, Ranked, Result};
use futures::{TryStreamExt, stream};
use plotters::prelude::*;

const BATCHES: u64 = 600;
const BATCH_SIZE: usize = 64;
/// Neurons between the two coordinates of a point and its class.
const HIDDEN: usize = 12;

struct Sample {
    point: [f32; 2],
    /// 0 or 1.
    class: f32,
}

/// A network with one hidden layer of tanh neurons.
struct Model {
    /// Of each neuron: the weights of the coordinates and of 1, and its weight in the output.
    neurons: [[f32; 4]; HIDDEN],
    bias: f32,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let path = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("lookahead.svg"), PathBuf::from);
    let training = pipeline()?;
    let (exec, started) = (Executor::host()?, Instant::now());
    let losses = train(&exec, &training).await?;
    println!("{BATCHES} batches, with look-ahead in {:.0?}", started.elapsed());
    let started = Instant::now();
    let is_equal = losses == plain_loop();
    println!("a plain loop takes {:.0?}, and its losses are {}", started.elapsed(), if is_equal { "the same" } else { "others" });
    println!("loss {:.3} at first, {:.3} in the last 50 batches", losses[0], mean(&losses[losses.len() - 50..]));
    draw(&path, &losses)?;
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

/// Draws points of two half moons, and moves each a little. The same number always gives the same batch.
fn prepare(number: u64) -> Vec<Sample> {
    let mut dice = fastrand::Rng::with_seed(number);
    let sample = |_| {
        let (class, angle) = (dice.u8(..2), std::f32::consts::PI * dice.f32());
        let on_moon = if class == 0 { [angle.cos(), angle.sin()] } else { [1.0 - angle.cos(), 0.5 - angle.sin()] };
        // About normal: the sum of twelve uniform numbers.
        let mut noise = || (0..12).map(|_| dice.f32() - 0.5).sum::<f32>();
        Sample { point: on_moon.map(|coordinate| coordinate + 0.12 * noise()), class: class.into() }
    };
    (0..BATCH_SIZE).map(sample).collect()
}

impl Model {
    fn new() -> Self {
        let mut dice = fastrand::Rng::with_seed(7);
        Self { neurons: std::array::from_fn(|_| std::array::from_fn(|_| 2.0 * dice.f32() - 1.0)), bias: 0.0 }
    }

    /// Makes one step down the gradient of the batch. Returns the loss before it, the mean cross-entropy.
    fn train(&mut self, batch: &[Sample]) -> f32 {
        let rate = 0.5 / batch.len() as f32;
        let (mut loss, mut slopes, mut bias_slope) = (0.0, [[0.0; 4]; HIDDEN], 0.0);
        for Sample { point: [x, y], class } in batch {
            let active = self.neurons.map(|[u, v, w, _]| (u * x + v * y + w).tanh());
            let output = self.bias + self.neurons.iter().zip(active).map(|(neuron, a)| neuron[3] * a).sum::<f32>();
            // ln(1 + e^output) - class · output, without overflow.
            loss += output.max(0.0) + (-output.abs()).exp().ln_1p() - class * output;
            let error = 1.0 / (1.0 + (-output).exp()) - class;
            bias_slope += error;
            for ((slope, neuron), a) in slopes.iter_mut().zip(&self.neurons).zip(active) {
                let inward = error * neuron[3] * (1.0 - a * a);
                for (slope, by) in slope.iter_mut().zip([inward * x, inward * y, inward, error * a]) {
                    *slope += by;
                }
            }
        }
        self.bias -= rate * bias_slope;
        for (weight, slope) in self.neurons.as_flattened_mut().iter_mut().zip(slopes.as_flattened()) {
            *weight -= rate * slope;
        }
        loss / batch.len() as f32
    }
}

fn mean(losses: &[f32]) -> f32 {
    losses.iter().sum::<f32>() / losses.len() as f32
}

/// Draws the loss of each batch, and the mean of 25.
fn draw(path: &Path, losses: &[f32]) -> Result<(), BoxError> {
    const INK: RGBColor = RGBColor(38, 50, 56);
    const PALE: RGBColor = RGBColor(176, 196, 214);
    const LINE: RGBColor = RGBColor(25, 103, 182);
    let root = SVGBackend::new(path, (880, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let text = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let highest = losses.iter().copied().fold(0.0, f32::max);
    let mut chart = ChartBuilder::on(&root)
        .caption("Two half moons: the loss of each batch, and the mean of 25", text(22))
        .margin(24)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0..losses.len(), 0.0..highest * 1.05)?;
    let mut mesh = chart.configure_mesh();
    mesh.bold_line_style(RGBColor(226, 230, 234)).light_line_style(TRANSPARENT).axis_style(INK);
    mesh.label_style(text(14)).x_desc("batch").y_desc("cross-entropy").draw()?;
    chart.draw_series(LineSeries::new(losses.iter().copied().enumerate(), PALE.stroke_width(1)))?;
    let means = losses.windows(25).map(mean).enumerate();
    chart.draw_series(LineSeries::new(means.map(|(batch, mean)| (batch + 24, mean)), LINE.stroke_width(2)))?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn the_losses_are_those_of_a_plain_loop_bit_for_bit() -> Result<()> {
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
