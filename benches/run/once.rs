//! Costs that do not depend on a graph's size: a run of one node, and dropping a run in progress.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use anabranch::policy::PerOperator;
use anabranch::{Executor, Graph, Inputs, Plan};
use futures::executor::block_on;

use crate::report::median;

const BATCHES: usize = 51;
const RUNS_PER_BATCH: usize = 4_000;

/// Returns the time of a run of one node on the inline host device, from making it to having its output, in
/// ns.
pub(crate) fn one_node_ns() -> f64 {
    let mut graph = Graph::new();
    let value = graph.task("one", (), || 1_u64);
    graph.output("one", &value);
    let plan = graph.compile_with(&PerOperator).expect("a valid graph");
    let exec = Executor::inline();
    let batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..RUNS_PER_BATCH {
                let mut outputs = block_on(exec.run(&plan, Inputs::new())).expect("no node fails");
                assert_eq!(outputs.take::<u64>("one").ok().as_deref(), Some(&1));
            }
            start.elapsed().as_nanos() as f64 / RUNS_PER_BATCH as f64
        })
        .collect();
    median(&batches)
}

/// Returns the time to drop a run whose worker is inside a node, in µs: the median and the largest.
pub(crate) fn drop_in_flight_us() -> (f64, f64) {
    let exec = Executor::builder().workers(1).build().expect("an executor starts");
    let mut figures: Vec<f64> = (0..BATCHES).map(|_| drop_once(&exec)).collect();
    block_on(exec.shutdown()).expect("nothing runs any more");
    figures.sort_by(f64::total_cmp);
    (median(&figures), figures[BATCHES - 1])
}

fn drop_once(exec: &Executor) -> f64 {
    let (plan, started, finish) = blocking_plan();
    let mut run = Box::pin(exec.run(&plan, Inputs::new()));
    assert!(matches!(pin!(&mut run).poll_once(), Poll::Pending));
    started.recv().expect("the node starts");
    let start = Instant::now();
    drop(run);
    let took = start.elapsed().as_nanos() as f64 / 1e3;
    finish.send(()).expect("the node waits");
    block_on(exec.idle()).expect("outside of any node");
    took
}

/// The time to drop each of many runs, none of which has ended.
pub(crate) struct Drops {
    pub(crate) runs: usize,
    pub(crate) median_us: f64,
    /// Of the first tenth of the runs dropped, when no other is in limbo, and of the last tenth, when most
    /// are.
    pub(crate) first_us: f64,
    pub(crate) last_us: f64,
    /// The time that one drop in 500 exceeds, and the largest of all. The latter is that of an interrupted
    /// thread.
    pub(crate) one_in_500_us: f64,
    pub(crate) max_us: f64,
}

/// Drops `runs` runs of one async node that never ends, while the only worker is inside another run.
pub(crate) fn drop_many(runs: usize) -> Drops {
    let exec = Executor::builder().workers(1).max_in_flight(runs + 1).build().expect("an executor starts");
    let mut graph = Graph::new();
    graph.future("never", (), std::future::pending::<Result<(), anabranch::BoxError>>);
    let plan = graph.compile_with(&PerOperator).expect("a valid graph");
    let mut pending: Vec<_> = (0..runs).map(|_| Box::pin(exec.run(&plan, Inputs::new()))).collect();
    for run in &mut pending {
        assert!(matches!(pin!(run).poll_once(), Poll::Pending));
    }
    let (blocking, started, finish) = blocking_plan();
    let mut blocks = Box::pin(exec.run(&blocking, Inputs::new()));
    assert!(matches!(pin!(&mut blocks).poll_once(), Poll::Pending));
    started.recv().expect("the node starts");
    let drop_one = |run| {
        let start = Instant::now();
        drop(run);
        start.elapsed().as_nanos() as f64 / 1e3
    };
    let mut figures: Vec<f64> = pending.into_iter().map(drop_one).collect();
    assert_eq!(exec.in_limbo(), runs);
    finish.send(()).expect("the node waits");
    block_on(blocks).expect("the run goes on");
    block_on(exec.idle()).expect("outside of any node");
    let (first_us, last_us) = (median(&figures[..runs / 10]), median(&figures[runs - runs / 10..]));
    figures.sort_by(f64::total_cmp);
    let one_in_500_us = figures[runs - runs / 500 - 1];
    Drops { runs, median_us: median(&figures), first_us, last_us, one_in_500_us, max_us: figures[runs - 1] }
}

/// A plan of a node that signals its start and then waits for a signal to finish, and a thousand nodes after
/// it.
fn blocking_plan() -> (Plan, Receiver<()>, Sender<()>) {
    let (started_in, started) = channel();
    let (finish, finish_in) = channel::<()>();
    let finish_in = Arc::new(std::sync::Mutex::new(finish_in));
    let mut graph = Graph::new();
    let mut last = graph.task("block", (), move || {
        started_in.send(()).expect("someone listens");
        let _ = finish_in.lock().map(|finish| finish.recv());
        vec![0_u8; 1 << 20]
    });
    for node in 0..1_000 {
        last = graph.task(node.to_string(), anabranch::take(&last), |buffer: Vec<u8>| buffer);
    }
    graph.output("last", &last);
    (graph.compile_with(&PerOperator).expect("a valid graph"), started, finish)
}

/// Polls a future once, with a waker that does nothing.
trait PollOnce: Future + Sized {
    fn poll_once(self: std::pin::Pin<&mut Self>) -> Poll<Self::Output> {
        self.poll(&mut Context::from_waker(Waker::noop()))
    }
}

impl<F: Future> PollOnce for F {}
