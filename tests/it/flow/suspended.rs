//! Ten thousand pending flows need no more threads and little memory.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use anabranch::{Flow, Op};
use futures::channel::oneshot;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::support::{block_on, executors, until};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[test]
fn ten_thousand_flows_wait_without_a_thread_each() {
    for exec in executors() {
        let (begun, mut senders) = (Arc::new(AtomicU32::new(0)), Vec::new());
        let mut runs: FuturesUnordered<_> = (0..10_000_u64)
            .map(|number| {
                let (sender, receiver) = oneshot::channel::<u64>();
                senders.push(sender);
                let begun = begun.clone();
                exec.flow(async move |f: &Flow| {
                    let x = f.value("x", number);
                    let wait = Op::future("wait", &x, &x, move |x: Arc<u64>| async move {
                        begun.fetch_add(1, SeqCst);
                        Ok(*x + receiver.await?)
                    });
                    drop(f.node(wait));
                    f.get(&x).await.map(|x| *x)
                })
            })
            .collect();
        let before = threads();
        until(|| {
            let polled = block_on(async { futures::poll!(runs.next()) });
            assert!(polled.is_pending());
            begun.load(SeqCst) == 10_000
        });
        // Other tests of this process start and end threads, but far fewer than ten thousand.
        assert!(threads() < before + 1000);
        senders.into_iter().for_each(|sender| sender.send(1).unwrap());
        let sum = block_on(runs.fold(0, async |sum, x| sum + x.unwrap()));
        assert_eq!(sum, (0..10_000).sum::<u64>() + 10_000);
    }
}

#[test]
fn dropping_flows_that_wait_ends_all_of_them() {
    for exec in executors() {
        let alive = Arc::new(());
        let runs: Vec<_> = (0..1000)
            .map(|_| {
                let held = alive.clone();
                let mut run = Box::pin(exec.flow(async move |f: &Flow| {
                    let x = f.future("wait", (), move || async move {
                        pending::<()>().await;
                        drop(held);
                        Ok(1)
                    });
                    f.get(&x).await.map(|x| *x)
                }));
                assert!(crate::support::poll_once(&mut run).is_pending());
                run
            })
            .collect();
        drop(runs);
        until(|| Arc::strong_count(&alive) == 1);
    }
}
