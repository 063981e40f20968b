//! The operations, pushed to an engine.

use std::time::Instant;

use anabranch::engine::Each;
use anabranch::{Engine, Executor, Op, Var};
use futures::executor::block_on;

use crate::workload::Workload;

/// The bound on pending operations of the engine, and of the peer.
pub(crate) const PENDING_MAX: usize = 65_536;

/// Pushes the operations of a workload.
macro_rules! push_all {
    ($to:ident, $workload:ident, $vars:ident) => {
        for (write, reads) in $workload.iter() {
            match (write, reads) {
                (Some(write), &[read]) => push!($to, &$vars[read], &$vars[write], |x: &u64| x.wrapping_add(1)),
                (None, &[read]) => push!($to, &$vars[read], (), |x: &u64| _ = std::hint::black_box(*x)),
                (write, reads) => {
                    let reads: Vec<&Var<u64>> = reads.iter().map(|&read| &$vars[read]).collect();
                    let sum = |values: Each<u64>| values.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value));
                    push!($to, &reads[..], &$vars[write.expect("what reads much writes")], sum)
                }
            }
        }
    };
}

macro_rules! push {
    ($to:ident, $reads:expr, $writes:expr, $work:expr) => {
        drop($to.push(Op::task("op", $reads, $writes, $work)).await.expect("it is right"))
    };
}

/// Returns the ns per operation.
pub(crate) fn run(workload: &Workload, workers: usize, bulk: usize) -> f64 {
    let exec = Executor::builder().workers(workers).build().expect("threads start");
    let engine = Engine::builder(&exec).max_pending(PENDING_MAX).build().expect("it has room");
    let vars: Vec<Var<u64>> = (0..workload.vars).map(|_| engine.var("v", 1)).collect();
    let push_all = || {
        block_on(async {
            if workload.awaited.is_some() {
                push_and_await(&engine, workload, &vars).await;
            } else if bulk > 1 {
                push_joined(&engine, workload, &vars, bulk).await;
            } else {
                push_all!(engine, workload, vars);
            }
            engine.idle().await.expect("nothing fails");
        });
    };
    push_all();
    let start = Instant::now();
    push_all();
    start.elapsed().as_nanos() as f64 / workload.len() as f64
}

/// A separate function, because the collected references must outlive the bulk.
async fn push_joined(engine: &Engine, workload: &Workload, vars: &[Var<u64>], operations_max: usize) {
    let reads = |reads: &[usize]| reads.iter().map(|&read| &vars[read]).collect();
    // Only workloads with wide operations collect lists: for the others, this pass would be measured too.
    let lists = workload.has_wide().then(|| workload.iter().map(|(_, list)| list));
    let wide: Vec<Vec<&Var<u64>>> = lists.into_iter().flatten().filter(|list| list.len() > 1).map(reads).collect();
    let (mut bulk, mut wide) = (engine.bulk(operations_max), wide.iter());
    for (write, list) in workload.iter() {
        let op = match (write, list) {
            (Some(write), &[read]) => Op::task("op", &vars[read], &vars[write], |x: &u64| x.wrapping_add(1)),
            (None, &[read]) => Op::task("op", &vars[read], (), |x: &u64| _ = std::hint::black_box(*x)),
            (write, _) => {
                let sum = |values: Each<u64>| values.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value));
                let reads = wide.next().expect("there is one for each such operation");
                Op::task("op", &reads[..], &vars[write.expect("what reads much writes")], sum)
            }
        };
        bulk.push(op).await.expect("it is right");
    }
    bulk.end().await.expect("it is right");
}

/// A separate function: a handle that may be awaited is kept elsewhere than one that is dropped at once.
async fn push_and_await(engine: &Engine, workload: &Workload, vars: &[Var<u64>]) {
    for (number, (write, reads)) in workload.iter().enumerate() {
        let op = Op::task("op", &vars[reads[0]], &vars[write.unwrap_or(0)], |x: &u64| x.wrapping_add(1));
        let pushed = engine.push(op).await.expect("it is right");
        if workload.is_awaited(number) {
            pushed.await.expect("nothing fails");
        }
    }
}
