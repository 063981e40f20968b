//! Panics in all foreign code: none aborts or hangs, and later work succeeds.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Context;

use anabranch::exec::{Observer, WorkSpan};
use anabranch::graph::Graph;
use anabranch::pipe::Phases;
use anabranch::{Executor, Pipeline, Ranked, Value};
use futures::{Stream, StreamExt, stream};

use super::{chained_and_held, each};
use crate::support::{Deed, block_on, executors, hooked, panic_quietly, until};

/// Runs a pipeline over 0..10, and returns the messages of the items that fail.
fn failures(exec: &Executor, pipeline: &Pipeline<u64, u64>) -> Vec<(u64, String)> {
    let results = block_on(exec.pipe(pipeline, stream::iter(0..10)).collect::<Vec<_>>());
    assert_eq!(results.len(), 10);
    let failed = results.into_iter().zip(0..).filter_map(|(result, item)| match result {
        Ok(value) => {
            assert_eq!(value, item, "{exec:?}");
            None
        }
        Err(error) => {
            assert!(error.is_panic(), "{error}");
            Some((item, format!("{} of {:?}", error.to_string().rsplit(": ").next().unwrap(), error.node())))
        }
    });
    failed.collect()
}

fn ouch(node: &str) -> Vec<(u64, String)> {
    vec![(4, format!("ouch of Some({node:?})")), (5, format!("ouch of Some({node:?})"))]
}

fn fails(x: &u64) -> u64 {
    if [4, 5].contains(x) { panic_quietly("ouch") } else { *x }
}

#[test]
fn a_panic_of_a_node_fails_its_item() {
    let task = each(|g, item| {
        let first = g.task("node", &item, fails);
        g.task("last", &first, |x: &u64| *x)
    });
    let future = each(|g, item| {
        let first = g.future("node", &item, async |x: Arc<u64>| {
            smol::future::yield_now().await;
            Ok(fails(&x))
        });
        g.task("last", &first, |x: &u64| *x)
    });
    for (exec, pipeline) in executors().into_iter().flat_map(|exec| [(exec.clone(), &task), (exec, &future)]) {
        assert_eq!(failures(&exec, pipeline), ouch("node"), "{exec:?}");
    }
}

#[test]
fn a_panic_where_a_state_or_a_feedback_is_made_ends_that_run() {
    // Seen to fail with an init that is not shielded.
    let is_bad = Arc::new(AtomicBool::new(true));
    for is_state in [true, false] {
        let bad = is_bad.clone();
        let init = move || if bad.load(SeqCst) { panic_quietly("no memory of it") } else { 0u64 };
        let pipeline = each(|g: &mut Graph, item: Value<u64>| {
            if is_state {
                let mut state = g.state("memory", init);
                return g.task("node", (&mut state, &item), |_: &mut u64, x: &u64| *x);
            }
            let feedback = g.feedback("memory", init);
            let node = g.task("node", (&*feedback, &item), |_: &u64, x: &u64| *x);
            g.feed(feedback, &item);
            node
        });
        for exec in executors() {
            is_bad.store(true, SeqCst);
            let mut results = exec.pipe(&pipeline, stream::iter(0..10));
            let error = block_on(results.next()).unwrap().unwrap_err();
            assert_eq!(error.to_string(), "the first value of 'memory' could not be made, a panic: no memory of it");
            assert!(error.is_panic() && block_on(results.next()).is_none());
            assert_eq!(exec.in_flight(), 0);
            is_bad.store(false, SeqCst);
            assert_eq!(failures(&exec, &pipeline), []);
        }
    }
}

/// A number whose clones are counted: those with a number in the list panic. Its drop may panic, too.
struct Touchy {
    number: u64,
    clones: Arc<AtomicUsize>,
    panics_at: &'static [usize],
    drop_panics: bool,
}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        if self.panics_at.contains(&self.clones.fetch_add(1, SeqCst)) {
            panic_quietly("ouch");
        }
        let Self { number, panics_at, .. } = *self;
        Self { number, clones: self.clones.clone(), panics_at, drop_panics: false }
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        if self.drop_panics {
            panic_quietly("ouch");
        }
    }
}

#[test]
fn a_clone_that_panics_fails_its_item_and_the_feedback_before_stays() {
    for exec in executors() {
        for slots in [2, 3, 20] {
            let clones = Arc::new(AtomicUsize::new(0));
            let (made, first) = (clones.clone(), clones.clone());
            let init = move || Touchy { number: 100, clones: first.clone(), panics_at: &[], drop_panics: false };
            let pipeline = Pipeline::new("pipeline", &Ranked::default(), |g: &mut Graph, item: Value<u64>| {
                let before = g.feedback("before", init);
                let read = g.task("read", (&*before, &item), |before: &Touchy, x: &u64| (before.number, *x));
                let number = g.task("made", &read, move |read: &(u64, u64)| {
                    let panics_at: &[usize] = if read.1 == 3 { &[0] } else { &[] };
                    // Only clones of items are counted.
                    made.store(0, SeqCst);
                    Touchy { number: read.1, clones: made.clone(), panics_at, drop_panics: false }
                });
                g.feed(before, &number);
                g.task("last", (&read, &number), |read: &(u64, u64), _: &Touchy| read.0)
            });
            let pipeline = pipeline.unwrap().in_flight(slots).unwrap();
            let results = block_on(exec.pipe(&pipeline, stream::iter(0..7)).collect::<Vec<_>>());
            let found: Vec<Option<u64>> = results.iter().map(|result| result.as_ref().ok().copied()).collect();
            assert_eq!(found, [Some(100), Some(0), Some(1), None, Some(2), Some(4), Some(5)], "{exec:?} {slots}");
            let said = results[3].as_ref().unwrap_err().to_string();
            assert!(said.contains("'made'") && said.ends_with("copying its value for a later item: ouch"), "{said}");
        }
    }
}

#[test]
fn where_both_clones_panic_a_later_item_has_an_older_feedback() {
    // Seen to abort (a read of an empty cell) with feedback that is filled only for the first item.
    for exec in executors() {
        for (slots, older) in [(2, 1), (3, 0), (20, 100)] {
            let clones = Arc::new(AtomicUsize::new(0));
            let (made, first) = (clones.clone(), clones.clone());
            let init = move || Touchy { number: 100, clones: first.clone(), panics_at: &[], drop_panics: false };
            let pipeline = Pipeline::new("pipeline", &Ranked::default(), |g: &mut Graph, item: Value<u64>| {
                let before = g.feedback("before", init);
                let number = g.task("made", (&*before, &item), move |_: &Touchy, x: &u64| {
                    let panics_at: &[usize] = [&[][..], &[], &[1], &[0], &[]][*x as usize];
                    made.store(0, SeqCst);
                    Touchy { number: *x, clones: made.clone(), panics_at, drop_panics: false }
                });
                let read = g.task("read", (&*before, &number), |before: &Touchy, _: &Touchy| before.number);
                g.feed(before, &number);
                read
            });
            let pipeline = pipeline.unwrap().in_flight(slots).unwrap();
            let results = block_on(exec.pipe(&pipeline, stream::iter(0..5)).collect::<Vec<_>>());
            let found: Vec<Option<u64>> = results.iter().map(|result| result.as_ref().ok().copied()).collect();
            assert_eq!(found, [Some(100), Some(0), Some(1), None, Some(older)], "{exec:?} {slots}");
            assert_eq!(results[3].as_ref().unwrap_err().others().len(), 1);
        }
    }
}

#[test]
fn a_value_whose_drop_panics_fails_nothing_but_its_item() {
    for exec in executors() {
        let clones = Arc::new(AtomicUsize::new(0));
        let pipeline = each(|g, item| {
            let first = g.task("first", &item, move |x: &u64| Touchy {
                number: *x,
                clones: clones.clone(),
                panics_at: &[],
                drop_panics: [4, 5].contains(x),
            });
            g.task("last", &first, |x: &Touchy| x.number)
        });
        let results = block_on(exec.pipe(&pipeline, stream::iter(0..10)).collect::<Vec<_>>());
        assert_eq!(results.len(), 10, "{exec:?}");
        for (result, item) in results.into_iter().zip(0..) {
            assert!(
                result.map_or_else(|error| [4, 5].contains(&item) && error.is_panic(), |value| value == item),
                "{exec:?}: {item}"
            );
        }
    }
}

/// A value whose drop panics, except for the first one: as an item, and as a feedback that is replaced.
#[derive(Clone)]
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_quietly("ouch");
        }
    }
}

#[test]
fn items_and_feedback_whose_drops_panic_leave_all_results() {
    // Seen to abort with a feedback whose old value is dropped before the new one is stored.
    for exec in executors() {
        let pipeline = Pipeline::new("pipeline", &Ranked::default(), |g: &mut Graph, item: Value<Bomb>| {
            let before = g.feedback("before", || Bomb(0));
            let node = g.task("node", (&*before, &item), |before: &Bomb, x: &Bomb| before.0 * 100 + x.0);
            g.feed(before, &item);
            g.task("last", &node, |x: &u64| *x)
        });
        let pipeline = pipeline.unwrap().phases(Phases::Each).unwrap();
        let results = block_on(exec.pipe(&pipeline, stream::iter(1..=20).map(Bomb)).collect::<Vec<_>>());
        assert_eq!(results.len(), 20);
        for (result, item) in results.into_iter().zip(1..) {
            assert!(result.map_or_else(|error| error.is_panic(), |value| value == (item - 1) * 100 + item), "{exec:?}: {item}");
        }
        until(|| exec.in_flight() == 0);
    }
}

/// Panics at the ends of some nodes.
struct Nosy(AtomicUsize);

impl Observer for Nosy {
    fn ended(&self, span: &WorkSpan) {
        if span.work.node_id().is_some() && self.0.fetch_add(1, SeqCst) % 3 == 1 {
            panic_quietly("ouch");
        }
    }
}

#[test]
fn an_observer_that_panics_fails_an_item_at_most() {
    for (workers, pipeline) in [0, 1, 2].into_iter().flat_map(|workers| chained_and_held(2).map(|each| (workers, each))) {
        let nosy = Arc::new(Nosy(AtomicUsize::new(0)));
        let exec = Executor::builder().workers(workers).observer(nosy.clone()).build().unwrap();
        let results = block_on(exec.pipe(&pipeline, stream::iter(0..9)).collect::<Vec<_>>());
        assert_eq!((results.len(), nosy.0.load(SeqCst)), (9, 18));
        assert!(results.into_iter().zip(0..).all(|(result, item)| result.map_or_else(|_| true, |value| value == item + 2)));
    }
}

#[test]
fn a_waker_that_panics_harms_no_other_pipeline() {
    for exec in executors() {
        for deed in [Deed::Clone, Deed::Wake, Deed::Drop] {
            let touchy = hooked(move |done| {
                if done == deed {
                    panic_quietly("do not touch");
                }
            });
            let future = each(|g, item| {
                g.future("node", &item, async |x: Arc<u64>| {
                    smol::future::yield_now().await;
                    Ok(*x)
                })
            });
            let mut results = exec.pipe(&future, stream::iter(0..10));
            for _ in 0..20 {
                let poll = || Pin::new(&mut results).poll_next(&mut Context::from_waker(&touchy));
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll));
            }
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(results)));
            std::mem::forget(touchy);
            assert_eq!(failures(&exec, &future), [], "{exec:?} {deed:?}");
        }
    }
}
