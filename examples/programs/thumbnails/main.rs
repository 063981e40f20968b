//! Makes a thumbnail of every picture in a folder, many at a time, with a contact sheet and a timeline of
//! what ran when.
//!
//! ```sh
//! cargo run --release --example thumbnails                 # the photographs that come along
//! cargo run --release --example thumbnails -- DIR OUT      # your own
//! cargo run --release --features cuda --example thumbnails # resized and normalised on the GPU, if there is one
//! ```
//!
//! Read `graph.rs` first (the work on one picture), then `batch.rs` (all pictures). The rest is what any
//! program needs.

mod batch;
mod cli;
mod device;
mod device_ops;
mod files;
mod graph;
mod image_ops;
mod reports;
mod summary;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anabranch::{BoxError, Executor, Timeline};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use batch::{Batch, reason};
use cli::Args;
use files::{find_images, make_folder};
use graph::thumbnail_plan;
use reports::{node_times, sheet_len, write_reports};
use summary::Summary;

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
    let timeline = Arc::new(Timeline::new(pictures.len() * (1 + plan.schedule().order().len())));
    let settings = || Executor::builder().workers(args.workers()).max_in_flight(in_flight).observer(timeline.clone());
    let (exec, device) = args.device.executor(settings)?;
    if !args.quiet {
        writeln!(io::stdout(), "{device}")?;
    }

    let bar = progress_bar(pictures.len(), args.quiet)?;
    let batch = Batch { exec: &exec, plan: &plan, dir, out: out.clone(), in_flight, kept: sheet_len(args.side) };
    let started = Instant::now();
    let (done, failures) = batch.run(&pictures, &bar).await;
    let wall = started.elapsed();

    let spans = timeline.nodes();
    let streams = spans.iter().filter_map(|span| span.work.stream()).collect::<BTreeSet<_>>().len();
    let summary = Summary { done: done.len(), failures, wall, streams, nodes: node_times(&spans) };
    // A full disk does not keep the summary from being printed, nor a closed terminal the reports from being
    // written.
    let written = write_reports(&out, done, &timeline.to_svg()).await;
    bar.finish_and_clear();
    print(&summary, args.quiet).map_err(|cause| format!("cannot print the summary: {cause}"))?;
    let written = written?;
    if !args.quiet {
        writeln!(io::stdout(), "\n{written}")?;
    }
    Ok(summary.failures.is_empty())
}

fn print(summary: &Summary, is_quiet: bool) -> io::Result<()> {
    if is_quiet { summary.write_failures(&mut io::stderr().lock()) } else { summary.print() }
}

/// Returns the bar, which shows itself only on a terminal.
fn progress_bar(pictures: usize, is_quiet: bool) -> Result<ProgressBar, BoxError> {
    if is_quiet {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{wide_bar:.cyan/blue} {pos}/{len} images  {eta} left")?;
    Ok(ProgressBar::new(pictures as u64).with_style(style))
}
