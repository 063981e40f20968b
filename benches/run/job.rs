//! The body of a node, and the countdown by which the Rust peers learn that a node is ready.
//!
//! A node becomes ready exactly once per run: only the predecessor that takes its countdown to zero sees
//! zero. It resets the countdown for the next run before it announces the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::peers::{Load, Payload};
use crate::shapes::Shape;

/// Runs of the counting job, before the clock starts.
const COUNTED_RUNS: u32 = 3;

/// The work of every node of a job, besides spinning.
enum Body {
    Empty,
    /// Counts how often each node ran.
    Count(Vec<AtomicU32>),
    /// Adds up the predecessors' values, plus one.
    Values(Vec<AtomicU64>),
}

/// One graph with its bodies and countdowns: built once, run many times, one run at a time.
pub(crate) struct Job {
    shape: Shape,
    body: Body,
    work: Duration,
    succs: Vec<Vec<u32>>,
    /// Predecessors that have yet to finish, by node.
    waiting: Vec<AtomicU32>,
    /// Nodes without successors that have yet to finish. All other nodes precede one of them.
    sinks_left: AtomicU32,
    sinks: u32,
    done: Notify,
}

impl Job {
    fn new(shape: &Shape, body: Body, work: Duration) -> Self {
        let mut succs = vec![Vec::new(); shape.len()];
        for node in shape.nodes() {
            for &pred in shape.preds(node) {
                succs[pred as usize].push(node);
            }
        }
        let sinks = succs.iter().filter(|after| after.is_empty()).count() as u32;
        let waiting = shape.nodes().map(|node| AtomicU32::new(shape.preds(node).len() as u32)).collect();
        Self { shape: shape.clone(), body, work, succs, waiting, sinks_left: AtomicU32::new(sinks), sinks, done: Notify::new() }
    }

    /// Returns the nodes that are ready when a run starts.
    pub(crate) fn roots(&self) -> impl Iterator<Item = u32> + '_ {
        self.shape.nodes().filter(|&node| self.shape.preds(node).is_empty())
    }

    /// Runs the body of a ready node.
    pub(crate) fn work(&self, node: u32) {
        match &self.body {
            Body::Empty => {}
            // ORDERING: a counter, read after the run's `done`.
            Body::Count(counts) => _ = counts[node as usize].fetch_add(1, Ordering::Relaxed),
            // ORDERING: relaxed loads and stores are plain moves; the countdown in `finish` puts them in
            // order.
            Body::Values(values) => {
                let above = self.shape.preds(node).iter().map(|&pred| values[pred as usize].load(Ordering::Relaxed));
                values[node as usize].store(above.fold(1, u64::wrapping_add), Ordering::Relaxed);
            }
        }
        spin(self.work);
    }

    /// Calls `ready` with each successor that waited only for `node`, and ends the run after the last sink.
    pub(crate) fn finish(&self, node: u32, ready: impl FnMut(u32)) {
        let succs = &self.succs[node as usize];
        succs.iter().copied().filter(|&succ| self.count_down(succ)).for_each(ready);
        // ORDERING: release the sink's work to the last one, which acquires all of it.
        if succs.is_empty() && self.sinks_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // ORDERING: the next reader runs in the next run, after `done`, which synchronises.
            self.sinks_left.store(self.sinks, Ordering::Relaxed);
            self.done.notify_one();
        }
    }

    fn count_down(&self, node: u32) -> bool {
        let waiting = &self.waiting[node as usize];
        // ORDERING: release the predecessor's work to the thread that sees the last count, which acquires all
        // of it.
        let is_ready = waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_ready {
            // ORDERING: the next reader runs in the next run, after `done`, which synchronises.
            waiting.store(self.shape.preds(node).len() as u32, Ordering::Relaxed);
        }
        is_ready
    }

    /// Completes when the last sink of the run has finished.
    pub(crate) async fn done(&self) {
        self.done.notified().await;
    }

    fn check(&self, runs: u32) {
        // ORDERING: all these reads follow the run, see `done`.
        match &self.body {
            Body::Empty => {}
            Body::Count(counts) => {
                let is_right = counts.iter().all(|count| count.load(Ordering::Relaxed) == runs);
                assert!(is_right, "every node must run exactly once per run");
            }
            Body::Values(values) => {
                let sum = values.iter().map(|value| value.load(Ordering::Relaxed)).fold(0, u64::wrapping_add);
                assert_eq!(sum, self.shape.checksum(), "values must flow along every edge");
            }
        }
    }
}

/// Returns the median time per node, in ns, of a peer that runs a job once with `run_once`.
///
/// In the rounds that check, a counting job first shows that every node runs exactly once per run; the values
/// of the warm-up run, whose cells start at zero, are always checked.
pub(crate) fn measure(shape: &Shape, load: &Load, mut run_once: impl FnMut(&Arc<Job>)) -> f64 {
    if load.is_checked {
        let counts = shape.nodes().map(|_| AtomicU32::new(0)).collect();
        let job = Arc::new(Job::new(shape, Body::Count(counts), Duration::ZERO));
        (0..COUNTED_RUNS).for_each(|_| run_once(&job));
        job.check(COUNTED_RUNS);
    }
    let body = match load.payload {
        Payload::Values => Body::Values(shape.nodes().map(|_| AtomicU64::new(0)).collect()),
        Payload::Empty | Payload::Assorted => Body::Empty,
    };
    let job = Arc::new(Job::new(shape, body, Duration::from_nanos(load.work_ns)));
    run_once(&job);
    job.check(1);
    time_runs(shape.len(), load.runs, || run_once(&job))
}

/// Returns the median time per node, in ns, of `runs` calls of `run_once`. The caller has warmed up.
pub(crate) fn time_runs(nodes: usize, runs: usize, mut run_once: impl FnMut()) -> f64 {
    let mut figures: Vec<f64> = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        run_once();
        figures.push(start.elapsed().as_nanos() as f64 / nodes as f64);
    }
    crate::report::median(&figures)
}

/// Keeps this core busy until `work` has passed on the clock that `peers/tbb.cpp` watches too.
pub(crate) fn spin(work: Duration) {
    if work.is_zero() {
        return;
    }
    let end = Instant::now() + work;
    // No pause in between: it would let the work overshoot by nearly half as much again as reading the clock
    // does.
    while Instant::now() < end {}
}
