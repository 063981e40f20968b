//! `Pipeline::verify` accepts compiled pipelines. The tests of the mistakes that it finds are in
//! `src/plan/rules.rs`.

use anabranch::graph::times;
use anabranch::pipe::{Beat, Phases};
use anabranch::policy::PerOperator;
use anabranch::{Graph, HostStream, Pipeline, Ranked, Value};

use super::random::{of_seed, paced};
use super::{Tallied, each};

#[test]
fn random_pipelines_keep_every_order() {
    // Seen to fail without the arrow from the readers of a feedback back to its maker, without the order of a
    // phase that feeds, without arrivals of first items in the last slots, with a merged pipeline that has no
    // order, and with joined phases that wait for what the last of them waits for.
    let (rounds, tally) = (if cfg!(debug_assertions) { 500 } else { 5000 }, Tallied::default());
    for seed in 0..rounds {
        println!("seed {seed}");
        let pipeline = of_seed(seed, &tally);
        pipeline.verify().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        if pipeline.depth() <= pipeline.max_in_flight() {
            let Some(other) = paced(&pipeline, Beat::Lockstep).map(Pipeline::serial) else { continue };
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
fn nodes_on_several_devices_and_loops_are_right() {
    // Seen to fail with only the first stream of a phase as its end.
    let pipeline = Pipeline::new("devices", &PerOperator, |g: &mut Graph, item: Value<u64>| {
        let before = g.feedback("before", || 0);
        let wide = g.kernel("wide", (&item, &*before), |_: &mut HostStream, x: &u64, before: &u64| x + before);
        g.node(&wide).devices([0, 1, 2]).phase(1);
        let [left, right] = [("left", 0), ("right", 2)].map(|(name, device)| {
            let value = g.kernel(name, &wide, |_: &mut HostStream, x: &u64| *x);
            g.node(&value).devices([device]).phase(1);
            value
        });
        let halved = g.repeat("halve", &left, times(3), |g, x: Value<u64>| g.task("half", &x, |x: &u64| x / 2));
        g.node(&halved).phase(2);
        let sum = g.task("sum", (&halved, &right), |x: &u64, y: &u64| x + y);
        g.feed(before, &sum);
        sum
    });
    let pipeline = pipeline.unwrap();
    assert_eq!((pipeline.depth(), pipeline.schedule().streams()), (2, 5));
    pipeline.verify().unwrap();
    let log = pipeline.simulation(30).unwrap().run().unwrap();
    assert!(log.races().unwrap().is_empty());
    // The node that spans three devices runs on each.
    assert_eq!(log.spans().len(), 30 * 7);
    pipeline.clone().beat(Beat::Lockstep).unwrap().verify().unwrap();
    pipeline.serial().verify().unwrap();
}

#[test]
fn a_schedule_in_phases_is_checked_within_them() {
    // Seen to fail while `Schedule::verify` looked for waits between phases.
    let pipeline = super::chained(3);
    pipeline.schedule().verify().unwrap();
    assert_eq!(pipeline.phases(Phases::Written).unwrap().schedule().streams(), 1);
}

#[test]
fn a_feedback_is_read_before_a_later_item_gives_it_its_value() {
    // Seen to fail without the arrow from the readers of a feedback back to its maker.
    let pipeline = each(|g, item: Value<u64>| {
        let before = g.feedback("before", || 0);
        let reader = g.task("reader", (&item, &*before), |x: &u64, before: &u64| x + before);
        let maker = g.task("maker", &item, |x: &u64| *x);
        g.feed(before, &maker);
        g.task("sum", (&reader, &maker), |x: &u64, y: &u64| x + y)
    });
    for slots in [2, 3, 6] {
        pipeline.clone().in_flight(slots).unwrap().verify().unwrap();
    }
}

#[test]
fn a_node_waits_for_earlier_items_whatever_the_phases() {
    // Seen to fail without the arrow, without the one back, and with a merged pipeline that has no order.
    for (items, slots) in (1..6).flat_map(|items| (1..8).map(move |slots| (items, slots))) {
        for is_forward in [true, false] {
            let pipeline = each(|g, item: Value<u64>| {
                let [first, second] = ["first", "second"].map(|name| g.task(name, &item, |item: &u64| *item));
                let (source, target) = if is_forward { (&first, &second) } else { (&second, &first) };
                g.node(target).after_item(source, items);
                g.task("sum", (&first, &second), |x: &u64, y: &u64| x + y)
            });
            let pipeline = pipeline.in_flight(slots).unwrap();
            pipeline.verify().unwrap_or_else(|error| panic!("{items} items, {slots} slots, {is_forward}: {error}"));
        }
    }
}

#[test]
fn phases_with_edges_from_item_to_item_are_not_joined_by_other_settings() {
    // Seen to fail with joins that are found when the edge is too long to have an arrow.
    let ends = [("b", "a", 6), ("c", "b", 6), ("c", "a", 6), ("b", "a", 5)];
    for (target, source, items) in ends {
        let pipeline = each(|g, item: Value<u64>| {
            let a = g.task("a", &item, |x: &u64| x + 1);
            let b = g.task("b", &a, |x: &u64| x + 1);
            let c = g.task("c", &b, |x: &u64| x + 1);
            let value = |name| [("a", a), ("b", b), ("c", c)].into_iter().find(|(other, _)| *other == name).unwrap().1;
            g.node(&value(target)).after_item(&value(source), items);
            c
        });
        for slots in [6, 8, 3, 7] {
            let pipeline = pipeline.clone().in_flight(slots).unwrap();
            pipeline.verify().unwrap_or_else(|error| panic!("{target} after {source}, {slots} slots: {error}"));
        }
    }
}
