//! Question: what does an exchange between ranks cost here, compared with the same exchange in C over MPI?
//! Does work go on beside it? How much faster are two ranks than one?
//!
//! Method: two processes on one machine. A ping-pong awaits each message; an all-reduce is awaited before the
//! next one. Each sends what the one before has received. C makes the same calls, which do not block, and
//! waits for each; and MPI's blocking calls. The memory of large values begins where a page begins
//! (`at_pages.rs`). A figure of an exchange is the median of ten parts of a program's run, in C too. A figure
//! is taken again if the machine was disturbed before it or behind it (`run/quiet.rs`): two cores of a
//! virtual machine that are one core of its host do not count as two. Each round starts all programs, one
//! after the other, those of large values more than once. The tables give medians over all starts. A ratio
//! and a difference are medians over pairs of programs that ran one after the other, because the machine has
//! slow minutes.
//!
//! *Overlap*: an all-reduce to which the other rank comes 20 ms late, and a node that computes for about 20
//! ms, alone and in one graph. Ideal is the longer of the two medians.
//!
//! *Solver*: the conjugate gradients of the example `ranks` on a grid of 512 x 512 points, one worker each.
//!
//! ```text
//! cargo bench --all-features --bench comm                 prints the tables
//! cargo bench --all-features --bench comm -- --write      and writes them into docs/performance/comm.md
//! ```
#![allow(clippy::unwrap_used)]

mod at_pages;
#[path = "../../examples/programs/ranks/graph.rs"]
#[allow(dead_code)]
mod graph;
#[path = "../../examples/programs/ranks/grid.rs"]
#[allow(dead_code)]
mod grid;
#[path = "../run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "../run/quiet.rs"]
#[allow(dead_code)]
mod quiet;
mod rank;
#[path = "../run/report/table.rs"]
#[allow(dead_code)]
mod table;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;

use crate::markers::Output;
use crate::quiet::Quiet;
use crate::table::{Table, median};

/// The place of the tables in the file.
const REPORT: &str = "bench:comm";
/// Set for the processes that are ranks.
const RANK: &str = "ANABRANCH_BENCH_RANK";
/// Sizes in bytes, how many exchanges are timed, and how often a round starts the programs. Figures of large
/// values differ by a tenth from start to start.
const SIZES: [(usize, usize, u32); 6] =
    [(8, 20_000, 1), (1 << 10, 20_000, 1), (1 << 16, 3_000, 2), (1 << 20, 400, 3), (1 << 24, 20, 3), (1 << 26, 10, 3)];

/// Compares exchanges between ranks with those in C.
#[derive(Parser)]
struct Args {
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    #[command(flatten)]
    output: Output,
}

fn main() {
    if std::env::var_os(RANK).is_some() {
        return rank::run(&std::env::args().skip(1).collect::<Vec<_>>());
    }
    let args = Args::parse();
    let programs = ["openmpi", "mpich"].map(raw_program);
    if args.output.file(REPORT).is_some() && programs.contains(&None) {
        // A table of one MPI would replace that of both.
        eprintln!("nothing is written without both MPIs: install libopenmpi-dev and libmpich-dev");
        std::process::exit(2);
    }
    let (mut report, mut quiet) = (Vec::new(), Quiet::default());
    let launchers = [("Open MPI", "openmpi", &["--allow-run-as-root", "--oversubscribe"][..]), ("MPICH", "mpich", &[])];
    for ((name, compiler, arguments), raw) in launchers.into_iter().zip(programs) {
        let Some(raw) = raw else {
            println!("skipped: no mpicc.{compiler}");
            continue;
        };
        let mpi = Mpi { launcher: format!("mpirun.{compiler}"), arguments };
        let own = std::env::current_exe().unwrap();
        let (mut theirs, mut ours) = (Figures::new(), Figures::new());
        for _ in 0..args.rounds {
            for (bytes, rounds, starts) in SIZES {
                let words = [bytes.to_string(), rounds.to_string()];
                for _ in 0..starts {
                    quiet.take(|| Some(mpi.launch(2, &raw, &words))).into_iter().for_each(|found| add(&mut theirs, bytes, found));
                    quiet.take(|| Some(mpi.launch(2, &own, &words))).into_iter().for_each(|found| add(&mut ours, bytes, found));
                }
            }
            for (ranks, what) in [(2, "overlap"), (1, "solver"), (2, "solver")] {
                let words = [what.to_owned()];
                quiet.take(|| Some(mpi.launch(ranks, &own, &words))).into_iter().for_each(|found| add(&mut ours, 0, found));
            }
        }
        report.push(exchanges(name, &theirs, &ours));
        report.push(whole_programs(name, &ours));
    }
    report.push(quiet.text());
    args.output.publish(REPORT, &report.join("\n\n"));
}

/// Compiles the program in C. None if there is no compiler for this MPI.
fn raw_program(compiler: &str) -> Option<PathBuf> {
    let raw = std::env::temp_dir().join(format!("anabranch-bench-comm-{compiler}"));
    let built = Command::new(format!("mpicc.{compiler}")).args(["-O2", "-o"]).arg(&raw).arg("benches/comm/raw.c").status();
    built.is_ok_and(|status| status.success()).then_some(raw)
}

/// By the name of an exchange and its bytes: the nanoseconds in each round.
type Figures = HashMap<(String, usize), Vec<f64>>;

fn add(figures: &mut Figures, bytes: usize, found: Vec<(String, f64)>) {
    found.into_iter().for_each(|(name, ns)| figures.entry((name, bytes)).or_default().push(ns));
}

struct Mpi {
    launcher: String,
    arguments: &'static [&'static str],
}

impl Mpi {
    /// Returns the names that rank 0 prints, with their nanoseconds.
    fn launch(&self, ranks: u32, program: &Path, words: &[String]) -> Vec<(String, f64)> {
        let mut command = Command::new(&self.launcher);
        command.args(self.arguments).env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env(RANK, "1");
        let output = command.args(["-n", &ranks.to_string()]).arg(program).args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let of_line = |line: &str| {
            let (name, ns) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), ns.parse().unwrap())
        };
        String::from_utf8_lossy(&output.stdout).lines().map(of_line).collect()
    }
}

fn us(figures: &Figures, name: &str, bytes: usize) -> f64 {
    median(&figures[&(name.to_owned(), bytes)]) / 1e3
}

/// Returns the median of what `of` makes of two figures that were taken one after the other.
fn in_turn(one: &[f64], other: &[f64], of: impl Fn(f64, f64) -> f64) -> f64 {
    assert_eq!(one.len(), other.len());
    median(&one.iter().zip(other).map(|(one, other)| of(*one, *other)).collect::<Vec<f64>>())
}

fn exchanges(mpi: &str, theirs: &Figures, ours: &Figures) -> String {
    let mut table =
        Table::new([mpi, "bytes", "C, blocking, µs", "C, same calls, µs", "ours, µs", "ours / same calls", "difference, µs"]);
    for name in ["ping-pong", "all-reduce"] {
        for (bytes, ..) in SIZES {
            let (blocking, same) = (us(theirs, &format!("{name}-blocking"), bytes), us(theirs, name, bytes));
            let key = (name.to_owned(), bytes);
            let ratio = in_turn(&ours[&key], &theirs[&key], |own, same| own / same);
            let more = in_turn(&ours[&key], &theirs[&key], |own, same| own - same) / 1e3;
            let figures = [blocking, same, us(ours, name, bytes), ratio, more].map(|figure| format!("{figure:.2}"));
            table.push([name.to_owned(), bytes.to_string()].into_iter().chain(figures));
        }
    }
    table.markdown()
}

fn whole_programs(mpi: &str, ours: &Figures) -> String {
    let ms = |name| us(ours, name, 0) / 1e3;
    let (work, wait, both) = (ms("compute"), ms("wait"), ms("both"));
    let (one, two) = (ms("solver-1"), ms("solver-2"));
    let [of_one, of_two] = ["solver-1", "solver-2"].map(|name| &ours[&(name.to_owned(), 0)]);
    let faster = in_turn(of_one, of_two, |one, two| one / two);
    let mut table = Table::new([mpi, "alone, ms", "other alone, ms", "together, ms", "of ideal"]);
    let figures = |figures: [f64; 4]| figures.map(|figure| format!("{figure:.2}"));
    table.push(["overlap".to_owned()].into_iter().chain(figures([work, wait, both, f64::max(work, wait) / both])));
    let mut solver = Table::new([mpi, "one rank, ms", "two ranks, ms", "faster"]);
    solver.push(["solver".to_owned()].into_iter().chain([one, two, faster].map(|figure| format!("{figure:.2}"))));
    format!("{}\n\n{}", table.markdown(), solver.markdown())
}
