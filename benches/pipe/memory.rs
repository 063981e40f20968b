//! The allocations of a pipeline, and whether they grow with the items.

use std::pin::pin;

use futures::executor::block_on;
use futures::stream::{self, StreamExt};

use crate::Args;
use crate::chain::{Chain, Serial};
use crate::counting::{self, Counts};
use crate::figures::Budget;
use crate::ours::{Split, executor, pipeline, splits};
use crate::table::Table;

/// The number of results before the first count and before the second.
const EARLY: u64 = 100_000;
const LATE: u64 = 10_000_000;
const QUICK_LATE: u64 = 1_000_000;
const IN_FLIGHT: usize = 16;

/// Returns the table as Markdown.
pub(crate) fn report(args: &Args) -> String {
    let late = if args.quick { QUICK_LATE } else { LATE };
    let counts = [EARLY, late].map(|items| format!("bytes after {items} items"));
    let head = ["workers", "phases", "serial"].map(str::to_owned).into_iter().chain(counts);
    let last = ["allocations in between", "per item", "budget"].map(str::to_owned);
    let mut table = Table::new(head.chain(last));
    for (workers, split) in splits(&args.workers) {
        for serial in [Serial::None, Serial::Middle] {
            let chain = Chain { tasks: 3, serial, in_flight: IN_FLIGHT, workers, work_ns: 0 };
            let [before, after] = count(&chain, split, [EARLY, late]);
            let allocations = after.allocations - before.allocations;
            // A few allocations among millions of items are not those of an item.
            let per_item = (1000.0 * allocations as f64 / (late - EARLY) as f64).round() / 1000.0;
            let cells = [chain.workers_text(), split.to_string(), serial.to_string()].into_iter();
            let cells = cells.chain([before.bytes, after.bytes, allocations].map(|count| count.to_string()));
            table.push(cells.chain([format!("{per_item:.3}"), Budget::AtMost(0.0).verdict(Some(per_item))]));
        }
    }
    format!(
        "**Memory of three tasks, {IN_FLIGHT} items in flight, with the pipeline's and the executor's own**\n\n{}",
        table.markdown()
    )
}

/// Returns the allocations of a pipeline and its executor after each of the given numbers of results.
fn count(chain: &Chain, split: Split, after: [u64; 2]) -> [Counts; 2] {
    counting::start();
    let (exec, pipeline) = (executor(chain), pipeline(chain, split));
    let counts = block_on(async {
        let mut results = pin!(exec.pipe(&pipeline, stream::iter(0..)));
        let mut taken = 0;
        let mut counts = [counting::now(); 2];
        for (count, after) in counts.iter_mut().zip(after) {
            while taken < after {
                results.next().await.expect("the source has no end").expect("no task fails");
                taken += 1;
            }
            *count = counting::now();
        }
        counts
    });
    counting::stop();
    block_on(exec.shutdown()).expect("nothing runs any more");
    counts
}
