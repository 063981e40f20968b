//! Loops of very different lengths side by side: each tile of a picture is iterated until its last point has
//! escaped.
//!
//! ```sh
//! cargo run --release --example mandelbrot                    # or -- FILE.png
//! ```
//!
//! A tile is a loop of its own, all in one flow; each is drawn as soon as it is ready. A loop that waits
//! holds no thread: the workers take whatever step is ready.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anabranch::{BoxError, Executor, Flow, Result, take};
use futures::stream::{FuturesUnordered, TryStreamExt};
use image::{Rgb, RgbImage};

/// Points of a tile in each direction.
const SIDE: u32 = 32;
/// Iterations in a step.
const STEP: u32 = 50;

/// What is drawn: a part of the plane, and where to give up.
#[derive(Clone, Copy)]
struct View {
    width: u32,
    height: u32,
    centre: (f64, f64),
    /// Between two points of the picture.
    scale: f64,
    iterations_max: u32,
}

/// In the valley between the heart and the disc.
const VALLEY: View = View { width: 960, height: 640, centre: (-0.7463, 0.1102), scale: 5e-6, iterations_max: 5000 };

/// A tile, and how far it is.
struct Tile {
    corner: (u32, u32),
    points: Vec<Point>,
    iterations: u32,
}

struct Point {
    z: (f64, f64),
    c: (f64, f64),
    /// In how many iterations it escaped, smoothed.
    escape: Option<f64>,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let path = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("mandelbrot.png"), PathBuf::from);
    image::ImageFormat::from_path(&path).map_err(|_| "give a file for a picture, such as mandelbrot.png")?;
    let started = Instant::now();
    let (picture, lengths) = draw(&Executor::host()?, VALLEY).await?;
    println!("{} tiles side by side in {:.1?}", lengths.len(), started.elapsed());
    let (shortest, longest) = lengths.iter().fold((u32::MAX, 0), |(least, most), &one| (least.min(one), most.max(one)));
    println!("the shortest took {shortest} iterations, the longest {longest}");
    picture.save(&path)?;
    println!("the picture is {}", path.display());
    Ok(())
}

/// Returns the picture, and how many iterations each tile took, in the order in which they were ready.
async fn draw(exec: &Executor, view: View) -> Result<(RgbImage, Vec<u32>)> {
    let flow = exec.flow(async |f: &Flow| {
        let corners = places(0..view.width, 0..view.height, SIDE);
        let mut tiles: FuturesUnordered<_> = corners.map(|corner| iterate(f, view.tile(corner), view.iterations_max)).collect();
        let (mut picture, mut lengths) = (RgbImage::new(view.width, view.height), Vec::new());
        while let Some(tile) = tiles.try_next().await? {
            tile.draw(&mut picture);
            lengths.push(tile.iterations);
        }
        Ok((picture, lengths))
    });
    flow.await
}

/// Iterates a tile until all of its points have escaped, or it is told to give up.
async fn iterate(f: &Flow, tile: Tile, iterations_max: u32) -> Result<Arc<Tile>> {
    let mut tile = f.value("tile", tile);
    while !f.get(&tile).await?.is_over(iterations_max) {
        // Takes it, and so changes it where it lies: what the condition has looked at is dropped.
        tile = f.task("step", take(&tile), Tile::step);
    }
    f.get(&tile).await
}

impl View {
    fn tile(&self, corner: (u32, u32)) -> Tile {
        let points = Tile::pixels(corner).map(|(x, y)| {
            let along = |at: u32, size: u32| (f64::from(at) - f64::from(size) / 2.0) * self.scale;
            let c = (self.centre.0 + along(x, self.width), self.centre.1 - along(y, self.height));
            Point { z: (0.0, 0.0), c, escape: None }
        });
        Tile { corner, points: points.collect(), iterations: 0 }
    }
}

fn places(xs: Range<u32>, ys: Range<u32>, step: u32) -> impl Iterator<Item = (u32, u32)> {
    ys.step_by(step as usize).flat_map(move |y| xs.clone().step_by(step as usize).map(move |x| (x, y)))
}

impl Tile {
    fn step(mut self) -> Self {
        for point in self.points.iter_mut().filter(|point| point.escape.is_none()) {
            point.iterate(self.iterations);
        }
        self.iterations += STEP;
        self
    }

    fn is_over(&self, iterations_max: u32) -> bool {
        self.iterations >= iterations_max || self.points.iter().all(|point| point.escape.is_some())
    }

    fn pixels((left, top): (u32, u32)) -> impl Iterator<Item = (u32, u32)> {
        places(left..left + SIDE, top..top + SIDE, 1)
    }

    fn draw(&self, picture: &mut RgbImage) {
        for ((x, y), point) in Self::pixels(self.corner).zip(&self.points) {
            picture.put_pixel(x, y, point.colour());
        }
    }
}

impl Point {
    /// z ← z² + c, for one step.
    fn iterate(&mut self, before: u32) {
        for iteration in 0..STEP {
            let ((x, y), (a, b)) = (self.z, self.c);
            self.z = (x * x - y * y + a, 2.0 * x * y + b);
            let square = self.z.0 * self.z.0 + self.z.1 * self.z.1;
            // Far beyond the circle of radius 2, so that colours have no edges.
            if square > 1e4 {
                let smoothed = f64::from(before + iteration) + 1.0 - (square.ln() / 2.0).log2();
                self.escape = Some(smoothed);
                return;
            }
        }
    }

    /// Black inside; outside a colour that comes again whenever the iterations have doubled.
    fn colour(&self) -> Rgb<u8> {
        let Some(escape) = self.escape else { return Rgb([0, 0, 0]) };
        let turn = escape.max(1.0).log2() * 1.3;
        Rgb([0.0, 0.12, 0.25].map(|lag| {
            let wave = 0.5 + 0.5 * (std::f64::consts::TAU * (turn / 2.0 - lag)).cos();
            (255.0 * wave) as u8
        }))
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn every_executor_draws_what_a_plain_loop_draws() -> Result<()> {
        let view = View { width: 96, height: 64, scale: 5e-5, iterations_max: 500, ..VALLEY };
        let mut plain = RgbImage::new(view.width, view.height);
        for corner in places(0..96, 0..64, SIDE) {
            (0..500 / STEP).fold(view.tile(corner), |tile, _| tile.step()).draw(&mut plain);
        }
        let hosts = [0, 1, 2, 8].map(|workers| Executor::builder().workers(workers).build());
        for exec in hosts.into_iter().chain((0..20).map(|seed| Ok(Executor::sim(seed)))) {
            let (picture, lengths) = block_on(draw(&exec?, view))?;
            assert_eq!((picture == plain, lengths.len()), (true, 6));
        }
        Ok(())
    }
}
