//! Question: what does it cost to observe nodes: with an observer that does nothing, a timeline, spans of
//! `tracing` (in a registry that writes nothing), metrics (in the recorder of a Prometheus exporter)? And how
//! large is a trace?
//!
//! Method: two shapes of 10⁴ empty nodes, inline and on one worker; the observers take turns in rounds. A
//! figure is the median of the runs of a round, then of the rounds.
//!
//! ```text
//! cargo bench --all-features --bench timeline                 prints the table
//! cargo bench --all-features --bench timeline -- --write      writes docs/performance/timeline.md, too
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

use std::sync::Arc;
use std::time::Instant;

use anabranch::exec::{Metrics, Observer, Tracing, WorkSpan};
use anabranch::{Executor, Graph, Inputs, Plan, Timeline, Value};
use clap::Parser;
use futures::executor::block_on;
use metrics_exporter_prometheus::PrometheusBuilder;
use tracing_subscriber::util::SubscriberInitExt;

use crate::machine::Machine;
use crate::markers::Output;
use crate::shapes::Form;
use crate::table::{Table, median};

const ROUNDS: usize = 9;
const RUNS: usize = 21;
const NODES: usize = 10_000;

/// Measures the cost of timelines.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    output: Output,
}

/// The observers that are compared.
#[derive(Clone, Copy)]
enum Kind {
    Off,
    Nothing,
    Timeline,
    Tracing,
    Metrics,
}

const KINDS: [Kind; 5] = [Kind::Off, Kind::Nothing, Kind::Timeline, Kind::Tracing, Kind::Metrics];

fn main() {
    let args = Args::parse();
    let machine = Machine::now();
    // Without names: 10⁴ nodes of different names would be 10⁴ series of metrics.
    PrometheusBuilder::new().install_recorder().expect("there is no recorder yet");
    // Keeps spans, and writes nothing.
    tracing_subscriber::registry().init();
    let mut table = Table::new(["shape", "workers", "off, ns/node", "an observer", "a timeline", "tracing", "metrics"]);
    for form in [Form::Chain, Form::Wavefront] {
        for workers in [0, 1] {
            let plan = plan(form);
            let mut rounds: [Vec<f64>; 5] = Default::default();
            for _ in 0..ROUNDS {
                for (kind, times) in KINDS.into_iter().zip(&mut rounds) {
                    times.push(round(&plan, workers, kind));
                }
            }
            let ns = rounds.map(|round| format!("{:.1}", median(&round)));
            let workers = if workers == 0 { "inline".to_owned() } else { workers.to_string() };
            table.push([form.to_string(), workers].into_iter().chain(ns));
        }
    }
    let report = format!("{}\n\n{}\n{}", machine.text(), table.markdown(), size_of_traces());
    args.output.publish("bench:timeline", &report);
}

/// Returns the median time of some runs, in ns per node.
fn round(plan: &Plan, workers: usize, kind: Kind) -> f64 {
    let observer: Option<Arc<dyn Observer>> = match kind {
        Kind::Off => None,
        Kind::Nothing => Some(Arc::new(|_: &WorkSpan| ())),
        Kind::Timeline => Some(Arc::new(Timeline::new(RUNS * NODES * 2))),
        Kind::Tracing => Some(Arc::new(Tracing::new())),
        Kind::Metrics => Some(Arc::new(Metrics::new().without_names())),
    };
    let builder = Executor::builder().workers(workers);
    let builder = if let Some(observer) = observer { builder.observer(observer) } else { builder };
    let exec = builder.build().expect("a worker can be started");
    let run = || block_on(exec.run(plan, Inputs::new())).expect("empty nodes do not fail");
    run();
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e9 / NODES as f64
    });
    median(&times.collect::<Vec<_>>())
}

/// Returns the sizes of a trace and of a picture of a million spans, as text.
fn size_of_traces() -> String {
    let timeline = Arc::new(Timeline::new(1_000_000));
    let exec = Executor::builder().workers(1).observer(timeline.clone()).build().expect("a worker can be started");
    let plan = plan(Form::Wavefront);
    // Each run has a span of its own.
    (0..100).for_each(|_| _ = block_on(exec.run(&plan, Inputs::new())).expect("empty nodes do not fail"));
    let timed = |make: &dyn Fn() -> usize| {
        let start = Instant::now();
        (make() as f64 / 1e6, start.elapsed().as_secs_f64())
    };
    let (trace, trace_s) = timed(&|| timeline.to_perfetto().len());
    let (picture, picture_s) = timed(&|| timeline.to_svg().len());
    format!(
        "\nOf a million spans, the trace has {trace:.0} MB and takes {trace_s:.1} s, \
         the picture has {picture:.1} MB and takes {picture_s:.1} s."
    )
}

fn plan(form: Form) -> Plan {
    let shape = form.shape(NODES);
    let mut graph = Graph::new();
    let mut nodes: Vec<Value<()>> = Vec::new();
    for node in shape.nodes() {
        let value = graph.task(node.to_string(), (), || {});
        shape.preds(node).iter().for_each(|&pred| graph.order(&nodes[pred as usize], &value));
        nodes.push(value);
    }
    graph.compile().expect("shapes are valid graphs")
}
