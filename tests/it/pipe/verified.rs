//! Pipelines that prove themselves: `Pipeline::verify`. What it finds is in `src/plan/rules.rs`.

use anabranch::pipe::{Beat, Phases};
use anabranch::{Graph, Pipeline, Ranked, Value};

use super::random::of_seed;
use super::{Tallied, each};

#[test]
fn random_pipelines_keep_every_order() {
    // Seen to fail without the arrow from the readers of a feedback back to its maker, without the order of a
    // phase that feeds, without arrivals of first items in the last slots, and with a merged pipeline that
    // has no order.
    let (rounds, tally) = (if cfg!(debug_assertions) { 500 } else { 5000 }, Tallied::default());
    for seed in 0..rounds {
        println!("seed {seed}");
        let pipeline = of_seed(seed, &tally);
        pipeline.verify().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        if pipeline.depth() <= pipeline.slots() {
            let other = pipeline.beat(Beat::Lockstep).and_then(Pipeline::serial).unwrap();
            other.verify().unwrap_or_else(|error| panic!("seed {seed}, serial in lockstep: {error}"));
        }
    }
}

#[test]
fn a_pipeline_without_nodes_is_right() {
    let pipeline = Pipeline::new("nothing", &Ranked::default(), |_: &mut Graph, item: Value<u64>| item).unwrap();
    pipeline.verify().unwrap();
    pipeline.in_flight(1).unwrap().verify().unwrap();
}

#[test]
fn feedback_of_every_lag_is_right_with_as_many_slots_as_it_needs() {
    for lag in 1..6 {
        let pipeline = each(|g, item: Value<u64>| {
            let before = g.feedback("before", || 0);
            let mut last = g.task("first", (&item, &*before), |item: &u64, before: &u64| item + before);
            for number in 1..lag {
                last = g.task(format!("node {number}"), &last, |x: &u64| x + 1);
            }
            g.feed(before, &last);
            last
        });
        for slots in [lag, lag + 1, 2 * lag, 3 * lag + 1] {
            let pipeline = pipeline.clone().in_flight(slots).unwrap();
            pipeline.verify().unwrap_or_else(|error| panic!("lag {lag}, {slots} slots: {error}"));
            pipeline.beat(Beat::Lockstep).unwrap().verify().unwrap();
        }
    }
}

#[test]
fn a_schedule_in_phases_is_checked_within_them() {
    // Seen to fail while `Schedule::verify` looked for waits between phases.
    let pipeline = super::chained(3);
    pipeline.schedule().verify().unwrap();
    assert_eq!(pipeline.phases(Phases::Written).unwrap().schedule().streams(), 1);
}
