//! Question: what does recording a timeline cost, when it is on, and when it is not?
//!
//! Method: two shapes of 10⁴ empty nodes, inline and on one worker, without an observer, with one that does
//! nothing, and with a `Timeline`; the three take turns in rounds, the median of the runs of a round, then
//! the median of the rounds. A ratio is to the run without.
//!
//! ```text
//! cargo bench --bench timeline                 prints the table
//! cargo bench --bench timeline -- --write      and writes it into docs/performance.md
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

use anabranch::exec::{Observer, WorkSpan};
use anabranch::{Executor, Graph, Inputs, Plan, Timeline, Value};
use clap::Parser;
use futures::executor::block_on;

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

struct Nobody;

impl Observer for Nobody {
    fn ended(&self, _: &WorkSpan) {}
}

fn main() {
    let args = Args::parse();
    let machine = Machine::now();
    let mut table =
        Table::new(["shape", "workers", "off, ns/node", "an observer, ns/node", "a timeline, ns/node", "ratio of a timeline"]);
    for form in [Form::Chain, Form::Wavefront] {
        for workers in [0, 1] {
            let plan = plan(form);
            let mut rounds: [Vec<f64>; 3] = Default::default();
            for _ in 0..ROUNDS {
                for (kind, times) in rounds.iter_mut().enumerate() {
                    times.push(round(&plan, workers, kind));
                }
            }
            let [off, observed, timeline] = rounds.map(|round| median(&round));
            let workers = if workers == 0 { "inline".to_owned() } else { workers.to_string() };
            let ns = |ns: f64| format!("{ns:.1}");
            table.push([form.to_string(), workers, ns(off), ns(observed), ns(timeline), ns(timeline / off)]);
        }
    }
    let report = format!("{}\n\n{}", machine.text(), table.markdown());
    args.output.publish("bench:timeline", &report);
}

/// Returns the median time of some runs, in ns per node.
fn round(plan: &Plan, workers: usize, kind: usize) -> f64 {
    let observer: Option<Arc<dyn Observer>> = match kind {
        0 => None,
        1 => Some(Arc::new(Nobody)),
        _ => Some(Arc::new(Timeline::new(RUNS * NODES * 2))),
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
