//! A tokio task for each task of the chain, with a bounded channel before and after each. Each task has its
//! items one at a time, in order, with or without a state.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use super::Peer;
use crate::chain::Chain;
use crate::paced::{item_ns, spin};

/// The multi-thread runtime, or for inline the current-thread one.
pub(super) struct Channels;

impl Peer for Channels {
    fn name(&self) -> &'static str {
        "tokio channels"
    }

    fn run(&mut self, chain: &Chain, target: Duration) -> Option<f64> {
        let builder = match chain.workers {
            0 => Builder::new_current_thread().build(),
            workers => Builder::new_multi_thread().worker_threads(workers).build(),
        };
        let runtime = builder.expect("threads can be started");
        Some(item_ns(chain, target, |items| run(&runtime, chain, items)))
    }
}

fn run(runtime: &Runtime, chain: &Chain, items: u64) -> u64 {
    let (source, mut results) = mpsc::channel(chain.in_flight);
    runtime.spawn(async move {
        for item in 0..items {
            source.send(item).await.expect("the tasks go on to the end");
        }
    });
    for _ in 0..chain.tasks {
        results = task(runtime, results, chain.in_flight, chain.work_ns);
    }
    // A task computes the sum, too: on several threads, `block_on` would poll it on an additional thread.
    let sum = runtime.spawn(async move {
        let mut sum = 0;
        while let Some(result) = results.recv().await {
            sum += result;
        }
        sum
    });
    runtime.block_on(sum).expect("no task panics")
}

/// Starts a task of the chain. Returns its results.
fn task(runtime: &Runtime, mut items: mpsc::Receiver<u64>, capacity: usize, work_ns: u64) -> mpsc::Receiver<u64> {
    let (sender, results) = mpsc::channel(capacity);
    runtime.spawn(async move {
        while let Some(item) = items.recv().await {
            spin(work_ns);
            sender.send(item + 1).await.expect("the tasks go on to the end");
        }
    });
    results
}
