//! Growth of the cost of a node with the size of the graph, all else being equal. At every size, enough runs
//! are in flight to keep the workers busy. Their graphs differ, so that the processor's predictors cannot
//! learn one of them.
//!
//! A single run of a small graph costs more per node on workers, because of its one hand-over. The tables of
//! whole runs show that.

use std::time::{Duration, Instant};

use anabranch::policy::PerOperator;
use anabranch::{Executor, Inputs, Plan};
use futures::executor::block_on;
use futures::stream::{self, StreamExt};

use crate::Args;
use crate::ours::graph;
use crate::peers::{Payload, Workers};
use crate::quiet::Quiet;
use crate::report::{Machine, Table, at_most, median, show, spread};
use crate::shapes::{Form, SEED};

/// The least number of nodes in flight: small graphs run several at once.
const NODES_IN_FLIGHT: usize = 64_000;
/// Nodes run per figure.
const NODES_PER_FIGURE: usize = 5_000_000;

/// The largest allowed growth of the cost of a node: the budget of DESIGN.md, section 6.
const GROWTH_MAX: f64 = 2.0;

/// The cost of a node for one form of graph, by the size of the graph.
struct Row {
    form: Form,
    workers: Workers,
    sizes: Vec<Size>,
}

/// In ns per node, one figure per round.
#[derive(Default)]
struct Size {
    busy: Vec<f64>,
    /// Of one run at a time.
    lone: Vec<f64>,
}

/// Returns the report as Markdown.
pub(crate) fn report(args: &Args) -> String {
    let (machine, mut quiet) = (Machine::now(), Quiet::default());
    let rows: Vec<Row> = args.shapes.iter().flat_map(|&form| measure(form, args, &mut quiet)).collect();
    let method = format!(
        "Method: ns per node, the time of all runs divided by all nodes; median of {} interleaved rounds (smallest–largest). At every size \
         {NODES_IN_FLIGHT} nodes are in flight, or one graph, all of them different (random graphs: SplitMix64, seeds from {SEED:#x}); \
         each figure is {NODES_PER_FIGURE} nodes or more. A lone run is awaited before the next is made.",
        args.rounds
    );
    [format!("{} {}", machine.text(), quiet.text()), method, table(&rows, &args.sizes).markdown()].join("\n\n")
}

/// Measures all sizes of one form, round after round.
fn measure(form: Form, args: &Args, quiet: &mut Quiet) -> Vec<Row> {
    let plans: Vec<Vec<Plan>> = args.sizes.iter().map(|&size| plans(form, size)).collect();
    let sizes = || args.sizes.iter().map(|_| Size::default()).collect();
    let mut rows: Vec<Row> = args.workers.iter().map(|&workers| Row { form, workers, sizes: sizes() }).collect();
    for _ in 0..args.rounds {
        for row in &mut rows {
            for (size, plans) in row.sizes.iter_mut().zip(&plans) {
                size.busy.extend(quiet.take(|| Some(node_ns(plans, row.workers))));
                size.lone.extend(quiet.take(|| Some(node_ns(&plans[..1], row.workers))));
            }
        }
    }
    rows
}

fn table(rows: &[Row], sizes: &[usize]) -> Table {
    let head = ["shape", "workers"].into_iter().map(str::to_owned);
    let head = head.chain(sizes.iter().map(|size| format!("{size} nodes")));
    let verdicts = ["largest/smallest", "budget", "lone runs: largest/smallest"].map(str::to_owned);
    let mut table = Table::new(head.chain(verdicts));
    for row in rows {
        let [busy, lone] = [|size: &Size| median(&size.busy), |size: &Size| median(&size.lone)]
            .map(|figure| largest_over_smallest(row.sizes.iter().map(figure)));
        let cells = [row.form.to_string(), row.workers.to_string()].into_iter();
        let cells = cells.chain(row.sizes.iter().map(|size| spread(&size.busy)));
        table.push(cells.chain([show(busy), at_most(busy, GROWTH_MAX), show(lone)]));
    }
    table
}

fn largest_over_smallest(costs: impl Iterator<Item = f64>) -> Option<f64> {
    let costs: Vec<f64> = costs.collect();
    let [least, most] = [f64::min, f64::max].map(|pick| costs.iter().copied().reduce(pick));
    Some(most? / least?)
}

/// Returns different graphs of one form and size, one for each run in flight.
fn plans(form: Form, size: usize) -> Vec<Plan> {
    let count = (NODES_IN_FLIGHT / size).max(1) as u64;
    let shapes = (0..count).map(|number| form.seeded_shape(size, SEED + number));
    let graphs = shapes.map(|shape| graph(&shape, Payload::Empty, Duration::ZERO));
    graphs.map(|graph| graph.compile_with(&PerOperator).expect("shapes are valid graphs")).collect()
}

fn node_ns(plans: &[Plan], workers: Workers) -> f64 {
    let exec = Executor::builder().workers(workers.threads()).build().expect("an executor starts");
    // A wavefront's size is the square nearest to the requested size.
    let nodes: usize = plans.iter().map(|plan| plan.schedule().shape().nodes().len()).sum();
    run_all(&exec, plans, 1);
    let rounds = NODES_PER_FIGURE.div_ceil(nodes);
    let start = Instant::now();
    run_all(&exec, plans, rounds);
    let took = start.elapsed().as_nanos() as f64;
    block_on(exec.shutdown()).expect("nothing runs any more");
    took / (rounds * nodes) as f64
}

/// Runs the plans in turn, `rounds` times each, all of them in flight at any time.
fn run_all(exec: &Executor, plans: &[Plan], rounds: usize) {
    let turns = plans.iter().cycle().take(rounds * plans.len());
    let runs = stream::iter(turns).map(|plan| exec.run(plan, Inputs::new())).buffer_unordered(plans.len());
    block_on(runs.for_each(async |ended| drop(ended.expect("no node fails"))));
}
