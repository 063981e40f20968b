//! Two branches that join: the plan puts them on two streams, and nodes take their values instead of copying
//! them.
//!
//! ```sh
//! cargo run --example diamond
//! ```
//!
//! ```text
//!                        ┌─▶ darkest ───┐
//!  negative ─▶ develop ──┼──────────────┼─▶ stretch ─▶ photograph
//!                        └─▶ brightest ─┘
//! ```

use anabranch::{Executor, Graph, HostStream, Result, inputs, take};

#[tokio::main]
async fn main() -> Result<()> {
    let mut g = Graph::new();
    let negative = g.input::<Vec<u8>>("negative");

    // A kernel launches onto a stream of the device; here the host is the device.
    let picture = g.kernel("develop", take(&negative), |stream: &mut HostStream, mut tones: Vec<u8>| {
        stream.launch(|| tones.iter_mut().for_each(|tone| *tone = 255 - *tone));
        tones
    });

    // These two only read the picture, so they run at once: each gets a stream of its own.
    let darkest = g.kernel("darkest", &picture, |stream: &mut HostStream, tones: &Vec<u8>| {
        stream.launch(|| tones.iter().copied().min().unwrap_or(0))
    });
    let brightest = g.kernel("brightest", &picture, |stream: &mut HostStream, tones: &Vec<u8>| {
        stream.launch(|| tones.iter().copied().max().unwrap_or(255))
    });

    // This one takes the picture and changes it in place, so the plan lets it wait for everyone who reads it.
    let photograph = g.kernel("stretch", (take(&picture), &darkest, &brightest), stretch);
    g.output("photograph", &photograph);

    // In the table, `wait 1@1` goes on once stream 1 has passed its `record 1@1`.
    let plan = g.compile()?;
    println!("{plan}");

    let negative: Vec<u8> = (0..12).map(|x| 165 - 5 * x).collect();
    println!("negative   at {:p} {negative:?}", negative.as_ptr());
    let mut outputs = Executor::host()?.run(&plan, inputs! { "negative" => negative }).await?;
    let photograph = outputs.take::<Vec<u8>>("photograph")?;
    println!("photograph at {:p} {photograph:?}", photograph.as_ptr());
    Ok(())
}

/// Spreads the tones between the darkest and the brightest over the whole range.
fn stretch(stream: &mut HostStream, mut tones: Vec<u8>, darkest: &u8, brightest: &u8) -> Vec<u8> {
    let range = u32::from(brightest - darkest).max(1);
    stream.launch(|| tones.iter_mut().for_each(|tone| *tone = (u32::from(*tone - darkest) * 255 / range) as u8));
    tones
}
