//! The rows, by tasks of tokio: a task for each node, awaited by the one that spawned it.

use futures::future::join_all;
use tokio::runtime::{Builder, Runtime};

use crate::rows::{CHAIN, FAN, FAN_UNITS, HANDED, HANDED_UNITS, Kind, Row};
use crate::work::{Work, untimed_ns};

const TIMES: u32 = 2_000;

/// Returns the figure of a row, if there is one.
pub(crate) fn figure(row: &Row, work: Work) -> Option<f64> {
    let runtime = runtime(row.workers);
    let handed = async || tokio::spawn(async move { work.run_timed(HANDED_UNITS) }).await.expect("it does not panic");
    let run = async |units: u64| tokio::spawn(async move { work.run(units) }).await.expect("it does not panic");
    let ns = match row.kind {
        Kind::Empty | Kind::One => time(&runtime, TIMES, async || {
            tokio::spawn(async { 1 }).await.expect("it does not panic");
        }),
        Kind::Chain => time(&runtime, TIMES, async || {
            for _ in 0..CHAIN {
                run(1).await;
            }
        }),
        Kind::Fan => time(&runtime, 100, async || {
            run(FAN_UNITS).await;
            join_all((0..FAN).map(|_| tokio::spawn(async move { work.run(FAN_UNITS) }))).await;
            run(FAN_UNITS).await;
        }),
        Kind::HandOver => time(&runtime, HANDED, handed),
        _ => return None,
    };
    Some(row.figure(ns, work))
}

/// Returns the ns of one of `times` calls. A tenth as many calls before them are not timed. The waiting
/// thread awaits them, as it awaits our runs.
fn time(runtime: &Runtime, times: u32, one: impl AsyncFn()) -> f64 {
    let round = |times: u32| (0..times).for_each(|_| runtime.block_on(one()));
    round(times / 10);
    untimed_ns(|| round(times)) / f64::from(times)
}

fn runtime(workers: usize) -> Runtime {
    let runtime = match workers {
        0 => Builder::new_current_thread().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).build(),
    };
    runtime.expect("threads start")
}
