//! A heat equation on a grid that is larger than the memory it may have: many steps stream through it, and
//! the rows of the last one go to a picture as they are done.
//!
//! ```text
//! cargo run --release --example heat -- [PICTURE.png]
//! ```

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anabranch::scope::{Store, Streaming, Tile, TileMut, TilePlace};
use anabranch::{Executor, Graph, inputs};

const HEIGHT: usize = 1024;
const WIDTH: usize = 512;
const STEPS: usize = 64;
/// A grid has 2 MB, and a step needs two.
const MEMORY_MAX: u64 = 1_000_000;

/// Some hot discs on a cold plate.
fn begin(mut u: TileMut<f32, 2>) {
    for i in u.range(0) {
        for (j, x) in u.row_mut(i).iter_mut().enumerate() {
            let (near, away) = ((i % 64) as f32 - 32.0, (j % 64) as f32 - 32.0);
            *x = if near.hypot(away) < 2.0 + 1.7 * (i / 64) as f32 { 1.0 } else { 0.0 };
        }
    }
}

/// One step. `u` has a halo of one row; the edges of the plate let no heat out.
fn step(u: Tile<f32, 2>, mut v: TileMut<f32, 2>) {
    for i in v.range(0) {
        let row = u.row(i);
        let (up, down) = (u.row(i.saturating_sub(1)), u.row((i + 1).min(HEIGHT - 1)));
        for (j, x) in v.row_mut(i).iter_mut().enumerate() {
            let (left, right) = (row[j.saturating_sub(1)], row[(j + 1).min(WIDTH - 1)]);
            *x = row[j] + 0.2 * (up[j] + down[j] + left + right - 4.0 * row[j]);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("heat.png"), PathBuf::from);
    image::ImageFormat::from_path(&path).map_err(|_| "give a file for a picture, such as heat.png")?;
    let picture = Arc::new(Mutex::new(image::RgbImage::new(WIDTH as u32 / 2, HEIGHT as u32 / 2)));
    let mut g = Graph::new();
    let drawn = picture.clone();
    let done = g.scope("heat", Streaming::strict().memory_max(MEMORY_MAX), |s| {
        let mut u: Store<f32, 2> = s.store("u0", [HEIGHT, WIDTH]);
        s.write("begin", (), &u, begin);
        for number in 1..=STEPS {
            let v = s.store(format!("u{number}"), [HEIGHT, WIDTH]);
            s.write("step", u.halo([1, 0], [1, 0]), &v, step);
            u = v;
        }
        s.save("draw", &u, move |place: TilePlace<2>, tile: Vec<f32>| {
            let drawn = drawn.clone();
            async move {
                draw(&mut drawn.lock().expect("drawing does not panic"), place, &tile);
                Ok(tile)
            }
        });
    });
    g.output("done", &done);

    let plan = g.compile()?;
    let scope = plan.scope("heat").expect("the graph has it");
    println!("{scope}");
    futures::executor::block_on(Executor::host()?.run(&plan, inputs! {}))?;
    picture.lock().expect("drawing does not panic").save(&path)?;
    println!(
        "{}: at most {} bytes in memory, {} if nothing streams",
        path.display(),
        scope.peak_bytes(),
        scope.unstreamed_bytes()
    );
    Ok(())
}

/// Draws every second element of every second row.
fn draw(picture: &mut image::RgbImage, place: TilePlace<2>, tile: &[f32]) {
    for i in place.range(0).filter(|i| i.is_multiple_of(2)) {
        for j in (0..WIDTH).step_by(2) {
            let heat = tile[(i - place.start[0]) * WIDTH + j];
            let color = [3.0 * heat, 3.0 * heat - 1.0, 3.0 * heat - 2.0].map(|part| (part.clamp(0.0, 1.0) * 255.0) as u8);
            picture.put_pixel(j as u32 / 2, i as u32 / 2, image::Rgb(color));
        }
    }
}
