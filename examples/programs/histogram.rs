//! Histogram, mean and variance of a file that is larger than the memory it may have, with a progress bar.
//! The file is read while what was read before is counted.
//!
//! ```text
//! cargo run --release --example histogram -- [FILE]
//! ```

use std::sync::Arc;

use anabranch::scope::{Streaming, Sum, Tile, TilePlace, operator};
use anabranch::{BoxError, Executor, Graph, inputs};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

const MEMORY_MAX: u64 = 1 << 20;
/// The bytes of the file that is made if none is given.
const MADE: usize = 8 << 20;

/// Fills a buffer with the bytes of a tile.
async fn read(path: Arc<str>, place: TilePlace<1>, mut buffer: Vec<u8>) -> Result<Vec<u8>, BoxError> {
    let mut file = File::open(&*path).await?;
    file.seek(std::io::SeekFrom::Start(place.start[0] as u64)).await?;
    file.read_exact(&mut buffer).await?;
    Ok(buffer)
}

fn count(bytes: Tile<u8, 1>) -> Vec<u64> {
    let mut counts = vec![0; 256];
    bytes.as_slice().iter().for_each(|&byte| counts[byte as usize] += 1);
    counts
}

fn add(mut one: Vec<u64>, other: Vec<u64>) -> Vec<u64> {
    one.iter_mut().zip(other).for_each(|(one, other)| *one += other);
    one
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let path: Arc<str> = match std::env::args().nth(1) {
        Some(path) => path.into(),
        None => make().await?.into(),
    };
    let bytes = tokio::fs::metadata(&*path).await.map_err(|error| format!("cannot read {path}: {error}"))?.len() as usize;
    let bar = ProgressBar::new(bytes as u64).with_style(ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}")?);

    let (mut g, shown) = (Graph::new(), bar.clone());
    let (counts, sums) = g.scope("statistics", Streaming::strict().memory_max(MEMORY_MAX), |s| {
        let data = s.store("data", [bytes]);
        s.load("read", &data, move |place, buffer| {
            shown.set_position(place.range(0).end as u64);
            read(path.clone(), place, buffer)
        });
        let counts = s.fold("count", &data, operator("add", || vec![0; 256], add), count);
        let sum = s.fold("sum", &data, Sum, |data: Tile<u8, 1>| data.as_slice().iter().map(|&x| u64::from(x)).sum::<u64>());
        let squares = |data: Tile<u8, 1>| data.as_slice().iter().map(|&x| u64::from(x).pow(2)).sum::<u64>();
        let squares = s.fold("squares", &data, Sum, squares);
        (counts, s.value("both", (&sum, &squares), |sum: &u64, squares: &u64| [*sum as f64, *squares as f64]))
    });
    g.output("counts", &counts);
    g.output("sums", &sums);

    let plan = g.compile()?;
    let mut outputs = Executor::host()?.run(&plan, inputs! {}).await?;
    bar.finish();
    let (counts, sums) = (outputs.take::<Vec<u64>>("counts")?, outputs.take::<[f64; 2]>("sums")?);
    let [mean, squares] = sums.map(|sum| sum / bytes.max(1) as f64);
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    for (first, counts) in counts.chunks(16).enumerate() {
        let count: u64 = counts.iter().sum();
        println!("{:3} to {:3} {count:9} {}", first * 16, first * 16 + 15, "#".repeat((count * 3 / most).min(60) as usize));
    }
    println!("mean {mean:.3}, variance {:.3}", squares - mean * mean);
    let scope = plan.scope("statistics").expect("the graph has it");
    println!("at most {} bytes in memory, {} if nothing streams", scope.peak_bytes(), scope.unstreamed_bytes());
    Ok(())
}

/// Makes a file of numbers: sums of dice.
async fn make() -> Result<String, BoxError> {
    let path = std::env::temp_dir().join("anabranch-histogram.bin");
    let mut random = fastrand::Rng::with_seed(7);
    let bytes: Vec<u8> = (0..MADE).map(|_| (0..4).map(|_| random.u8(..64)).sum::<u8>()).collect();
    let mut file = File::create(&path).await?;
    file.write_all(&bytes).await?;
    file.flush().await?;
    Ok(path.to_string_lossy().into_owned())
}
