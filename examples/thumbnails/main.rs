//! Makes a thumbnail of every picture in a folder, many at a time, with a contact sheet and a timeline of what ran when.
//!
//! ```sh
//! cargo run --release --example thumbnails                 # the photographs that come along
//! cargo run --release --example thumbnails -- DIR OUT      # your own
//! ```
//!
//! Read `graph.rs` first (the work on one picture), then `batch.rs` (all pictures). The rest is what any program needs.

mod batch;
mod cli;
mod files;
mod graph;
mod image_ops;
mod reports;
mod summary;
mod svg;
mod timeline;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anabranch::{BoxError, Executor, Plan, TimelineSpan};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use batch::{Batch, Done, reason};
use cli::Args;
use files::{find_images, make_folder, write};
use graph::{AWAITED, thumbnail_plan};
use reports::{colour_table, node_times, sheet_len, write_sheet};
use summary::{Summary, duration, plural};
use svg::Drawing;
use timeline::Timeline;

/// This one thread awaits all runs; the executor's workers compute.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match make_thumbnails(&Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {}", reason(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Returns true if every picture has a thumbnail; those that have none were reported.
async fn make_thumbnails(args: &Args) -> Result<bool, BoxError> {
    let (dir, out, in_flight) = (args.dir(), args.out(), args.in_flight());
    let pictures = find_images(&dir, &out)?;
    make_folder(&out)?;

    let plan = thumbnail_plan(args.side)?;
    let observer = Arc::new(anabranch::Timeline::new(pictures.len() * plan.schedule().order().len()));
    let exec = Executor::builder().workers(args.workers()).max_in_flight(in_flight).observer(observer.clone()).build()?;

    let bar = progress_bar(pictures.len(), args.quiet)?;
    let batch = Batch { exec: &exec, plan: &plan, dir, out: out.clone(), in_flight, kept: sheet_len(args.side) };
    let started = Instant::now();
    let (done, failures) = batch.run(&pictures, &bar).await;
    let wall = started.elapsed();
    bar.finish_and_clear();

    let spans = observer.spans();
    let streams = spans.iter().map(|span| span.stream).collect::<BTreeSet<_>>().len();
    let summary = Summary { done: done.len(), failures, wall, streams, nodes: node_times(&spans) };
    if args.quiet {
        summary.write_failures(&mut io::stderr())?
    } else {
        summary.print()?
    }
    write_reports(args, &out, done, &spans, &plan).await?;
    Ok(summary.failures.is_empty())
}

async fn write_reports(
    args: &Args,
    out: &Path,
    mut done: Vec<Done>,
    spans: &[TimelineSpan],
    plan: &Plan,
) -> Result<(), BoxError> {
    let timeline = Timeline::new(spans, plan.schedule(), &AWAITED);
    let (images, streams) = (plural(timeline.runs, "image"), plural(timeline.rows.len(), "stream"));
    let workers = plural(args.workers(), "worker");
    let title = format!("{images} on {streams} and {workers} in {}", duration(timeline.end_ms * 1e3));
    write(&out.join("timeline.svg"), Drawing { title, timeline: &timeline }.to_string().as_bytes()).await?;
    write(&out.join("colours.csv"), colour_table(&done).as_bytes()).await?;
    let on_sheet = write_sheet(out, &mut done).await?;
    if !args.quiet {
        let sheet = if on_sheet < done.len() { format!(" (the first {on_sheet} images)") } else { String::new() };
        writeln!(io::stdout(), "\nthumbnails, contact-sheet.jpg{sheet}, colours.csv and timeline.svg are in {}", out.display())?;
    }
    Ok(())
}

/// Returns the bar, which shows itself only on a terminal.
fn progress_bar(pictures: usize, is_quiet: bool) -> Result<ProgressBar, BoxError> {
    if is_quiet {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{wide_bar:.cyan/blue} {pos}/{len} images  {per_sec:.1}  {eta} left")?;
    Ok(ProgressBar::new(pictures as u64).with_style(style))
}
