//! Anabranch's pipelines, as two of the peers: in one phase, and with a phase for each task.

use std::fmt;
use std::time::Duration;

use anabranch::pipe::Phases;
use anabranch::{Executor, Graph, Inputs, Pipeline, Ranked, Value};
use futures::executor::block_on;
use futures::stream::{self, Stream, StreamExt};

use crate::chain::Chain;
use crate::paced::{item_ns, spin};
use crate::peers::Peer;

/// How a pipeline is split into phases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    One,
    /// Not inline, where a pipeline is in one phase anyway.
    Each,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::One => "one",
            Self::Each => "each",
        })
    }
}

/// Returns the combinations to measure for these numbers of workers.
pub(crate) fn splits(workers: &[usize]) -> impl Iterator<Item = (usize, Split)> {
    let all = workers.iter().flat_map(|&workers| [(workers, Split::One), (workers, Split::Each)]);
    all.filter(|&(workers, split)| workers > 0 || split == Split::One)
}

/// Where the results are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// On the waiting thread, in addition to the workers.
    Beside,
    /// In a future on the workers, as the tokio chain does.
    OnWorkers,
}

pub(crate) struct Ours(pub(crate) Split, pub(crate) Consumer);

impl Peer for Ours {
    fn name(&self) -> &'static str {
        match (self.0, self.1) {
            (Split::One, Consumer::Beside) => "ours, one phase",
            (Split::Each, Consumer::Beside) => "ours, a phase each",
            (Split::One, Consumer::OnWorkers) => "ours on workers, one phase",
            (Split::Each, Consumer::OnWorkers) => "ours on workers, a phase each",
        }
    }

    fn run(&mut self, chain: &Chain, target: Duration) -> Option<f64> {
        if chain.workers == 0 && (self.0 == Split::Each || self.1 == Consumer::OnWorkers) {
            return None;
        }
        let (exec, pipeline) = (executor(chain), pipeline(chain, self.0));
        let figure = item_ns(chain, target, |items| match self.1 {
            Consumer::Beside => block_on(sum(exec.pipe(&pipeline, stream::iter(0..items)))),
            Consumer::OnWorkers => sum_on_workers(&exec, &pipeline, items),
        });
        block_on(exec.shutdown()).expect("nothing runs any more");
        Some(figure)
    }
}

/// Takes the results in an async node.
fn sum_on_workers(exec: &Executor, pipeline: &Pipeline<u64, u64>, items: u64) -> u64 {
    let (mut graph, workers, pipeline) = (Graph::new(), exec.clone(), pipeline.clone());
    let total = graph.future("sum", (), move || {
        let results = workers.pipe(&pipeline, stream::iter(0..items));
        async move { Ok(sum(results).await) }
    });
    graph.output("sum", &total);
    let plan = graph.compile().expect("one node is a valid graph");
    let mut outputs = block_on(exec.run(&plan, Inputs::new())).expect("no task fails");
    *outputs.take("sum").expect("it is an output")
}

pub(crate) fn executor(chain: &Chain) -> Executor {
    Executor::builder().workers(chain.workers).build().expect("an executor starts")
}

pub(crate) fn pipeline(chain: &Chain, split: Split) -> Pipeline<u64, u64> {
    let build = |graph: &mut Graph, item| (0..chain.tasks).fold(item, |item, task| add_one(graph, chain, task, &item));
    let phases = match split {
        Split::One => Phases::Written,
        Split::Each => Phases::Each,
    };
    let pipeline = Pipeline::new("chain", &Ranked::default(), build).and_then(|pipeline| pipeline.phases(phases));
    pipeline.and_then(|pipeline| pipeline.in_flight(chain.in_flight as u32)).expect("a chain is a valid graph")
}

/// Adds a task of a chain.
pub(crate) fn add_one(graph: &mut Graph, chain: &Chain, task: usize, item: &Value<u64>) -> Value<u64> {
    let work_ns = chain.work_ns;
    let name = format!("task {task}");
    if !chain.is_serial(task) {
        // These bodies do not test for work.
        return match work_ns {
            0 => graph.task(name, item, |item: &u64| item + 1),
            _ => graph.task(name, item, move |item: &u64| {
                spin(work_ns);
                item + 1
            }),
        };
    }
    let mut count = graph.state(format!("count {task}"), || 0_u64);
    graph.task(name, (&mut count, item), move |count: &mut u64, item: &u64| {
        *count += 1;
        spin(work_ns);
        item + 1
    })
}

/// Returns the sum of the results.
pub(crate) async fn sum(results: impl Stream<Item = anabranch::Result<u64>>) -> u64 {
    results.fold(0, async |sum, result| sum + result.expect("no task fails")).await
}
