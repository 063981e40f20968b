//! Question: what does an item of a stream cost in a pipeline, compared with the alternatives?
//!
//! Method: chains of small tasks on `u64`s. A figure is the time from the first item to the last result,
//! divided by the items; both streams are included. The peers are oneTBB's `parallel_pipeline` with as many
//! tokens, tokio tasks with channels of that capacity between them, and a run of a plan for each item with
//! `StreamExt::buffered`. The peers take turns within each round. The tables have the median of the rounds
//! and, in brackets, the smallest. A figure is measured again if other processes kept the machine busy.
//!
//! ```text
//! cargo bench --bench pipe                                         everything: minutes
//! cargo bench --bench pipe -- --quick                              three tasks, shorter figures
//! cargo bench --bench pipe -- --quick --only items --peers ours    for tuning
//! cargo bench --bench pipe -- --write                              writes docs/performance/pipe.md as well
//! ```

mod bodies;
mod chain;
mod counting;
#[path = "../peers/cpp.rs"]
#[allow(dead_code)]
mod cpp;
mod figures;
mod growth;
mod items;
#[path = "../run/report/machine.rs"]
mod machine;
#[path = "../run/report/markers.rs"]
mod markers;
mod memory;
mod ours;
mod paced;
mod peers;
#[path = "../run/quiet.rs"]
#[allow(dead_code)]
mod quiet;
#[path = "../run/report/table.rs"]
mod table;

use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::machine::Machine;
use crate::markers::Output;
use crate::quiet::Quiet;

/// How long a figure takes, and one of `--quick`.
const TARGET_MS: u64 = 100;
const QUICK_TARGET_MS: u64 = 30;

/// Measures the cost of an item of a pipeline.
#[derive(Parser)]
struct Args {
    /// Only chains of three tasks, shorter figures, each measured once, and fewer items for memory.
    #[arg(long)]
    quick: bool,
    /// Parts of the report; all unless given.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Items in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 8, 16, 64])]
    in_flight: Vec<usize>,
    /// Threads that run tasks; 0 is inline, on the thread that waits.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 2])]
    workers: Vec<usize>,
    /// Peers whose names begin so; all unless given.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How long a figure takes. On a busy machine, many rounds of a few milliseconds have better minima.
    #[arg(long)]
    figure_ms: Option<u64>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The cost of an item, compared with the peers.
    Items,
    /// Tasks of 50 µs on two workers.
    Bodies,
    /// Allocations.
    Memory,
    /// The cost of an item, by the number of items.
    Growth,
}

impl Args {
    /// Returns whether the peer `name` is measured.
    fn has(&self, name: &str) -> bool {
        self.peers.is_empty() || self.peers.iter().any(|peer| name.starts_with(&**peer))
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Returns how long a figure takes.
    fn target(&self) -> Duration {
        let default = if self.quick { QUICK_TARGET_MS } else { TARGET_MS };
        Duration::from_millis(self.figure_ms.unwrap_or(default))
    }
}

fn main() {
    let args = Args::parse();
    let (machine, mut peers) = (Machine::now(), peers::all());
    let mut quiet = if args.quick { Quiet::with_attempts(1) } else { Quiet::default() };
    let hints: Vec<String> = peers.iter().filter_map(|peer| peer.missing()).map(str::to_owned).collect();
    // The first part: memory of an earlier part would be counted when it is freed late.
    let memory = args.wants(Part::Memory).then(|| memory::report(&args));
    let mut parts = Vec::new();
    if args.wants(Part::Items) {
        parts.extend(items::report(&args, &mut peers, &mut quiet));
    }
    if args.wants(Part::Bodies) {
        parts.push(bodies::report(&args, &mut peers, &mut quiet));
    }
    parts.extend(memory);
    if args.wants(Part::Growth) {
        parts.push(growth::report(&args, &mut quiet));
    }
    let heads = [format!("{} {}", machine.text(), quiet.text()), method(&args)];
    let all: Vec<String> = heads.into_iter().chain(hints).chain(parts).collect();
    args.output.publish("bench:pipe", &all.join("\n\n"));
}

fn method(args: &Args) -> String {
    format!(
        "Method: the median of {} rounds and, in brackets, the smallest; a ratio is the median of the rounds' ratios and, in \
         brackets, that of the smallest figures. A figure takes about {} ms. oneTBB has two filters more than tasks: the one \
         that makes the items and the one that takes them.",
        args.rounds,
        args.target().as_millis()
    )
}
