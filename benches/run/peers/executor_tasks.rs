//! An `async-executor` task per node, spawned by the last of its predecessors to finish.

use std::sync::Arc;
use std::thread;

use async_executor::Executor;
use smol::channel;
use smol::future::block_on;

use super::{Load, Peer, Workers};
use crate::job::{Job, measure};
use crate::shapes::Shape;

/// Global, as in `smol` itself, so that a task reaches it without counting references.
static EXECUTOR: Executor<'static> = Executor::new();

/// An executor run by the given number of threads.
pub(crate) struct ExecutorTasks;

impl Peer for ExecutorTasks {
    fn name(&self) -> &'static str {
        "async-executor"
    }

    fn run(&mut self, shape: &Shape, load: &Load) -> Option<f64> {
        let Workers::Threads(workers) = load.workers else { return None };
        thread::scope(|scope| {
            let (stop, stopped) = channel::bounded::<()>(1);
            for _ in 0..workers {
                let stopped = stopped.clone();
                scope.spawn(move || block_on(EXECUTOR.run(stopped.recv())));
            }
            let figure = measure(shape, load, |job| block_on(EXECUTOR.spawn(run(job.clone()))));
            // Closes the channel, which ends every worker's `recv` and so its `run`.
            drop(stop);
            Some(figure)
        })
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
    let task = EXECUTOR.spawn(async move {
        job.work(node);
        job.finish(node, |next| spawn(&job, next));
    });
    task.detach();
}
