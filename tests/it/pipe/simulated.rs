//! Pipelines in virtual time: `Pipeline::simulation`.

use anabranch::graph::Backend;
use anabranch::pipe::{Beat, Phases};
use anabranch::sim::{Ending, Faults, Order, SimEvent, SimLog, Slots};
use anabranch::{Graph, Pipeline, Ranked, Timeline, Value};

use super::random::of_seed;
use super::{Tallied, chained};
use crate::support::Dice;

/// A chain of nodes that take 1 us each: where they run, and their phases.
fn chain(on: [Backend; 4], phases: [u32; 4]) -> Pipeline<u64, u64> {
    let build = |g: &mut Graph, item: Value<u64>| {
        let mut last = item;
        for (number, (backend, phase)) in on.into_iter().zip(phases).enumerate() {
            last = match backend {
                Backend::Gpu => g.kernel(format!("node {number}"), &last, |_: &mut anabranch::HostStream, x: &u64| *x),
                _ => g.task(format!("node {number}"), &last, |x: &u64| *x),
            };
            g.node(&last).phase(phase).cost_us(1.0);
        }
        last
    };
    Pipeline::new("chain", &Ranked::default(), build).and_then(|pipeline| pipeline.cpus(1)?.serial()).unwrap()
}

fn makespan_us(pipeline: &Pipeline<u64, u64>, items: u32) -> f64 {
    pipeline.simulation(items).unwrap().run().unwrap().makespan_us()
}

/// Returns when a node of an item began and ended.
fn span(log: &SimLog, name: &str) -> (f64, f64) {
    let is_it = |span: &&anabranch::plan::Span| *log.shape().nodes()[span.node.index()].name == *name;
    let span = *log.spans().iter().find(is_it).expect("the node has run");
    (span.start_us, span.end_us)
}

#[test]
fn chains_take_the_periods_of_the_table() {
    let (gpu, cpu) = (Backend::Gpu, Backend::Cpu);
    let table = [
        ([gpu, gpu, cpu, cpu], [1, 1, 1, 1], 4.0),
        ([gpu, gpu, cpu, cpu], [1, 1, 2, 2], 2.0),
        ([cpu, gpu, gpu, cpu], [1, 1, 1, 1], 4.0),
        ([cpu, gpu, gpu, cpu], [1, 1, 1, 2], 3.0),
        ([cpu, gpu, gpu, cpu], [1, 1, 2, 2], 2.0),
    ];
    for (on, phases, period_us) in table {
        let pipeline = chain(on, phases);
        assert_eq!(pipeline.phasing().unwrap().period_us(), period_us);
        for beat in [Beat::Elastic, Beat::Lockstep] {
            let pipeline = pipeline.clone().beat(beat).unwrap();
            println!("{on:?} {phases:?} {beat:?}: {:?}", [1, 2, 3, 4, 5, 20].map(|items| makespan_us(&pipeline, items)));
            println!("{}", pipeline.simulation(3).unwrap().run().unwrap());
        }
    }
    panic!()
}
