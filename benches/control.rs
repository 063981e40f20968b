//! Question: what does an iteration of a loop cost, compared with one run for each iteration?
//!
//! Method: loops of small nodes on numbers; the time of a run divided by its iterations, which are so many
//! that the run itself does not count. Inline, and on one and two workers. The peer awaits a run of a plan
//! with the same nodes for each iteration, as one would without loops. They take turns. A figure is the
//! shortest of many short rounds, because other processes only ever add time. Allocations are those that a
//! run of twice as many iterations makes beyond one, divided by the iterations.
//!
//! ```text
//! cargo bench --bench control                 prints the table
//! cargo bench --bench control -- --write      and writes it into docs/performance/control.md
//! ```

#[path = "run/report/machine.rs"]
mod machine;
#[path = "run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "run/report/table.rs"]
#[allow(dead_code)]
mod table;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anabranch::graph::times;
use anabranch::policy::Single;
use anabranch::{Executor, Graph, Plan, Value, inputs, take};
use clap::Parser;
use futures::executor::block_on;

use crate::machine::Machine;
use crate::markers::Output;
use crate::table::Table;

const ROUNDS: usize = 101;
/// The budget of an iteration of one node inline.
const BUDGET_NS: f64 = 100.0;

/// Measures the cost of iterations.
#[derive(Parser)]
struct Args {
    /// Iterations of a run.
    #[arg(long, default_value_t = 10_000)]
    iterations: u64,
    /// Only the iterations whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    output: Output,
}

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Adds the nodes of an iteration, which change a number.
type Step = fn(&mut Graph, Value<f64>) -> Value<f64>;

const STEPS: [(&str, Step); 5] = [
    ("one node", |b, x| add(b, "add", &x)),
    ("one node that takes", |b, x| b.task("add", take(&x), |x: f64| x + 1.0)),
    ("four nodes, two of them beside each other", |b, x| {
        let (left, right) = (add(b, "left", &x), add(b, "right", &x));
        let sum = b.task("sum", (&left, &right), |a: &f64, b: &f64| a + b);
        add(b, "last", &sum)
    }),
    ("a branch", |b, x| {
        let which = b.task("which", &x, |x: &f64| usize::from(*x > 1e9));
        b.branch("branch", &which, take(&x)).arm(|a, x| add(a, "up", &x)).arm(|_, x| x).join()
    }),
    ("a loop of ten iterations", |b, x| b.repeat("inner", take(&x), times(10), |b, x| add(b, "add", &x))),
];

fn add(g: &mut Graph, name: &'static str, x: &Value<f64>) -> Value<f64> {
    g.task(name, x, |x: &f64| x + 1.0)
}

/// A plan of a loop.
fn looped(step: Step, has_condition: bool, iterations: u64) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<f64>("x");
    let x = match has_condition {
        false => g.repeat("loop", take(&x), times(iterations), step),
        true => {
            let n = g.task("n", (), || 0u64);
            let count = |b: &mut Graph, n: &Value<u64>| b.task("count", n, |n: &u64| n + 1);
            let more = move |n: &u64| *n < iterations;
            let body = |b: &mut Graph, (x, n): (Value<f64>, Value<u64>)| (step(b, x), count(b, &n));
            g.repeat("loop", (take(&x), take(&n)), |c, (_, n)| c.task("more", &n, more), body).0
        }
    };
    let end = g.task("end", &x, |x: &f64| *x);
    g.output("x", &end);
    g.compile_with(&Single).expect("it is right")
}

/// A plan of one iteration.
fn single(step: Step) -> Plan {
    let mut g = Graph::new();
    let x = g.input::<f64>("x");
    let x = step(&mut g, x);
    let end = g.task("end", &x, |x: &f64| *x);
    g.output("x", &end);
    g.compile_with(&Single).expect("it is right")
}

fn run(exec: &Executor, plan: &Plan, x: f64) -> f64 {
    *block_on(exec.run(plan, inputs! { "x" => x })).and_then(|mut outputs| outputs.take("x")).expect("nothing fails")
}

/// Returns the ns of each iteration.
fn time(iterations: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / iterations as f64
}

/// Returns the allocations of each iteration.
fn allocations(exec: &Executor, step: Step, has_condition: bool) -> f64 {
    let of = |iterations| {
        let plan = looped(step, has_condition, iterations);
        let counted = |_| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            run(exec, &plan, 0.0);
            ALLOCATIONS.load(Ordering::Relaxed) - before
        };
        (0..5).map(counted).min().unwrap_or_default()
    };
    // So few iterations end within one poll. Another poll would allocate.
    (of(400) as f64 - of(200) as f64) / 200.0
}

fn main() {
    let args = Args::parse();
    let machine = Machine::now();
    let mut table = Table::new(["an iteration of", "condition", "workers", "ns", "run by run, ns", "allocations", "budget, ns"]);
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).build().expect("threads start");
        let conditions = [(0, false), (0, true), (1, false), (2, false), (3, false), (4, false)];
        for (which, has_condition) in conditions {
            let (name, step) = STEPS[which];
            if !name.contains(&args.only) {
                continue;
            }
            let iterations = args.iterations;
            let (plan, single) = (looped(step, has_condition, iterations), single(step));
            let apart = iterations / if workers == 0 { 10 } else { 100 };
            let rounds: Vec<[f64; 2]> = (0..ROUNDS)
                .map(|_| {
                    let ours = time(iterations, || _ = run(&exec, &plan, 0.0));
                    [ours, time(apart, || _ = (0..apart).fold(0.0, |x, _| run(&exec, &single, x)))]
                })
                .collect();
            let [ours, theirs] = [0, 1].map(|which| rounds.iter().map(|round| round[which]).fold(f64::INFINITY, f64::min));
            let is_met = if ours <= BUDGET_NS { "met" } else { "missed" };
            table.push([
                name.to_owned(),
                if has_condition { "a node" } else { "times" }.to_owned(),
                if workers == 0 { "inline".to_owned() } else { workers.to_string() },
                format!("{ours:.0}"),
                format!("{theirs:.0}"),
                format!("{:.2}", allocations(&exec, step, has_condition)),
                if workers == 0 && which == 0 && !has_condition { format!("≤ {BUDGET_NS:.0} {is_met}") } else { String::new() },
            ]);
        }
    }
    let text = format!("{}\n\n{} iterations a run, {ROUNDS} rounds.\n\n{}", machine.text(), args.iterations, table.markdown());
    args.output.publish("bench:control", &text);
}
