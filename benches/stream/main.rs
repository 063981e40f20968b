//! Question: what does a streaming array program cost, in time and in memory, compared with the same loops by
//! hand?
//!
//! Method: FILL, k times INC and SUM on `f64`s. The peers are the same loops on whole arrays that are already
//! in memory (warm, in place), in blocks by hand, and with rayon's `par_chunks_mut`. All use two threads and
//! the same function for the sum of a slice. Stencils of 8 steps are compared with the same scope without
//! streaming. The peers take turns; the tables have the median of the rounds and, in brackets, the smallest.
//! Bytes are counted by the allocator, in a round of their own.
//!
//! ```text
//! cargo bench --bench stream                  everything: a few minutes
//! cargo bench --bench stream -- --quick       a tenth of the elements
//! cargo bench --bench stream -- --write       writes docs/performance/stream.md as well
//! ```

mod counting;
mod hand;
#[path = "../run/report/machine.rs"]
mod machine;
#[path = "../run/report/markers.rs"]
mod markers;
mod scopes;
#[path = "../run/report/table.rs"]
#[allow(dead_code)]
mod table;

use std::time::Instant;

use anabranch::tiles::{Meeting, Part};
use clap::Parser;

use crate::machine::Machine;
use crate::markers::Output;
use crate::scopes::Ours;
use crate::table::{Table, median};

/// The threads of all peers.
const THREADS: usize = 2;

/// Measures scopes.
#[derive(Parser)]
struct Args {
    /// A tenth of the elements, and three rounds.
    #[arg(long)]
    quick: bool,
    /// Only the tables whose title has this in it.
    #[arg(long, default_value = "")]
    only: String,
    #[arg(long)]
    rounds: Option<usize>,
    #[command(flatten)]
    output: Output,
}

impl Args {
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 3 } else { 11 })
    }

    fn elements(&self) -> usize {
        if self.quick { 10_000_000 } else { 100_000_000 }
    }
}

/// A way to compute something: its name, and a run that returns a number to compare.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnMut() -> f64>,
    /// The bytes that it has in memory before it runs.
    pub(crate) before_bytes: usize,
}

/// The measurements of a way.
struct Figures {
    name: &'static str,
    ms: Vec<f64>,
    peak_bytes: usize,
}

/// Measures all ways in turn. All of them must return the same number, except for rounding.
fn measure(ways: &mut [Way], rounds: usize) -> Vec<Figures> {
    let mut figures: Vec<Figures> = Vec::new();
    let expected = (ways[0].run)();
    for way in &mut *ways {
        counting::start();
        let result = (way.run)();
        let peak_bytes = counting::peak() + way.before_bytes;
        counting::stop();
        assert!((result / expected - 1.0).abs() < 1e-9, "{} gives {result}, not {expected}", way.name);
        figures.push(Figures { name: way.name, ms: Vec::new(), peak_bytes });
    }
    for _ in 0..rounds {
        for (way, figures) in ways.iter_mut().zip(&mut figures) {
            let start = Instant::now();
            std::hint::black_box((way.run)());
            figures.ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    figures
}

/// Returns the median of the ratios of each round.
fn ratio(above: &Figures, below: &Figures) -> f64 {
    median(&above.ms.iter().zip(&below.ms).map(|(above, below)| above / below).collect::<Vec<_>>())
}

fn least(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns a table of ways, each compared with the ways in `against`.
fn table(title: &str, figures: &[Figures], against: &[&str]) -> String {
    let heads = ["", "ms", "peak MB"].into_iter().map(str::to_owned).chain(against.iter().map(|name| format!("× {name}")));
    let mut table = Table::new(heads);
    for own in figures {
        let beside = against.iter().map(|name| {
            let other = figures.iter().find(|other| other.name == *name).expect("it was measured");
            format!("{:.2}", ratio(own, other))
        });
        let cells = [
            own.name.to_owned(),
            format!("{:.1} ({:.1})", median(&own.ms), least(&own.ms)),
            format!("{:.2}", own.peak_bytes as f64 / 1e6),
        ];
        table.push(cells.into_iter().chain(beside));
    }
    titled(title, &table)
}

fn titled(title: &str, table: &Table) -> String {
    format!("**{title}**\n\n{}", table.markdown())
}

fn main() {
    let args = Args::parse();
    let mut parts = vec![Machine::now().text(), method(&args)];
    for incs in [1, 8] {
        let title = format!("FILL, {incs} × INC and SUM of {} numbers", args.elements());
        if title.contains(&args.only) {
            let mut ways = hand::ways(args.elements(), incs);
            ways.extend(Ours::new().sums(args.elements(), incs));
            let figures = measure(&mut ways, args.rounds());
            parts.push(table(&title, &figures, &["whole by hand, warm", "blocked by hand"]));
        }
    }
    let side = if args.quick { 1024 } else { 4096 };
    for (title, ways) in [
        (format!("Chain of 8 stencils of 3 points, {} numbers", side * side), Ours::new().lines(side * side, 8)),
        (format!("Chain of 8 stencils of 5 points, {side} × {side} numbers"), Ours::new().grids(side, 8)),
    ] {
        if title.contains(&args.only) {
            let mut ways = ways;
            parts.push(table(&title, &measure(&mut ways, args.rounds()), &["off"]));
        }
    }
    if "Checker".contains(&args.only) {
        parts.push(checker());
    }
    args.output.publish("bench:stream", &parts.join("\n\n"));
}

fn method(args: &Args) -> String {
    format!(
        "Method: {THREADS} threads; the median of {} rounds and, in brackets, the smallest; a ratio is the median of the rounds' \
         ratios. Peak: what the allocator gave out and did not get back, at the most, and what was there before.",
        args.rounds()
    )
}

/// Measures the check of two uses with a million batches each, in two dimensions.
fn checker() -> String {
    let (shape, launch) = ([8000_u64, 8000], [1000_u64, 1000]);
    let tiles = || Part::tiles([8, 8]);
    let uses = [("the same tiles", tiles()), ("a halo", tiles().halo([1, 1], [1, 1])), ("transposed", tiles().transposed())];
    let mut table = Table::new(["", "µs"]);
    for (name, part) in uses {
        let meet = || Meeting::of(&shape, (&launch, &tiles()), (&launch, &part)).expect("they fit");
        let took = |_| {
            let start = Instant::now();
            std::hint::black_box(meet());
            start.elapsed().as_secs_f64() * 1e6
        };
        let all: Vec<f64> = (0..101).map(took).collect();
        table.push([name.to_owned(), format!("{:.1} ({:.1})", median(&all), least(&all))]);
    }
    titled("Checker: a pair of uses with 1,000,000 batches each", &table)
}
