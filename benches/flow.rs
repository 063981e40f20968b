//! Question: what does an iteration of async control flow cost, compared with the same as a tokio task for
//! each step?
//!
//! Method: loops on a number. Each iteration pushes a step (an addition) and awaits its value before it
//! decides to go on. A figure is the time from the first poll of the flow to its end, divided by the
//! iterations. Inline, and on one and two workers. The peer spawns each step on a runtime of as many threads
//! (a current-thread runtime beside the inline executor) and awaits it. They take turns; a figure is the
//! median of the rounds. A disturbed figure is measured again (`run/quiet.rs`). How long a cache line takes
//! from core to core is measured in each round, too: a virtual machine's cores may move. A step is cheap.
//! Once that is known, the thread that awaits it runs it. On workers, tokio's threads wake each other for
//! each step.
//!
//! ```text
//! cargo bench --bench flow                 prints the table
//! cargo bench --bench flow -- --write      and writes it into docs/performance/flow.md
//! ```

#[path = "run/report/machine.rs"]
mod machine;
#[path = "run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "flow/programs.rs"]
mod programs;
#[path = "run/quiet.rs"]
#[allow(dead_code)]
mod quiet;
#[path = "run/report/table.rs"]
#[allow(dead_code)]
mod table;

use std::time::Instant;

use anabranch::Executor;
use clap::Parser;
use tokio::runtime::Runtime;

use crate::machine::{Machine, core_to_core_ns};
use crate::markers::Output;
use crate::programs::Program;
use crate::quiet::Quiet;
use crate::table::{Table, median};

const ROUNDS: usize = 7;

/// Measures the cost of control flow.
#[derive(Parser)]
struct Args {
    /// Iterations of a round.
    #[arg(long, default_value_t = 10_000)]
    iterations: u64,
    #[command(flatten)]
    output: Output,
}

fn main() {
    let args = Args::parse();
    let machine = Machine::now();
    let mut table =
        Table::new(["program", "workers", "ours, ns", "tokio tasks, ns", "ours/tokio's", "core to core, ns", "budget, ns"]);
    let mut quiet = Quiet::default();
    for program in Program::ALL {
        for workers in [0, 1, 2] {
            table.push(measured(program, workers, args.iterations, &mut quiet));
        }
    }
    let text = format!(
        "{}\n\n{} iterations a round, {ROUNDS} rounds. {}\n\n{}",
        machine.text(),
        args.iterations,
        quiet.text(),
        table.markdown()
    );
    args.output.publish("bench:flow", &text);
}

fn measured(program: Program, workers: usize, iterations: u64, quiet: &mut Quiet) -> [String; 7] {
    let exec = Executor::builder().workers(workers).build().expect("threads start");
    let runtime = runtime(workers);
    let mut per_iteration = |run: &dyn Fn() -> bool| {
        let figure = quiet.take(|| {
            let start = Instant::now();
            run().then(|| start.elapsed().as_nanos() as f64 / iterations as f64)
        });
        figure.unwrap_or(f64::NAN)
    };
    let mut round = |_| {
        let ours = per_iteration(&|| {
            program.run(&exec, iterations);
            true
        });
        [ours, per_iteration(&|| program.run_peer(&runtime, iterations)), core_to_core_ns()]
    };
    let rounds: Vec<[f64; 3]> = (0..ROUNDS).map(&mut round).collect();
    let [ours, theirs, apart] = [0, 1, 2].map(|which| median(&rounds.iter().map(|round| round[which]).collect::<Vec<_>>()));
    let ratio = median(&rounds.iter().map(|round| round[0] / round[1]).collect::<Vec<_>>());
    let known = |number: f64, text: String| if number.is_nan() { String::new() } else { text };
    let budget = program
        .budget_ns(workers)
        .map_or(String::new(), |budget| format!("≤ {budget} {}", if ours <= budget as f64 { "met" } else { "missed" }));
    [
        program.name().to_owned(),
        if workers == 0 { "inline".to_owned() } else { workers.to_string() },
        format!("{ours:.0}"),
        known(theirs, format!("{theirs:.0}")),
        known(theirs, format!("{ratio:.3}")),
        format!("{apart:.0}"),
        budget,
    ]
}

fn runtime(workers: usize) -> Runtime {
    let runtime = match workers {
        0 => tokio::runtime::Builder::new_current_thread().build(),
        threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build(),
    };
    runtime.expect("threads start")
}
