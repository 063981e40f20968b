//! A run of a plan for each item, with `StreamExt::buffered`: the usual way without pipelines. Runs share no
//! state, so there are no serial tasks.

use std::time::Duration;

use anabranch::{Executor, Graph, Plan, Ranked, inputs};
use futures::executor::block_on;
use futures::stream::{self, StreamExt};

use super::Peer;
use crate::chain::{Chain, Serial};
use crate::ours::{add_one, executor};
use crate::paced::item_ns;

pub(super) struct Runs;

impl Peer for Runs {
    fn name(&self) -> &'static str {
        "buffered runs"
    }

    fn run(&mut self, chain: &Chain, target: Duration) -> Option<f64> {
        if chain.serial != Serial::None {
            return None;
        }
        let (exec, plan) = (executor(chain), plan(chain));
        let figure = item_ns(chain, target, |items| run(&exec, &plan, chain.in_flight, items));
        block_on(exec.shutdown()).expect("nothing runs any more");
        Some(figure)
    }
}

fn plan(chain: &Chain) -> Plan {
    let mut graph = Graph::new();
    let item = graph.input::<u64>("item");
    let result = (0..chain.tasks).fold(item, |item, task| add_one(&mut graph, chain, task, &item));
    graph.output("result", &result);
    graph.compile_with(&Ranked::default()).expect("it is right")
}

fn run(exec: &Executor, plan: &Plan, in_flight: usize, items: u64) -> u64 {
    let runs = stream::iter(0..items).map(|item| exec.run(plan, inputs! { "item" => item })).buffered(in_flight);
    block_on(runs.fold(0, async |sum, outputs| {
        let result = outputs.and_then(|mut outputs| outputs.take::<u64>("result")).expect("no task fails");
        sum + *result
    }))
}
