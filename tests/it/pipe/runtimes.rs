//! Pipelines under every runtime, and under none.

use std::sync::Arc;
use std::time::Duration;

use anabranch::Executor;
use futures::{FutureExt, StreamExt, TryStreamExt, future::Either, stream};
use tokio::runtime::{Builder, Runtime};

use super::{Tallied, chained, each, sums};
use crate::support::{block_on, executors, until};

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs the suite with a function that blocks on a future.
macro_rules! under {
    ($($name:ident: $block_on:expr),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                for exec in executors() {
                    $block_on(every_kind_of_use(exec));
                }
            }
        )*
    };
}

under! {
    pipelines_work_without_a_runtime: block_on,
    pipelines_work_under_smol: |suite| smol::block_on(suite),
    pipelines_work_in_a_task_of_smol: |suite| smol::block_on(smol::spawn(suite)),
    pipelines_work_under_one_thread_of_tokio: |suite| one_thread().block_on(suite),
    pipelines_work_under_tokio: |suite| Runtime::new().unwrap().block_on(suite),
    pipelines_work_in_a_task_of_tokio: |suite| {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(runtime.spawn(suite)).unwrap();
    },
}

async fn every_kind_of_use(exec: Executor) {
    let tally = Tallied::default();
    let pipeline = sums(&tally, 2);
    let source = || {
        let tally = tally.clone();
        stream::iter(1..=30).map(move |item| tally.word(item, item))
    };
    let sums = exec.pipe(&pipeline, source()).map(|sum| sum.unwrap().get()).collect::<Vec<_>>().await;
    assert!(sums.into_iter().eq((1..=30).map(|item| item * (item + 1) / 2)));

    let slow = source().then(async |word| {
        smol::future::yield_now().await;
        word
    });
    assert_eq!(exec.pipe(&pipeline, Box::pin(slow)).try_collect::<Vec<_>>().await.unwrap().len(), 30);

    let mut results = exec.pipe(&pipeline, source());
    assert_eq!(results.try_next().await.unwrap().unwrap().get(), 1);
    results.cancel();
    assert!(results.try_collect::<Vec<_>>().await.unwrap_err().is_cancelled());

    let mut dropped = exec.pipe(&pipeline, source());
    let _ = dropped.next().now_or_never();
    drop(dropped);
    exec.idle().await.unwrap();
    until(|| tally.alive() == 0);
    exec.shutdown().await.unwrap();
}

#[test]
fn an_endless_source_lets_a_timer_of_the_same_thread_run() {
    // Seen to hang without the cooperative budget.
    let runtime = one_thread();
    for exec in executors() {
        runtime.block_on(async {
            let results = exec.pipe(&chained(2), stream::iter(0u64..));
            let endless = tokio::spawn(results.for_each(async |result| _ = result.unwrap()));
            tokio::time::sleep(Duration::from_millis(1)).await;
            endless.abort();
            assert!(endless.await.unwrap_err().is_cancelled());
            exec.idle().await.unwrap();
        });
    }
}

#[test]
fn a_pipeline_may_lose_against_a_timeout_and_go_on() {
    let runtime = one_thread();
    for exec in executors() {
        runtime.block_on(async {
            let (send, source) = futures::channel::mpsc::unbounded();
            let mut results = exec.pipe(&chained(2), source);
            for item in 0..3 {
                tokio::select! {
                    _ = results.next() => panic!("nothing was sent"),
                    () = tokio::time::sleep(Duration::from_millis(1)) => {}
                }
                send.unbounded_send(item).unwrap();
                assert_eq!(results.next().await.unwrap().unwrap(), item + 2);
            }
            drop(send);
            assert!(results.next().await.is_none());
        });
    }
}

#[test]
fn a_pipeline_may_move_from_task_to_task() {
    // Seen to hang with a waker that is not registered.
    let runtime = Runtime::new().unwrap();
    for exec in executors() {
        let tally = Tallied::default();
        let source = stream::iter(1..=20).map({
            let tally = tally.clone();
            move |item| tally.word(item, item)
        });
        let mut results = exec.pipe(&sums(&tally, 3), source);
        for item in 1..=20u64 {
            let moved = runtime.spawn(async move {
                let polled = futures::poll!(results.next());
                (results, polled)
            });
            let (mut back, polled) = runtime.block_on(moved).unwrap();
            let result = match polled {
                std::task::Poll::Ready(result) => result,
                std::task::Poll::Pending => block_on(back.next()),
            };
            assert_eq!(result.unwrap().unwrap().get(), item * (item + 1) / 2);
            results = back;
        }
    }
}

#[test]
fn async_nodes_use_the_timers_of_the_runtime_that_polls_the_pipeline() {
    for runtime in [one_thread(), Runtime::new().unwrap()] {
        for exec in executors() {
            let pipeline = each(|g, item| {
                g.future("sleeps", &item, async |x: Arc<u64>| {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok(*x)
                })
            });
            let results = runtime.block_on(exec.pipe(&pipeline, stream::iter(0..10)).try_collect::<Vec<_>>());
            assert_eq!(results.unwrap(), (0..10).collect::<Vec<_>>());
        }
    }
}

#[test]
fn results_go_through_other_combinators() {
    for exec in executors() {
        let ahead = exec.pipe(&chained(2), stream::iter(0..30)).ready_chunks(4).map(stream::iter).flatten();
        let timer = std::pin::pin!(smol::Timer::after(Duration::from_secs(60)));
        let all = std::pin::pin!(ahead.try_collect::<Vec<u64>>());
        match block_on(futures::future::select(all, timer)) {
            Either::Left((found, _)) => assert_eq!(found.unwrap(), (2..32).collect::<Vec<_>>(), "{exec:?}"),
            Either::Right(_) => panic!("it hangs"),
        }
    }
}
