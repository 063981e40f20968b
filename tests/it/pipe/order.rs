//! Pipelines: items in, results out, in order, on every executor.

use anabranch::pipe::{Beat, Phases};
use anabranch::{Executor, Pipeline, Ranked};
use futures::executor::block_on;
use futures::{TryStreamExt, stream};

/// An inline one, one with one worker, one with two, and a simulated one.
fn executors() -> Vec<Executor> {
    let with = |workers| Executor::builder().workers(workers).build().unwrap();
    vec![with(0), with(1), with(2), Executor::sim(7)]
}

/// Three tasks, the second of which adds up all items.
fn sums() -> Pipeline<u64, (u64, u64)> {
    Pipeline::new("sums", &Ranked::default(), |g, item| {
        let mut total = g.state("total", || 0u64);
        let double = g.task("double", &item, |x: &u64| 2 * x);
        let sum = g.task("sum", (&mut total, &double), |total: &mut u64, x: &u64| {
            *total += x;
            *total
        });
        let result = g.task("result", (&sum, &item), |sum: &u64, x: &u64| sum - x);
        (result, sum)
    })
    .unwrap()
}

#[test]
fn results_come_in_order() {
    for exec in executors() {
        for phases in [Phases::Written, Phases::Each, Phases::Auto { depth: 2 }] {
            for (beat, slots) in [(Beat::Elastic, 1), (Beat::Elastic, 3), (Beat::Elastic, 8), (Beat::Lockstep, 3)] {
                let pipeline = sums().phases(phases).unwrap().in_flight(slots.max(3)).unwrap().beat(beat).unwrap();
                let pipeline = if beat == Beat::Elastic { pipeline.in_flight(slots).unwrap() } else { pipeline };
                for len in [0, 1, 2, 5, 20] {
                    let results = block_on(exec.pipe(&pipeline, stream::iter(1..=len)).try_collect::<Vec<_>>()).unwrap();
                    let mut total = 0;
                    let expected = (1..=len).map(|x| {
                        total += 2 * x;
                        (total - x, total)
                    });
                    assert_eq!(results, expected.collect::<Vec<_>>(), "{exec:?} {pipeline:?} {len}");
                }
            }
        }
    }
}
