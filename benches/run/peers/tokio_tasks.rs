//! A tokio task per node, spawned by the last of its predecessors to finish.

use std::sync::Arc;

use tokio::runtime::Builder;

use super::{Load, Peer, Workers};
use crate::job::{Job, measure};
use crate::shapes::Shape;

/// The multi-thread runtime with the given number of workers.
pub(crate) struct TokioTasks;

impl Peer for TokioTasks {
    fn name(&self) -> &'static str {
        "tokio"
    }

    fn run(&mut self, shape: &Shape, load: &Load) -> Option<f64> {
        let Workers::Threads(workers) = load.workers else { return None };
        let runtime = Builder::new_multi_thread().worker_threads(workers).build().expect("threads can be started");
        // The run is itself a task, so that its roots go to a worker's own queue, not through the shared one.
        let run_once = |job: &Arc<Job>| {
            let task = runtime.spawn(run(job.clone()));
            runtime.block_on(task).expect("no body panics");
        };
        Some(measure(shape, load, run_once))
    }

    fn is_slow(&self) -> bool {
        true
    }
}

async fn run(job: Arc<Job>) {
    job.roots().for_each(|root| spawn(&job, root));
    job.done().await;
}

fn spawn(job: &Arc<Job>, node: u32) {
    let job = job.clone();
    tokio::spawn(async move {
        job.work(node);
        job.finish(node, |next| spawn(&job, next));
    });
}
