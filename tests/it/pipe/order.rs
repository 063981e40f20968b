//! Results come in the order of the items, one for each, for any number of items.

use std::time::{Duration, Instant};

use anabranch::pipe::{Beat, Phases};
use anabranch::{Executor, Graph, Inputs, Pipeline, Ranked, Value, explore};
use futures::{StreamExt, TryStreamExt, stream};

use super::{Tallied, Word, chained, chained_and_held, each};
use crate::support::{block_on, chain, executor, executors};

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

fn runs_in_order(exec: &Executor, pipeline: &Pipeline<u64, (u64, u64)>, len: u64) {
    let results = block_on(exec.pipe(pipeline, stream::iter(1..=len)).try_collect::<Vec<_>>()).unwrap();
    let mut total = 0;
    let expected = (1..=len).map(|x| {
        total += 2 * x;
        (total - x, total)
    });
    assert_eq!(results, expected.collect::<Vec<_>>(), "{exec:?} {pipeline:?} {len}");
}

#[test]
fn results_come_in_order() {
    // Seen to fail with phases that hold a state and have no own order.
    for exec in executors() {
        for phases in [Phases::Written, Phases::Each, Phases::Auto { depth: 2 }] {
            for (beat, slots) in [(Beat::Elastic, 1), (Beat::Elastic, 3), (Beat::Elastic, 8), (Beat::Lockstep, 3)] {
                let pipeline = sums().phases(phases).unwrap().in_flight(slots).unwrap().beat(beat).unwrap();
                for len in [0, 1, 2, 5, 20] {
                    runs_in_order(&exec, &pipeline, len);
                }
            }
        }
    }
}

#[test]
fn a_pipeline_runs_again_and_side_by_side_with_itself() {
    // Each run has states of its own.
    let pipeline = sums().phases(Phases::Each).unwrap();
    for exec in executors() {
        (0..3).for_each(|_| runs_in_order(&exec, &pipeline, 10));
        let both = [0, 1].map(|_| exec.pipe(&pipeline, stream::iter(1..=30)).try_collect::<Vec<_>>());
        let both = block_on(futures::future::join_all(both));
        assert_eq!(both[0].as_ref().unwrap(), both[1].as_ref().unwrap());
    }
}

#[test]
fn the_stream_ends_after_any_number_of_items() {
    // Seen to hang (lockstep) when the end of the source does not arrive at the gates for items that do not
    // come. Seen to abort (lockstep, more slots than phases) when the first items count arrivals from items
    // before the first one, as later items do.
    for exec in executors() {
        for depth in 1..=6 {
            for beat in [Beat::Elastic, Beat::Lockstep] {
                let fewest = if beat == Beat::Lockstep { depth } else { 1 };
                let slots = [fewest, fewest + 1, 2 * depth + 1];
                for (slots, pipeline) in slots.into_iter().flat_map(|slots| chained_and_held(depth).map(|each| (slots, each))) {
                    let pipeline = pipeline.in_flight(slots as u32).unwrap().beat(beat).unwrap();
                    for len in 0..=(2 * slots + depth) as u64 {
                        let results = block_on(exec.pipe(&pipeline, stream::iter(0..len)).try_collect::<Vec<_>>()).unwrap();
                        assert!(results.into_iter().eq((0..len).map(|x| x + depth as u64)), "{exec:?} {pipeline:?} {len}");
                    }
                }
            }
        }
    }
}

#[test]
fn items_go_through_phases_that_are_joined_past_another() {
    // Seen to fail with phases that are always joined to the next one, regardless of their successors.
    let pipeline = each(|g, item: Value<u64>| {
        let [a, b] = [("a", 2), ("b", 3)].map(|(name, by)| g.task(name, &item, move |x: &u64| by * x));
        let c = g.task("c", &a, |x: &u64| x + 1);
        g.task("d", (&b, &c), |x: &u64, y: &u64| 100 * x + y)
    });
    pipeline.verify().unwrap();
    for exec in executors() {
        let results = block_on(exec.pipe(&pipeline, stream::iter(0..40)).try_collect::<Vec<_>>()).unwrap();
        assert!(results.into_iter().eq((0..40).map(|x| 302 * x + 1)), "{exec:?}");
    }
}

#[test]
fn a_stream_that_has_ended_gives_none_again_and_says_that_it_has() {
    use futures::stream::FusedStream;
    for exec in executors() {
        let mut results = exec.pipe(&chained(2), stream::iter(0..3));
        assert!(!results.is_terminated());
        assert_eq!(block_on(results.by_ref().count()), 3);
        assert!(results.is_terminated());
        assert!(block_on(results.next()).is_none());
    }
}

#[test]
fn items_go_through_a_pipeline_without_nodes() {
    // Seen to fail (as a panic) with a ticket without programs.
    let same = Pipeline::new("same", &Ranked::default(), |_, item: Value<u64>| item).unwrap();
    let empty = Graph::new().compile().unwrap();
    for exec in executors() {
        let found: Vec<u64> = block_on(exec.pipe(&same, stream::iter(0..9)).map(Result::unwrap).collect());
        assert_eq!(found, (0..9).collect::<Vec<u64>>());
        let runs = exec.run_stream(&empty, stream::iter((0..9).map(|_| Inputs::new())), 4).unwrap();
        assert_eq!(block_on(runs.map(Result::unwrap).count()), 9);
    }
}

#[test]
fn many_nodes_in_many_phases_begin_soon() {
    // Seen to fail (it takes minutes) with gates and phases that are computed edge by edge.
    let long = Pipeline::new("long", &Ranked::default(), |g: &mut Graph, item| chain(g, &item, 30_000)).unwrap();
    assert_eq!(long.depth(), 1);
    let deep = each(|g, item: Value<u64>| chain(g, &item, 1000));
    let exec = executor(2);
    assert_eq!(block_on(exec.pipe(&deep, stream::iter(0..2)).map(Result::unwrap).collect::<Vec<u64>>()), [1000, 1001]);
}

#[test]
fn the_only_worker_and_a_poll_count_down_the_same_gates() {
    // The poll runs cheap items, too. The value of `word` is released by two phases. Seen to fail (words stay
    // alive) with a worker that counts as if it were alone, and a pause in the middle of a count.
    let tally = Tallied::default();
    let words = tally.clone();
    let pipeline = each(move |g, item: Value<u64>| {
        let mut total = g.state("total", || 0u64);
        let word = g.task("word", &item, move |x: &u64| words.word(*x, *x));
        let twice = g.task("twice", &word, |word: &Word| {
            // From time to time items are expensive, so the poll and the worker take turns.
            let end = Instant::now() + Duration::from_micros(if word.item % 100 < 10 { 2 } else { 0 });
            while Instant::now() < end {}
            2 * word.get()
        });
        let sum = g.task("sum", (&mut total, &word), |total: &mut u64, word: &Word| {
            *total += word.get();
            *total
        });
        g.task("both", (&twice, &sum), |twice: &u64, sum: &u64| twice + sum)
    });
    let exec = executor(1);
    for _ in 0..20 {
        let found = block_on(exec.pipe(&pipeline, stream::iter(0..10_000)).map(Result::unwrap).count());
        assert_eq!((found, tally.alive()), (10_000, 0));
    }
}

#[test]
fn a_pipeline_prints_its_phases_and_the_bound_of_its_memory() {
    let pipeline = each(|g, item: Value<u64>| chain(g, &item, 2)).in_flight(6).unwrap();
    let text = "\
pipeline pipeline: 2 phases, 6 items in flight × 48 bytes = 288 bytes
phase 1   link 0
phase 2   link 1
policy ranked: 2 nodes, 2 host streams, 0 records, 0 waits
host 0   run link 0
host 1   run link 1
";
    assert_eq!(pipeline.to_string(), text);
}

#[test]
fn a_phase_waits_for_all_nodes_of_the_one_before() {
    // Seen to fail with phases that are joined because one leads only to the other.
    for reads_both in [false, true] {
        let built = Pipeline::new("two and one", &Ranked::default(), |g: &mut Graph, item: Value<u64>| {
            let [left, right] = ["left", "right"].map(|name| g.task(name, &item, |x: &u64| x + 1));
            let last = match reads_both {
                false => g.task("last", &left, |x: &u64| x + 1),
                true => g.task("last", (&left, &right), |x: &u64, y: &u64| x + y),
            };
            [&left, &right].into_iter().for_each(|value| _ = g.node(value).phase(1));
            g.node(&last).phase(2);
            (last, right)
        });
        let pipeline = built.and_then(|pipeline| pipeline.in_flight(1)).unwrap();
        let explored = explore(100, |exec| {
            assert_eq!(block_on(exec.pipe(&pipeline, stream::iter(0..1)).count()), 1);
            Ok(())
        });
        assert_eq!(explored.unwrap().orders, 2, "{reads_both}");
    }
}
