//! The settings of a pipeline: what they keep, and the orders in which they can be given.

use std::sync::Arc;

use anabranch::pipe::{Beat, Phases};
use anabranch::{Executor, Graph, Pipeline, Ranked, Timeline, Value};
use futures::{StreamExt, stream};

use super::chained;
use crate::support::block_on;

type Made = anabranch::Result<Pipeline<u64, u64>>;

fn is_same_plan(one: &Pipeline<u64, u64>, other: &Pipeline<u64, u64>) -> bool {
    std::ptr::eq(one.schedule(), other.schedule())
}

#[test]
fn a_plan_is_compiled_again_only_for_other_phases() {
    // Seen to fail with a plan that is always compiled.
    let pipeline = chained(3);
    let same: [fn(Pipeline<u64, u64>) -> Made; 6] = [
        |pipeline| pipeline.in_flight(7),
        |pipeline| pipeline.beat(Beat::Lockstep),
        |pipeline| Ok(pipeline.serial()),
        |pipeline| pipeline.cpus(3),
        |pipeline| pipeline.retime(&Timeline::new(1)),
        |pipeline| pipeline.phases(Phases::Each),
    ];
    for (number, set) in same.into_iter().enumerate() {
        assert!(is_same_plan(&pipeline, &set(pipeline.clone()).unwrap()), "setting {number}");
    }
    assert!(!is_same_plan(&pipeline, &pipeline.clone().phases(Phases::Auto { depth: 2 }).unwrap()));
}

/// A chain whose second node is in phase 2 and whose last is in phase 4. The second reads the third's result
/// for an earlier item.
fn fed() -> Pipeline<u64, u64> {
    let build = |g: &mut Graph, item: Value<u64>| {
        let before = g.feedback("before", || 0);
        let first = g.task("first", &item, |x: &u64| x + 1);
        let second = g.task("second", (&first, &*before), |x: &u64, before: &u64| x + before);
        let third = g.task("third", &second, |x: &u64| x + 1);
        let last = g.task("last", &third, |x: &u64| x + 1);
        [(&second, 2), (&third, 3), (&last, 4)].into_iter().for_each(|(node, phase)| _ = g.node(node).phase(phase));
        g.feed(before, &third);
        last
    };
    Pipeline::new("fed", &Ranked::default(), build).unwrap()
}

#[test]
fn settings_that_fit_each_other_can_be_given_phases_first_then_items_in_flight() {
    // In any other order they may fail. If not, they give the same result. Seen to fail with `phases` that
    // forget the items in flight.
    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let all = [Phases::Written, Phases::Each, Phases::Auto { depth: 1 }, Phases::Auto { depth: 2 }];
    for (phases, beat, items) in all
        .into_iter()
        .flat_map(|phases| [Beat::Elastic, Beat::Lockstep].map(|beat| (phases, beat)))
        .flat_map(|(phases, beat)| (1..6).map(move |items| (phases, beat, items)))
    {
        let set = |pipeline: Pipeline<u64, u64>, number| match number {
            0 => pipeline.phases(phases),
            1 => pipeline.in_flight(items),
            _ => pipeline.beat(beat),
        };
        let made = ORDERS.map(|order| order.into_iter().try_fold(fed(), set));
        let text = |made: &Pipeline<u64, u64>| format!("{made}, {:?}", made.phasing().unwrap().period_us());
        let first = made[0].as_ref().map(text).map_err(ToString::to_string);
        for (made, order) in made.iter().zip(ORDERS) {
            match (made, &first) {
                (Ok(made), first) => assert_eq!(Ok(text(made)), *first, "{phases:?} {beat:?} {items} {order:?}"),
                (Err(error), _) => assert!(error.to_string().contains("too few: "), "{error}"),
            }
        }
        if let Ok(pipeline) = &made[0] {
            pipeline.verify().unwrap();
        }
    }
}

#[test]
fn without_a_number_of_items_in_flight_settings_can_be_given_in_any_order() {
    // Seen to fail with a default of four items.
    let deep = chained(9).phases(Phases::Written).unwrap();
    let one = deep.clone().phases(Phases::Each).and_then(|deep| deep.serial().beat(Beat::Lockstep)).unwrap();
    let other = deep.beat(Beat::Lockstep).and_then(|deep| deep.serial().phases(Phases::Each)).unwrap();
    assert_eq!((one.max_in_flight(), other.max_in_flight()), (18, 18));
    assert_eq!(one.to_string(), other.to_string());
}

#[test]
fn a_timeline_knows_the_runs_of_all_that_settings_make_of_a_pipeline() {
    // Seen to fail with the times of the very same plan only.
    for workers in [0, 1] {
        let timeline = Arc::new(Timeline::new(100));
        let exec = Executor::builder().workers(workers).observer(timeline.clone()).build().unwrap();
        let pipeline = chained(3);
        block_on(exec.pipe(&pipeline, stream::iter(0..9)).collect::<Vec<_>>());
        drop(exec);
        let costs_us = |pipeline: Made| pipeline.unwrap().retime(&timeline).unwrap().phasing().unwrap().period_us();
        let retimed = pipeline.clone().cpus(1).and_then(|pipeline| pipeline.retime(&timeline)).unwrap();
        let period_us = retimed.phasing().unwrap().period_us();
        assert_ne!(period_us, 3.0, "the costs of nodes that have not run");
        let one = || pipeline.clone().cpus(1);
        let made = [
            one().and_then(|one| one.in_flight(8)),
            one().and_then(|one| one.beat(Beat::Lockstep)),
            one().map(Pipeline::serial),
            one().and_then(|one| one.phases(Phases::Written)),
            one().and_then(|one| one.phases(Phases::Auto { depth: 2 })),
        ];
        made.into_iter().for_each(|made| assert!((costs_us(made) - period_us).abs() < 1e-9));
        assert_eq!(costs_us(chained(3).cpus(1)), 3.0, "another pipeline");
    }
}
