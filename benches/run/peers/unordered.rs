//! A `FuturesUnordered` of the ready nodes, polled by the thread that waits for the run.

use futures::StreamExt;
use futures::executor::block_on;
use futures::stream::FuturesUnordered;

use super::{Load, Peer, Workers};
use crate::job::{Job, measure};
use crate::shapes::Shape;

/// One future per node, pushed once the node is ready.
pub(crate) struct Unordered;

impl Peer for Unordered {
    fn name(&self) -> &'static str {
        "FuturesUnordered"
    }

    fn run(&mut self, shape: &Shape, load: &Load) -> Option<f64> {
        let is_inline = load.workers == Workers::Inline;
        is_inline.then(|| measure(shape, load, |job| block_on(run(job))))
    }

    fn is_slow(&self) -> bool {
        true
    }
}

async fn run(job: &Job) {
    let mut ready: FuturesUnordered<_> = job.roots().map(|root| work(job, root)).collect();
    while let Some(node) = ready.next().await {
        job.finish(node, |next| ready.push(work(job, next)));
    }
    job.done().await;
}

async fn work(job: &Job, node: u32) -> u32 {
    job.work(node);
    node
}
