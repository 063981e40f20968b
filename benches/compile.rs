//! Question: what does compiling a graph cost, in time and in memory, from 10³ to 10⁶ nodes?
//!
//! Method: five shapes of graph with empty tasks and the default use of the builder; `Graph::compile` with
//! the default policy, `Ranked`, is timed. A figure is the median of some rounds. Bytes are those that
//! compiling allocates beyond the graph: its peak, and the part that the plan keeps. A global allocator
//! counts them, so the times include the counting (a few percent).
//!
//! Then every policy on the same shapes with all nodes on the GPU: `Shape::schedule`, the policy and the
//! waits. A size is left out if the previous size predicts more than half a minute.
//!
//! ```text
//! cargo bench --bench compile                 all sizes
//! cargo bench --bench compile -- --quick      10⁶ nodes only: the size that the budget is about
//! cargo bench --bench compile -- --write      and the report into docs/performance/compile.md
//! ```

#[path = "run/report/machine.rs"]
mod machine;
#[path = "run/report/markers.rs"]
#[allow(dead_code)]
mod markers;
#[path = "run/shapes.rs"]
#[allow(dead_code)]
mod shapes;
#[path = "run/report/table.rs"]
#[allow(dead_code)]
mod table;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anabranch::graph::Backend;
use anabranch::policy::{CriticalPath, MinStreams, PerBackend, PerOperator, Policy, ReadySet, Single};
use anabranch::{Graph, Ranked, Value};
use clap::Parser;

use crate::machine::Machine;
use crate::markers::Output;
use crate::shapes::{Form, Shape};
use crate::table::Table;

/// Budgets, for 10⁶ nodes.
const SECONDS_MAX: f64 = 2.0;
const BYTES_PER_NODE_MAX: f64 = 500.0;

/// Measures the cost of compiling.
#[derive(Parser)]
struct Args {
    /// Only graphs of 10^6 nodes.
    #[arg(long)]
    quick: bool,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
}

/// One line of the table.
struct Figures {
    seconds: f64,
    peak_per_node: f64,
    kept_per_node: f64,
    streams: u32,
    waits: usize,
}

fn main() {
    let args = Args::parse();
    let machine = Machine::now();
    let sizes: &[usize] = if args.quick { &[1_000_000] } else { &[1_000, 10_000, 100_000, 1_000_000] };
    let head = ["shape", "nodes", "edges", "streams", "waits", "ms", "ns/node", "peak B/node", "kept B/node", "budget"];
    let mut table = Table::new(head);
    for form in Form::ALL {
        for &size in sizes {
            let shape = form.shape(size);
            table.push(row(&shape, &measure(&shape, args.rounds)));
        }
    }
    let policies = policies_table(sizes, args.rounds);
    let report = format!("{}\n\n{}\n\n{}", machine.text(), table.markdown(), policies.markdown());
    args.output.publish("bench:compile", &report);
}

/// All policies on all shapes: milliseconds by size, and bytes per node of the largest.
fn policies_table(sizes: &[usize], rounds: usize) -> Table {
    let head = ["shape", "policy"].map(String::from).into_iter();
    let head = head
        .chain(sizes.iter().map(|size| format!("{size} nodes, ms")))
        .chain(["streams", "waits", "peak B/node"].map(String::from));
    let mut table = Table::new(head);
    let policies: [&dyn Policy; 7] =
        [&Single, &PerBackend, &PerOperator, &ReadySet, &Ranked::default(), &MinStreams, &CriticalPath::default().streams(8)];
    for form in Form::ALL {
        for policy in policies {
            let (mut cells, mut last): (Vec<String>, Option<Figures>) = (vec![form.to_string(), policy.name().to_owned()], None);
            for &size in sizes {
                // Quadratic at worst: then the next size takes a hundred times as long.
                if last.as_ref().is_some_and(|last| last.seconds > 5.0) {
                    cells.push("–".to_owned());
                    continue;
                }
                let shape = form.shape(size);
                let figures = measure_policy(&gpu_shape(&shape), policy, rounds);
                cells.push(format!("{:.1}", figures.seconds * 1e3));
                last = Some(figures);
            }
            let last = last.expect("there is a size");
            cells.extend([last.streams.to_string(), last.waits.to_string(), format!("{:.0}", last.peak_per_node)]);
            table.push(cells);
        }
    }
    table
}

fn measure_policy(shape: &anabranch::graph::Shape, policy: &dyn Policy, rounds: usize) -> Figures {
    let mut figures: Vec<Figures> = (0..rounds.max(1))
        .map(|_| {
            let before = COUNTER.reset_peak();
            let start = Instant::now();
            let schedule = shape.schedule_with(policy).expect("shapes are valid graphs");
            let seconds = start.elapsed().as_secs_f64();
            let per_node = |bytes: usize| bytes.saturating_sub(before) as f64 / shape.nodes().len() as f64;
            Figures {
                seconds,
                peak_per_node: per_node(COUNTER.peak.load(Ordering::Relaxed)),
                kept_per_node: per_node(COUNTER.now.load(Ordering::Relaxed)),
                streams: schedule.streams(),
                waits: schedule.waits(),
            }
        })
        .collect();
    figures.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    figures.swap_remove(figures.len() / 2)
}

fn gpu_shape(shape: &Shape) -> anabranch::graph::Shape {
    let mut gpu = anabranch::graph::Shape::new();
    let mut ids = Vec::with_capacity(shape.len());
    for node in shape.nodes() {
        let id = gpu.node(node.to_string(), Backend::Gpu);
        shape.preds(node).iter().for_each(|&pred| gpu.read(ids[pred as usize], 0, id));
        ids.push(id);
    }
    gpu
}

fn measure(shape: &Shape, rounds: usize) -> Figures {
    let graph = graph(shape);
    let mut figures: Vec<Figures> = (0..rounds.max(1)).map(|_| compile(&graph, shape.len())).collect();
    figures.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    figures.swap_remove(figures.len() / 2)
}

fn compile(graph: &Graph, nodes: usize) -> Figures {
    let before = COUNTER.reset_peak();
    let start = Instant::now();
    let plan = graph.compile().expect("shapes are valid graphs");
    let seconds = start.elapsed().as_secs_f64();
    let per_node = |bytes: usize| bytes.saturating_sub(before) as f64 / nodes as f64;
    Figures {
        seconds,
        peak_per_node: per_node(COUNTER.peak.load(Ordering::Relaxed)),
        kept_per_node: per_node(COUNTER.now.load(Ordering::Relaxed)),
        streams: plan.schedule().streams(),
        waits: plan.schedule().waits(),
    }
}

fn graph(shape: &Shape) -> Graph {
    let mut graph = Graph::new();
    let mut nodes: Vec<Value<()>> = Vec::with_capacity(shape.len());
    for node in shape.nodes() {
        let value = graph.task(node.to_string(), (), || {});
        shape.preds(node).iter().for_each(|&pred| graph.order(&nodes[pred as usize], &value));
        nodes.push(value);
    }
    graph
}

fn row(shape: &Shape, figures: &Figures) -> Vec<String> {
    let nodes = shape.len();
    let edges: usize = shape.nodes().map(|node| shape.preds(node).len()).sum();
    let is_met = figures.seconds <= SECONDS_MAX && figures.peak_per_node <= BYTES_PER_NODE_MAX;
    let budget = match nodes >= 900_000 {
        true if is_met => "≤ 2 s, ≤ 500 B met",
        true => "≤ 2 s, ≤ 500 B **missed**",
        false => "",
    };
    vec![
        shape.form.to_string(),
        nodes.to_string(),
        edges.to_string(),
        figures.streams.to_string(),
        figures.waits.to_string(),
        format!("{:.1}", figures.seconds * 1e3),
        format!("{:.0}", figures.seconds * 1e9 / nodes as f64),
        format!("{:.0}", figures.peak_per_node),
        format!("{:.0}", figures.kept_per_node),
        budget.to_owned(),
    ]
}

/// Counts live bytes and their peak.
struct Counter {
    now: AtomicUsize,
    peak: AtomicUsize,
}

#[global_allocator]
static COUNTER: Counter = Counter { now: AtomicUsize::new(0), peak: AtomicUsize::new(0) };

impl Counter {
    /// Returns the live bytes, from which the next peak is counted.
    fn reset_peak(&self) -> usize {
        let now = self.now.load(Ordering::Relaxed);
        self.peak.store(now, Ordering::Relaxed);
        now
    }

    fn grow(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.grow(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.shrink(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.grow(size);
        self.shrink(layout.size());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
