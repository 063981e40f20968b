//! Question: what does small work cost: a run of few nodes, a call, a step, an operation, a hand-over?
//!
//! Method: each row repeats one small piece of work; a figure is the time of one repetition. In each of nine
//! rounds, ours takes turns with oneTBB, Taskflow, tokio tasks, and an earlier build of this bench. The table
//! has the median. A disturbed figure is measured again (`run/quiet.rs`). `share of ideal` is the time that
//! the nodes alone take on two threads, divided by the measured time. Work is a number of dependent
//! multiplications, which takes as long in C++; their number is calibrated first. A peer has as many threads
//! as we have workers; oneTBB's include the waiting thread, which works too.
//!
//! ```text
//! cargo bench --bench small                                prints the table
//! cargo bench --bench small -- --write                     and writes it into docs/performance/small.md
//! cargo bench --bench small -- --before PROGRAM            beside an earlier build: `target/release/deps/small-…`
//! TASKFLOW_DIR=…/taskflow cargo bench --bench small        beside Taskflow, a folder with `taskflow/taskflow.hpp`
//! ```

#[path = "../peers/cpp.rs"]
mod cpp;
#[path = "../run/report/machine.rs"]
mod machine;
#[path = "../run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
mod ours;
mod polls;
#[path = "../run/quiet.rs"]
#[allow(dead_code)]
mod quiet;
mod rows;
#[path = "../run/report/table.rs"]
#[allow(dead_code)]
mod table;
mod tokio_tasks;
#[path = "../vars/ours.rs"]
mod vars;
mod work;
#[path = "../vars/workload.rs"]
#[allow(dead_code)]
mod workload;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;

use crate::machine::{Machine, core_to_core_ns};
use crate::markers::Output;
use crate::quiet::Quiet;
use crate::rows::Row;
use crate::table::{Table, median};
use crate::work::Work;

const MARKERS: &str = "bench:small";

/// Measures the cost of small work.
#[derive(Parser)]
struct Args {
    /// Only the rows whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// An earlier build of this bench.
    #[arg(long)]
    before: Option<PathBuf>,
    /// Prints our figure of this row alone. A later build calls an earlier one with it.
    #[arg(long, hide = true)]
    row: Option<String>,
    /// The multiplications that take 50 ns.
    #[arg(long, hide = true)]
    work: Option<u64>,
    #[command(flatten)]
    output: Output,
}

/// The peers of a row.
struct Peers {
    before: Option<PathBuf>,
    tbb: Option<PathBuf>,
    taskflow: Option<PathBuf>,
}

fn main() {
    let args = Args::parse();
    let work = args.work.map_or_else(Work::calibrated, Work::new);
    if let Some(name) = &args.row {
        let row = rows::ALL.iter().find(|row| row.name == name);
        // An earlier build may lack a row of a later one.
        println!("{}", row.map_or(f64::NAN, |row| ours::figure(row, work)));
        return;
    }
    let machine = Machine::now();
    let peers = Peers { before: args.before, tbb: cpp::tbb("small"), taskflow: cpp::taskflow("small") };
    if peers.tbb.is_none() {
        eprintln!("{}", cpp::HINT);
    }
    let head = ["", "workers", "ours", "before", "oneTBB", "Taskflow", "tokio tasks", "core to core, ns", "budget"];
    let (mut table, mut quiet) = (Table::new(head), Quiet::default());
    for row in rows::ALL.iter().filter(|row| row.name.contains(&args.only)) {
        table.push(measured(row, work, &peers, args.rounds, &mut quiet));
    }
    let polls = if args.only.is_empty() { polls::table(work).markdown() } else { String::new() };
    let text = format!(
        "{} {}\n\nIn ns, but for shares; the median of {} rounds and, in brackets, the best one. 50 ns are {} multiplications.\n\n{}\n\nThe polls of one task, in µs:\n\n{}",
        machine.text(),
        quiet.text(),
        args.rounds,
        work.unit(),
        table.markdown(),
        polls
    );
    args.output.publish(MARKERS, &text);
}

/// Measures one line of the table.
fn measured(row: &Row, work: Work, peers: &Peers, rounds: usize, quiet: &mut Quiet) -> [String; 9] {
    let mut round = |_| {
        let mut take = |figure: &dyn Fn() -> Option<f64>| quiet.take(figure).unwrap_or(f64::NAN);
        let ours = take(&|| Some(ours::figure(row, work)));
        let tokio = take(&|| tokio_tasks::figure(row, work));
        // A missing peer is not measured, so it needs no quiet machine.
        let mut of = |program: &Option<PathBuf>, figure: &dyn Fn(&Path) -> f64| {
            program.as_deref().map_or(f64::NAN, |program| take(&|| Some(figure(program))))
        };
        let before = of(&peers.before, &|program| row.before(program, work));
        let by_peer = |program: &Path| row.by_peer(program, work);
        [ours, before, of(&peers.tbb, &by_peer), of(&peers.taskflow, &by_peer), tokio, core_to_core_ns()]
    };
    let rounds: Vec<[f64; 6]> = (0..rounds).map(&mut round).collect();
    let of = |which: usize| rounds.iter().map(|round| round[which]).collect::<Vec<f64>>();
    let is_there = [true, peers.before.is_some(), peers.tbb.is_some(), peers.taskflow.is_some(), true];
    let cell = |which: usize| {
        if !is_there[which] {
            return "not measured".to_owned();
        }
        let figures = of(which);
        let best = figures.iter().copied().reduce(if row.is_share() { f64::max } else { f64::min }).unwrap_or(f64::NAN);
        let middle = median(&figures);
        if middle.is_nan() { "–".to_owned() } else { format!("{} ({})", row.text(middle), row.text(best)) }
    };
    let workers = if row.workers == 0 { "inline".to_owned() } else { row.workers.to_string() };
    let apart = format!("{:.0}", median(&of(5)));
    [row.name.to_owned(), workers, cell(0), cell(1), cell(2), cell(3), cell(4), apart, row.verdict(median(&of(0)))]
}

impl Row {
    /// Runs an earlier build of this bench.
    fn before(&self, program: &Path, work: Work) -> f64 {
        number(Command::new(program).args(["--row", self.name, "--work", &work.unit().to_string()]))
    }

    /// Runs a program in C++.
    fn by_peer(&self, program: &Path, work: Work) -> f64 {
        let Some(name) = self.peer else { return f64::NAN };
        let threads = self.workers.max(1).to_string();
        let nodes_ns = number(Command::new(program).args([name, &threads, &work.unit().to_string()]));
        self.figure(nodes_ns, work)
    }
}

/// Returns the number that a program prints.
fn number(command: &mut Command) -> f64 {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("{command:?}: {}{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}
