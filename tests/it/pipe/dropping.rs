//! Pipelines that are dropped, cancelled, forgotten or shut down at any moment.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch::graph::times;
use anabranch::pipe::Beat;
use anabranch::run::Canceller;
use anabranch::{Executor, Graph, Pipeline, Value, take};
use futures::{Stream, StreamExt, stream};

use super::{Tallied, Word, each, each_run, poll_next, sums};
use crate::support::{Alarm, block_on, executor, executors, poll_once, until};

/// Phases with an async node and a state, with a loop, and with a branch. Adds 3 to each sum.
fn mixture(tally: &Tallied) -> Pipeline<Word, Word> {
    let [in_loop, in_branch, first] = [(); 3].map(|()| tally.clone());
    each(move |g: &mut Graph, item: Value<Word>| {
        let mut total = g.state("total", move || first.word(0, 0));
        let copy = g.future("copy", &item, async |x: Arc<Word>| {
            smol::future::yield_now().await;
            Ok(Word::clone(&x))
        });
        let sum = g.task("sum", (&mut total, &copy), move |total: &mut Word, x: &Word| {
            *total = in_loop.word(0, total.get() + x.get());
            total.clone()
        });
        let tally = in_branch.clone();
        let looped = g.repeat("loop", take(&sum), times(2), move |b, x| {
            let tally = tally.clone();
            b.task("add", take(&x), move |x: Word| tally.word(0, x.get() + 1))
        });
        let which = g.task("which", &looped, |x: &Word| i64::from(x.get().is_multiple_of(2)));
        let tally = in_branch.clone();
        g.branch("branch", &which, take(&looped))
            .arm(move |a, x| a.task("add", take(&x), move |x: Word| tally.word(0, x.get() + 1)))
            .arm(move |a, x| a.task("add too", take(&x), move |x: Word| in_branch.word(0, x.get() + 1)))
            .join()
    })
}

/// Words from 1 on.
fn words(tally: &Tallied) -> impl Stream<Item = Word> + Unpin + Send + use<> {
    let tally = tally.clone();
    stream::iter(1..).map(move |item| tally.word(item, item))
}

/// Checks that the executor holds no values of any pipeline, and that the pipeline still runs.
fn is_as_before(exec: &Executor, pipeline: &Pipeline<Word, Word>, tally: &Tallied) {
    until(|| tally.alive() == 0 && exec.in_limbo() == 0 && exec.in_flight() == 0);
    let results = block_on(exec.pipe(pipeline, words(tally).take(4)).map(|word| word.unwrap().get()).collect::<Vec<_>>());
    assert_eq!(results, [4, 6, 9, 13]);
    until(|| tally.alive() == 0 && exec.in_flight() == 0);
}

fn beats(pipeline: Pipeline<Word, Word>) -> [Pipeline<Word, Word>; 3] {
    let few = pipeline.clone().in_flight(1).unwrap();
    let lockstep = pipeline.clone().beat(Beat::Lockstep).unwrap();
    [pipeline, few, lockstep]
}

#[test]
fn a_pipeline_may_be_dropped_after_any_poll() {
    // Seen to leak (lockstep, workers) when a cancel does not arrive at the gates for items that do not come.
    let tally = Tallied::default();
    for (exec, pipeline) in
        executors().into_iter().flat_map(|exec| beats(mixture(&tally)).map(|pipeline| (exec.clone(), pipeline)))
    {
        for polls in 0..25 {
            let mut results = exec.pipe(&pipeline, words(&tally));
            (0..polls).for_each(|_| _ = poll_next(&mut results));
            drop(results);
            is_as_before(&exec, &pipeline, &tally);
        }
    }
}

#[test]
fn a_pipeline_may_be_cancelled_after_any_poll_and_again() {
    let tally = Tallied::default();
    for (exec, pipeline) in
        executors().into_iter().flat_map(|exec| beats(mixture(&tally)).map(|pipeline| (exec.clone(), pipeline)))
    {
        for polls in 0..20 {
            let mut results = exec.pipe(&pipeline, words(&tally));
            (0..polls).for_each(|_| _ = poll_next(&mut results));
            results.cancel();
            results.cancel();
            let rest = block_on(results.by_ref().collect::<Vec<_>>());
            let (last, given) = rest.split_last().unwrap();
            assert!(
                last.as_ref().is_err_and(|error| error.is_cancelled()) && given.iter().all(Result::is_ok),
                "{exec:?}: {polls}"
            );
            results.cancel();
            assert!(block_on(results.next()).is_none());
            drop((rest, results));
            is_as_before(&exec, &pipeline, &tally);
        }
    }
}

#[test]
fn after_the_end_a_cancel_does_nothing() {
    for (exec, pipeline) in each_run(2) {
        let mut results = exec.pipe(&pipeline, stream::iter(0..3));
        let canceller = results.canceller();
        assert_eq!(block_on(results.by_ref().map(Result::unwrap).collect::<Vec<_>>()), [2, 3, 4]);
        canceller.cancel();
        assert!(block_on(results.next()).is_none());
        drop(results);
        canceller.cancel();
    }
}

/// A pipeline whose first node waits for a message for its item 0, and signals that it waits.
fn gated() -> (Pipeline<u64, u64>, Arc<AtomicUsize>, mpsc::Sender<()>) {
    let ((open, gate), started) = (mpsc::channel(), Arc::new(AtomicUsize::new(0)));
    let (gate, counted) = (Mutex::new(gate), started.clone());
    let pipeline = each(|g, item| {
        let first = g.task("first", &item, move |x: &u64| {
            if *x == 0 {
                counted.fetch_add(1, SeqCst);
                gate.lock().unwrap().recv().unwrap();
            }
            *x
        });
        g.task("second", &first, |x: &u64| *x)
    });
    (pipeline, started, open)
}

#[test]
fn dropping_does_not_wait_for_a_task_that_blocks() {
    // The only bound on a time: the shortest of five, so that a busy machine does not fail it.
    for workers in [1, 2, 8] {
        let (exec, (pipeline, started, open)) = (executor(workers), gated());
        let least = (0..5).map(|turn| {
            let mut results = exec.pipe(&pipeline, stream::iter(0..));
            assert!(poll_next(&mut results).is_pending());
            until(|| started.load(SeqCst) == turn + 1);
            let since = std::time::Instant::now();
            drop(results);
            let took = since.elapsed();
            assert_eq!(exec.in_limbo(), 1);
            open.send(()).unwrap();
            until(|| exec.in_limbo() == 0 && exec.in_flight() == 0);
            took
        });
        let least = least.min().unwrap();
        assert!(least < Duration::from_millis(1), "{least:?}");
    }
}

#[test]
fn another_thread_may_cancel() {
    for (exec, pipeline) in each_run(2) {
        let mut results = exec.pipe(&pipeline, stream::pending());
        let (alarm, waker) = Alarm::new();
        assert!(Pin::new(&mut results).poll_next(&mut Context::from_waker(&waker)).is_pending());
        let canceller = results.canceller();
        std::thread::spawn(move || canceller.cancel()).join().unwrap();
        until(|| alarm.rings() > 0);
        assert!(block_on(results.next()).unwrap().unwrap_err().is_cancelled());
        until(|| exec.in_flight() == 0);
    }
}

#[test]
fn a_node_may_cancel_its_own_pipeline() {
    let shared: Arc<Mutex<Option<Canceller>>> = Arc::default();
    for (exec, beat) in executors().into_iter().flat_map(|exec| [(exec.clone(), Beat::Elastic), (exec, Beat::Lockstep)]) {
        let own = shared.clone();
        let pipeline = each(move |g, item| {
            let first = g.task("first", &item, |x: &u64| *x);
            g.task("second", &first, move |x: &u64| {
                if *x == 5 {
                    own.lock().unwrap().as_ref().unwrap().cancel();
                }
                *x
            })
        });
        let mut results = exec.pipe(&pipeline.beat(beat).unwrap(), stream::iter(0..));
        *shared.lock().unwrap() = Some(results.canceller());
        let given = block_on(results.by_ref().collect::<Vec<_>>());
        assert!(given.last().unwrap().as_ref().is_err_and(|error| error.is_cancelled()), "{exec:?}");
        assert!(given.iter().map_while(|result| result.as_ref().ok()).copied().eq(0..given.len() as u64 - 1));
        until(|| exec.in_flight() == 0);
    }
}

#[test]
fn a_cancel_while_the_states_are_made_ends_the_pipeline() {
    let shared: Arc<Mutex<Option<Canceller>>> = Arc::default();
    for exec in executors() {
        let own = shared.clone();
        let pipeline = each(move |g, item| {
            let mut state = g.state("state", move || own.lock().unwrap().as_ref().unwrap().cancel());
            g.task("node", (&mut state, &item), |(): &mut (), x: &u64| *x)
        });
        let mut results = exec.pipe(&pipeline, stream::iter(0..));
        *shared.lock().unwrap() = Some(results.canceller());
        assert!(block_on(results.next()).unwrap().unwrap_err().is_cancelled(), "{exec:?}");
        assert!(block_on(results.next()).is_none());
        until(|| exec.in_flight() == 0);
    }
}

#[test]
fn a_shutdown_ends_a_pipeline_whose_consumer_does_not_poll() {
    // Seen to hang (lockstep, workers) when a cancel does not arrive at the gates for items that do not come.
    let tally = Tallied::default();
    for (polls, pipeline) in (0..6).flat_map(|polls| beats(mixture(&tally)).map(|pipeline| (polls, pipeline))) {
        for exec in executors() {
            let mut results = exec.pipe(&pipeline, words(&tally));
            (0..polls).for_each(|_| _ = poll_next(&mut results));
            block_on(exec.shutdown()).unwrap();
            let rest = block_on(results.by_ref().collect::<Vec<_>>());
            assert!(rest.last().unwrap().as_ref().is_err_and(|error| error.is_shut_down()), "{exec:?}: {:?}", rest.len());
            drop((rest, results, exec));
            until(|| tally.alive() == 0);
        }
    }
}

#[test]
fn dropping_the_executor_ends_a_pipeline() {
    let tally = Tallied::default();
    for polls in 0..6 {
        for exec in executors() {
            let mut results = exec.pipe(&sums(&tally, 2).beat(Beat::Lockstep).unwrap(), words(&tally));
            (0..polls).for_each(|_| _ = poll_next(&mut results));
            drop(exec);
            let rest = block_on(results.by_ref().collect::<Vec<_>>());
            assert!(rest.last().unwrap().as_ref().is_err_and(|error| error.is_shut_down()));
            drop((rest, results));
            until(|| tally.alive() == 0);
        }
    }
}

#[test]
fn a_forgotten_pipeline_leaks_and_harms_nobody() {
    let tally = Tallied::default();
    for exec in executors() {
        let pipeline = sums(&tally, 1);
        for polls in 0..4 {
            let mut results = exec.pipe(&pipeline, words(&tally));
            (0..polls).for_each(|_| _ = poll_next(&mut results));
            std::mem::forget(results);
            let sums = block_on(exec.pipe(&pipeline, words(&tally)).take(4).map(|sum| sum.unwrap().get()).collect::<Vec<_>>());
            assert_eq!(sums, [1, 3, 6, 10]);
        }
        let mut shutdown = exec.shutdown();
        until(|| poll_once(&mut shutdown).is_ready());
        let _ = tally.alive();
    }
}

#[test]
fn a_pipeline_may_be_dropped_while_unwinding() {
    let tally = Tallied::default();
    let pipeline = mixture(&tally);
    for exec in executors() {
        for polls in 0..8 {
            let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut results = exec.pipe(&pipeline, words(&tally));
                (0..polls).for_each(|_| _ = poll_next(&mut results));
                crate::support::panic_quietly("with results to come");
            }));
            assert!(unwound.is_err());
            is_as_before(&exec, &pipeline, &tally);
        }
    }
}

#[test]
fn results_that_are_there_are_given_out_after_a_cancel() {
    for exec in executors().into_iter().filter(|exec| exec.workers() > 0) {
        let ended = Arc::new(AtomicUsize::new(0));
        let counted = ended.clone();
        let pipeline = each(move |g, item| {
            g.task("node", &item, move |x: &u64| {
                counted.fetch_add(1, SeqCst);
                *x
            })
        });
        let mut results = exec.pipe(&pipeline, stream::iter(0..4));
        let first = poll_next(&mut results);
        until(|| ended.load(SeqCst) == 4);
        let given = usize::from(matches!(first, Poll::Ready(Some(Ok(0)))));
        results.cancel();
        let rest = block_on(results.collect::<Vec<_>>());
        assert!(rest.iter().filter_map(|result| result.as_ref().ok()).copied().eq(given as u64..(given + rest.len()) as u64 - 1));
    }
}

#[test]
fn an_item_that_a_cancel_keeps_from_beginning_has_no_result() {
    // The source cancels while it is polled for an item. Seen to fail (a panic in a poll) in lockstep, when
    // an item was taken as done because the previous item in its place was done.
    for (cancelled_at, failed_at) in (0..8).flat_map(|at| (0..8).map(move |failed| (at, failed))) {
        for (exec, beat) in executors().into_iter().flat_map(|exec| [(exec.clone(), Beat::Lockstep), (exec, Beat::Elastic)]) {
            let pipeline = each(move |g, item: Value<u64>| {
                let checked =
                    g.try_task("checked", &item, move |x: &u64| if *x == failed_at { Err("bad".into()) } else { Ok(*x) });
                crate::support::chain(g, &checked, 2)
            });
            let pipeline = pipeline.in_flight(3).and_then(|pipeline| pipeline.beat(beat)).unwrap();
            let canceller = Arc::new(Mutex::new(None::<Canceller>));
            let (theirs, mut next) = (canceller.clone(), 0..);
            let source = stream::poll_fn(move |_| {
                let item = next.next();
                if item == Some(cancelled_at) {
                    theirs.lock().unwrap().iter().for_each(Canceller::cancel);
                }
                Poll::Ready(item)
            });
            let results = exec.pipe(&pipeline, source);
            *canceller.lock().unwrap() = Some(results.canceller());
            let found: Vec<_> = block_on(results.collect());
            let (last, before) = found.split_last().unwrap();
            assert!(last.as_ref().unwrap_err().is_cancelled(), "{last:?}");
            for (item, result) in (0..).zip(before) {
                assert_eq!(
                    result.as_ref().ok(),
                    (item != failed_at).then_some(&(item + 2)),
                    "{beat:?} {cancelled_at} {failed_at}"
                );
            }
        }
    }
}
