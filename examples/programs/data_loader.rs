//! A data loader for training: shuffled epochs of photographs that are read, decoded and augmented ahead of
//! the steps that train on them. The order and the result depend on the seed alone.
//!
//! ```sh
//! cargo run --release --example data_loader         # or -- SEED
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anabranch::{BoxError, Executor, Graph, Pipeline, Ranked, Result, Value, take};
use fastrand::Rng;
use futures::{TryStreamExt, stream};
use image::{RgbImage, imageops};

const PHOTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/thumbnails/photos");
const SIDE: u32 = 64;
const BATCH: usize = 4;
const EPOCHS: usize = 5;

/// A photograph of an epoch, and the seed of the augmentation.
type Place = (PathBuf, u64);
/// Channels of pixels, from 0 to 1.
type Sample = Vec<f32>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (seed, started) = (std::env::args().nth(1).unwrap_or("7".into()), Instant::now());
    let seed = seed.parse().map_err(|_| format!("the seed must be a whole number from 0 on, not '{seed}'"))?;
    let losses = train(&Executor::host()?, seed).await?;
    for (epoch, losses) in losses.chunks(losses.len() / EPOCHS).enumerate() {
        println!("epoch {epoch}: loss {:.4}", losses.iter().sum::<f32>() / losses.len() as f32);
    }
    println!("{:.0} photographs per second", (losses.len() * BATCH) as f64 / started.elapsed().as_secs_f64());
    Ok(())
}

/// Returns the loss of each step.
pub(crate) async fn train(exec: &Executor, seed: u64) -> Result<Vec<f32>, BoxError> {
    // Results wait for the consumer: the pipeline runs ahead by its items in flight, and no further.
    let samples = exec.pipe(&samples()?, stream::iter(places(seed)?));
    let batches = samples.try_chunks(BATCH).map_err(|failed| failed.1);
    Ok(exec.try_pipe(&steps()?, batches).try_collect().await?)
}

/// Returns all epochs, each in an order of its own, without samples that fill no batch.
fn places(seed: u64) -> std::io::Result<impl Iterator<Item = Place>> {
    let files = std::fs::read_dir(PHOTOS)?.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|kind| kind != "md")).collect();
    files.sort();
    let mut dice = Rng::with_seed(seed);
    Ok((0..EPOCHS).flat_map(move |_| {
        dice.shuffle(&mut files);
        files.chunks_exact(BATCH).flatten().map(|file| (file.clone(), dice.u64(..))).collect::<Vec<Place>>()
    }))
}

fn samples() -> Result<Pipeline<Place, Sample>> {
    Pipeline::new("samples", &Ranked::default(), |g: &mut Graph, place: Value<Place>| {
        let bytes = g.future("read", &place, async |place: Arc<Place>| Ok(tokio::fs::read(&place.0).await?));
        let picture = g.try_task("decode", take(&bytes), |bytes: Vec<u8>| Ok(image::load_from_memory(&bytes)?.into_rgb8()));
        g.task("augment", (take(&picture), &place), |picture: RgbImage, place: &Place| augment(&picture, place.1))
    })?
    .in_flight(2 * BATCH as u32)
}

/// Returns a random part of the picture, and half of the time its mirror image.
fn augment(picture: &RgbImage, seed: u64) -> Sample {
    let mut dice = Rng::with_seed(seed);
    let side = picture.width().min(picture.height()) * 3 / 4;
    let (x, y) = (dice.u32(..picture.width() - side), dice.u32(..picture.height() - side));
    let part = imageops::thumbnail(&*imageops::crop_imm(picture, x, y, side, side), SIDE, SIDE);
    let part = if dice.bool() { imageops::flip_horizontal(&part) } else { part };
    part.into_raw().into_iter().map(|channel| f32::from(channel) / 255.0).collect()
}

/// The model is one picture, which comes closer to all that it sees. Each step gives its loss.
fn steps() -> Result<Pipeline<Vec<Sample>, f32>> {
    Pipeline::new("steps", &Ranked::default(), |g: &mut Graph, batch: Value<Vec<Sample>>| {
        let mut weights = g.state("weights", || vec![0.0; (3 * SIDE * SIDE) as usize]);
        g.task("train", (&mut weights, &batch), |weights: &mut Sample, batch: &Vec<Sample>| {
            let errors = weights.iter_mut().enumerate().map(|(place, weight)| {
                let gradient = batch.iter().map(|sample| *weight - sample[place]).sum::<f32>() / batch.len() as f32;
                *weight -= 0.3 * gradient;
                gradient * gradient
            });
            errors.sum::<f32>() / (3 * SIDE * SIDE) as f32
        })
    })
}
