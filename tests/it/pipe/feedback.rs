//! Feedback: the earlier item that it is from, and its value if that item failed.

use std::sync::Arc;

use anabranch::pipe::{Beat, Phases};
use anabranch::{BoxError, Pipeline, Ranked, Value};
use futures::{StreamExt, stream};

use crate::support::{block_on, executors};

/// Each result is the item and the item that the feedback is from: the one `lag` before, or -1.
fn lagged(lag: u32) -> Pipeline<i64, (i64, i64)> {
    let built = Pipeline::new("lagged", &Ranked::default(), |g, item: Value<i64>| {
        let before = g.feedback("before", || -1i64);
        let early = g.task("early", &*before, |before: &i64| *before);
        let late = g.task("late", (&early, &item), |_: &i64, item: &i64| *item);
        g.node(&late).phase(lag);
        // There are no empty phases between the two.
        let last = (1..lag).fold(early, |last, phase| {
            let next = g.task(format!("phase {phase}"), &last, |last: &i64| *last);
            g.node(&next).phase(phase);
            next
        });
        g.feed(before, &late);
        let from = g.task("from", &last, |last: &i64| *last);
        let copy = g.task("item", &late, |late: &i64| *late);
        [&from, &copy].into_iter().for_each(|value| _ = g.node(value).phase(lag));
        (copy, from)
    });
    built.unwrap()
}

#[test]
fn feedback_is_from_as_many_items_before_as_phases_lie_between() {
    // Seen to fail with a lag that is one too small.
    for exec in executors() {
        for lag in 1..=4 {
            for (slots, beat) in
                [(lag, Beat::Elastic), (lag + 1, Beat::Elastic), (9, Beat::Elastic), (lag, Beat::Lockstep), (9, Beat::Lockstep)]
            {
                let pipeline = lagged(lag).in_flight(slots).unwrap().beat(beat).unwrap();
                assert_eq!(pipeline.depth(), lag);
                let results = block_on(exec.pipe(&pipeline, stream::iter(0..30)).map(Result::unwrap).collect::<Vec<_>>());
                let expected = (0..30).map(|item| (item, (item - i64::from(lag)).max(-1)));
                assert!(results.iter().copied().eq(expected), "{exec:?} {pipeline:?}: {results:?}");
            }
        }
    }
}

#[test]
fn a_pipeline_prints_how_old_its_feedback_is() {
    // Seen to fail without these lines.
    let lines = |lag| lagged(lag).to_string().lines().filter(|line| line.contains("feedback")).collect::<Vec<_>>().join("\n");
    assert_eq!(lines(1), "feedback 'before' is from 1 item before");
    assert_eq!(lines(3), "feedback 'before' is from 3 items before");
}

#[test]
fn nodes_that_read_one_feedback_stay_in_one_phase() {
    // Seen to fail (as an error of `Each` and `Auto`) with readers that are moved to phases independently.
    let moving = || {
        let built = Pipeline::new("moving", &Ranked::default(), |g, target: Value<f64>| {
            let before = g.feedback("before", || 0.0);
            let seen = g.task("seen", &target, |target: &f64| *target);
            let error = g.task("error", (&seen, &*before), |seen: &f64, before: &f64| seen - before);
            let step = g.task("step", &error, |error: &f64| error / 2.0);
            let place = g.task("move", (&step, &*before), |step: &f64, before: &f64| before + step);
            let drawn = g.task("drawn", &place, |place: &f64| *place);
            g.feed(before, &place);
            drawn
        });
        built.unwrap()
    };
    for (phases, depth) in [(Phases::Written, 1), (Phases::Each, 3), (Phases::Auto { depth: 5 }, 3)] {
        let pipeline = moving().phases(phases).and_then(|pipeline| pipeline.cpus(4)).unwrap();
        assert_eq!(pipeline.depth(), depth, "{phases:?}");
        for exec in executors() {
            let places = block_on(exec.pipe(&pipeline, stream::iter([8.0; 4])).map(Result::unwrap).collect::<Vec<_>>());
            assert_eq!(places, [4.0, 6.0, 7.0, 7.5], "{exec:?} {phases:?}");
        }
    }
}

/// Adds up the items: the sum so far is fed back. Items below 0 fail, in a task or in an async node.
fn summed(is_async: bool) -> Pipeline<i64, i64> {
    let add = |before: i64, item: i64| if item < 0 { Err::<i64, BoxError>("negative".into()) } else { Ok(before + item) };
    let built = Pipeline::new("summed", &Ranked::default(), |g, item: Value<i64>| {
        let before = g.feedback("before", || 0i64);
        let sum = match is_async {
            false => g.try_task("sum", (&*before, &item), move |before: &i64, item: &i64| add(*before, *item)),
            true => g.future("sum", (&*before, &item), move |before: Arc<i64>, item: Arc<i64>| async move {
                smol::future::yield_now().await;
                add(*before, *item)
            }),
        };
        g.feed(before, &sum);
        g.task("copy", &sum, |sum: &i64| *sum)
    });
    built.unwrap().phases(Phases::Each).unwrap()
}

#[test]
fn the_feedback_before_stays_where_its_node_or_its_item_fails() {
    // Seen to fail with a feed that is skipped if the node has no value.
    for exec in executors() {
        for (slots, is_async) in [(1, false), (2, true), (3, false), (8, true)] {
            let items = [Ok(1), Ok(-1), Err("none"), Ok(2), Ok(-1), Ok(-1), Ok(-1), Err("none"), Err("none"), Ok(4), Ok(8)];
            let results =
                block_on(exec.try_pipe(&summed(is_async).in_flight(slots).unwrap(), stream::iter(items)).collect::<Vec<_>>());
            let found: Vec<Option<i64>> = results.into_iter().map(Result::ok).collect();
            assert_eq!(found, [Some(1), None, None, Some(3), None, None, None, None, None, Some(7), Some(15)], "{exec:?}");
        }
    }
}

#[test]
fn the_item_itself_may_be_fed_back() {
    let pipeline = Pipeline::new("differences", &Ranked::default(), |g, item: Value<i64>| {
        let before = g.feedback("before", || 0i64);
        let difference = g.task("difference", (&item, &*before), |item: &i64, before: &i64| item - before);
        g.feed(before, &item);
        difference
    });
    for exec in executors() {
        let squares = stream::iter((1..20).map(|x| x * x));
        let results = block_on(exec.pipe(pipeline.as_ref().unwrap(), squares).map(Result::unwrap).collect::<Vec<_>>());
        assert!(results.into_iter().eq((0..19).map(|x| 2 * x + 1)), "{exec:?}");
    }
}

#[test]
fn a_feedback_may_be_read_by_several_nodes_and_two_may_have_one_value() {
    let pipeline = Pipeline::new("two", &Ranked::default(), |g, item: Value<i64>| {
        let (a, b) = (g.feedback("a", || 10i64), g.feedback("b", || 20i64));
        let [first, second] = ["first", "second"].map(|name| g.task(name, (&*a, &*b), |a: &i64, b: &i64| a + b));
        let sum = g.task("sum", (&first, &second, &item), |first: &i64, second: &i64, item: &i64| first + second + item);
        g.feed(a, &sum);
        g.feed(b, &item);
        sum
    });
    for exec in executors() {
        let results =
            block_on(exec.pipe(pipeline.as_ref().unwrap(), stream::iter(1..=4)).map(Result::unwrap).collect::<Vec<_>>());
        assert_eq!(results, [61, 126, 259, 528], "{exec:?}");
    }
}
