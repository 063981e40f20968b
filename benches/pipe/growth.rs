//! How the cost of an item grows with the number of items. With few items, the start of the pipeline counts.

use std::time::Instant;

use anabranch::{Executor, Pipeline};
use futures::executor::block_on;
use futures::stream;

use crate::Args;
use crate::chain::{Chain, Serial};
use crate::figures::{min, show};
use crate::ours::{Split, executor, pipeline, splits, sum};
use crate::quiet::Quiet;
use crate::table::{Table, median};

const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Items of a figure, split into as many streams as needed.
const ITEMS: u64 = 1_000_000;
const IN_FLIGHT: usize = 16;

/// Returns the table as Markdown.
pub(crate) fn report(args: &Args, quiet: &mut Quiet) -> String {
    let sizes = SIZES.map(|size| format!("{size} items"));
    let head = ["workers", "phases"].map(str::to_owned).into_iter().chain(sizes);
    let mut table = Table::new(head.chain(["the last/the first".to_owned()]));
    for (workers, split) in splits(&args.workers) {
        let chain = Chain { tasks: 3, serial: Serial::None, in_flight: IN_FLIGHT, workers, work_ns: 0 };
        let figures = measure(&chain, split, args.rounds, quiet);
        let [first, last] = [&figures[0], &figures[SIZES.len() - 1]];
        let ratio = format!("{:.2} ({:.2})", median(last) / median(first), min(last) / min(first));
        let cells = [chain.workers_text(), split.to_string()].into_iter();
        table.push(cells.chain(figures.iter().map(|figures| show(figures))).chain([ratio]));
    }
    format!(
        "**Growth: ns per item of three tasks, {IN_FLIGHT} items in flight, by the items of a stream**\n\n{}",
        table.markdown()
    )
}

/// Returns the ns per item, a figure per round, for each size.
fn measure(chain: &Chain, split: Split, rounds: usize, quiet: &mut Quiet) -> [Vec<f64>; SIZES.len()] {
    let (exec, pipeline) = (executor(chain), pipeline(chain, split));
    run(&exec, &pipeline, chain, SIZES[0]);
    let mut figures = SIZES.map(|_| Vec::with_capacity(rounds));
    for _ in 0..rounds {
        for (figures, size) in figures.iter_mut().zip(SIZES) {
            figures.extend(quiet.take(|| Some(item_ns(&exec, &pipeline, chain, size))));
        }
    }
    block_on(exec.shutdown()).expect("nothing runs any more");
    figures
}

fn item_ns(exec: &Executor, pipeline: &Pipeline<u64, u64>, chain: &Chain, size: u64) -> f64 {
    let start = Instant::now();
    (0..ITEMS / size).for_each(|_| run(exec, pipeline, chain, size));
    start.elapsed().as_nanos() as f64 / ITEMS as f64
}

fn run(exec: &Executor, pipeline: &Pipeline<u64, u64>, chain: &Chain, size: u64) {
    chain.check(size, block_on(sum(exec.pipe(pipeline, stream::iter(0..size)))));
}
