//! Flows have no effect on their surroundings, however deep they are, and however long or often they are
//! polled.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anabranch::{Executor, Flow, Op, Result};
use futures::channel::oneshot;
use futures::future::join_all;

use super::suspend;
use crate::support::{Deed, block_on, executor, executors, hooked, panic_quietly, poll_once, poll_with};

#[test]
fn a_thousand_spurious_polls_change_nothing() {
    for exec in executors() {
        let (sender, receiver) = oneshot::channel::<u64>();
        let mut run = Box::pin(exec.flow(async move |f: &Flow| {
            let x = f.future("wait", (), move || async move { Ok(receiver.await?) });
            let y = f.task("add", &x, |x: &u64| x + 1);
            f.get(&y).await.map(|y| *y)
        }));
        assert!((0..1000).all(|_| poll_once(&mut run).is_pending()));
        sender.send(41).unwrap();
        assert_eq!(block_on(run).unwrap(), 42);
    }
}

/// A flow, with an operation that awaits such a flow, and so on.
fn nested(exec: Executor, depth: u64) -> Pin<Box<dyn Future<Output = Result<u64>> + Send>> {
    Box::pin(async move {
        let there = exec.clone();
        let run = exec.flow(async move |f: &Flow| {
            if depth == 0 {
                return Ok(0);
            }
            let below = f.future("below", (), move || async move { Ok(nested(there, depth - 1).await? + 1) });
            f.get(&below).await.map(|below| *below)
        });
        run.await
    })
}

#[test]
fn flows_wait_for_flows_64_deep() {
    for workers in [0, 1, 2] {
        assert_eq!(block_on(nested(executor(workers), 64)).unwrap(), 64);
    }
    assert_eq!(block_on(nested(Executor::sim(5), 64)).unwrap(), 64);
}

#[test]
fn timers_fire_while_operations_block_every_worker() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exec = executor(2);
    let (open, opened) = mpsc::channel::<()>();
    let opened = Arc::new(Mutex::new(opened));
    runtime.block_on(async {
        let blocked = exec.flow(async |f: &Flow| {
            for _ in 0..2 {
                let opened = opened.clone();
                drop(f.task("block", (), move || opened.lock().map(|opened| opened.recv().is_err()).unwrap_or(false)));
            }
            f.get(&f.task("late", (), || 1)).await.map(|one| *one)
        });
        let mut blocked = Box::pin(blocked);
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut blocked).await.is_err());
        drop(open);
        assert_eq!(blocked.await.unwrap(), 1);
    });
}

#[test]
fn an_endless_flow_starves_none_of_a_thousand_others() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for exec in executors() {
        runtime.block_on(async {
            let endless = exec.flow(async |f: &Flow| -> Result<()> {
                let x = f.value("x", 0_u64);
                loop {
                    f.node(Op::task("add", &x, &x, |x: &u64| x + 1)).await?;
                }
            });
            let short = |number: u64| {
                exec.flow(async move |f: &Flow| {
                    let x = f.future("suspend", (), move || async move {
                        suspend().await;
                        Ok(number)
                    });
                    f.get(&x).await.map(|x| *x)
                })
            };
            let canceller = endless.canceller();
            let endless = async {
                assert!(endless.await.unwrap_err().is_cancelled());
            };
            let others = async {
                let sum = join_all((0..1000).map(short)).await.into_iter().try_fold(0, |sum, x| x.map(|x| sum + x));
                canceller.cancel();
                sum
            };
            let ((), sum) = tokio::join!(endless, others);
            assert_eq!(sum.unwrap(), (0..1000).sum::<u64>());
        });
    }
}

#[test]
fn a_waker_that_panics_harms_no_other_flow() {
    for deed in [Deed::Wake, Deed::Clone, Deed::Drop] {
        for exec in executors() {
            let (sender, receiver) = oneshot::channel::<u64>();
            let x = block_on(exec.flow(async |f: &Flow| Ok(f.future("wait", (), move || async move { Ok(receiver.await?) }))));
            let x = x.unwrap();
            let wait = || Box::pin(exec.flow(async |f: &Flow| f.get(&x).await.map(|x| *x)));
            let (mut good, mut bad) = (wait(), wait());
            assert!(poll_once(&mut good).is_pending());
            let panics = Arc::new(AtomicBool::new(false));
            let asked = panics.clone();
            let waker = hooked(move |done| {
                if done == deed && asked.load(SeqCst) {
                    panic_quietly("a rude waker");
                }
            });
            panics.store(true, SeqCst);
            let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll_with(&mut bad, &waker)));
            assert!(!matches!(polled, Ok(Poll::Ready(_))));
            sender.send(7).unwrap();
            assert_eq!(block_on(good).unwrap(), 7);
            panics.store(false, SeqCst);
            drop(bad);
        }
    }
}

#[test]
fn a_waker_that_asks_for_more_does_not_deadlock() {
    for exec in executors() {
        let (sender, receiver) = oneshot::channel::<u64>();
        let again = exec.clone();
        let mut run = Box::pin(exec.flow(async move |f: &Flow| {
            let x = f.future("wait", (), move || async move { Ok(receiver.await?) });
            f.get(&x).await.map(|x| *x)
        }));
        let canceller = run.canceller();
        let waker = hooked(move |done| {
            if done == Deed::Wake {
                let mut other = Box::pin(again.flow(async |f: &Flow| f.get(&f.value("x", 1)).await));
                let _ = other.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                canceller.cancel();
            }
        });
        assert!(poll_with(&mut run, &waker).is_pending());
        // A long first poll has woken its own task, and so cancelled the flow.
        let _ = sender.send(7);
        let _ = block_on(run);
    }
}

/// Works for longer than the time slice of a flow's poll.
fn work_long() {
    let started = std::time::Instant::now();
    while started.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
}

/// Seen to fail (no task is woken again) with a time slice that only the flow's own poll renews.
#[test]
fn clones_of_a_flow_wait_in_other_tasks_and_in_operations() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for exec in executors() {
        let sum = runtime.block_on(exec.flow(async |f: &Flow| {
            let parts = (0..4_u64).map(|number| {
                let f = f.clone();
                tokio::spawn(async move {
                    work_long();
                    let x = f.value("x", number);
                    let twice = f.task("twice", &x, |x: &u64| 2 * x);
                    Ok::<_, anabranch::Error>(*f.get(&x).await? + *f.get(&twice).await?)
                })
            });
            let (there, y) = (f.clone(), f.value("y", 100_u64));
            let inside = f.future("inside", (), move || async move {
                work_long();
                Ok(*there.get(&y).await?)
            });
            let parts = join_all(parts).await.into_iter().map(Result::unwrap);
            Ok(parts.sum::<Result<u64>>()? + *f.get(&inside).await?)
        }));
        assert_eq!(sum.unwrap(), 18 + 100);
    }
}

/// Failed at first (25 ms a drop): each drop examined all ready operations. Takes the best of twenty drops,
/// so that a busy machine does not fail it.
#[test]
fn the_drop_of_a_flow_does_not_grow_with_what_other_flows_have_ready() {
    let mut senders = Vec::new();
    let exec = Executor::inline();
    let flow = |_| {
        let (sender, receiver) = oneshot::channel::<u64>();
        senders.push(sender);
        Box::pin(exec.flow(async move |f: &Flow| {
            let x = f.future("wait", (), move || async move { Ok(receiver.await?) });
            f.get(&x).await.map(|x| *x)
        }))
    };
    let mut flows: Vec<_> = (0..20_000).map(flow).collect();
    flows.iter_mut().for_each(|flow| assert!(poll_once(flow).is_pending()));
    senders.into_iter().for_each(|sender| sender.send(1).unwrap());
    let time_of = |flow| {
        let started = std::time::Instant::now();
        drop(flow);
        started.elapsed()
    };
    let best = flows.drain(..20).map(time_of).min().unwrap();
    assert!(best < Duration::from_micros(200), "{best:?}");
    assert!(block_on(join_all(flows)).into_iter().all(|value| value.unwrap() == 1));
}
