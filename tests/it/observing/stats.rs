//! The statistics of an executor at one moment.

use std::future::pending;
use std::sync::mpsc;

use anabranch::exec::Stats;
use anabranch::{BoxError, Engine, Executor, Flow, Graph, Inputs, Op};

use crate::support::{block_on, plan, poll_once, until};

#[test]
fn runs_that_wait_are_counted() {
    // Seen to fail without the count of runs in the queue.
    let exec = Executor::builder().workers(0).max_in_flight(2).build().unwrap();
    let mut g = Graph::new();
    let never = g.future("never", (), || pending::<Result<u64, BoxError>>());
    g.output("never", &never);
    let plan = plan(&g);
    let mut runs: Vec<_> = (0..5).map(|_| exec.run(&plan, Inputs::new())).collect();
    assert!(runs.iter_mut().all(|run| poll_once(run).is_pending()));
    let of = |stats: Stats| (stats.runs_in_flight, stats.runs_waiting, stats.runs_in_limbo);
    assert_eq!(of(exec.stats()), (2, 3, 0));
    drop(runs);
    assert_eq!(exec.stats(), Stats::default());
}

#[test]
fn suspended_flows_and_pending_operations_are_counted() {
    // Seen to fail with a flow that is counted again in each poll, and with one that stays counted when it is
    // dropped.
    for workers in [0, 1, 2] {
        let exec = Executor::builder().workers(workers).build().unwrap();
        let flow = || {
            Box::pin(exec.flow(async |f: &Flow| {
                let never = f.future("never", (), || pending::<Result<u64, BoxError>>());
                Ok(*f.get(&never).await?)
            }))
        };
        let mut flows = [flow(), flow(), flow()];
        assert_eq!(exec.stats().flows_suspended, 0, "none has begun");
        assert!((0..4).all(|_| flows.iter_mut().all(|flow| poll_once(flow).is_pending())));
        let stats = exec.stats();
        assert_eq!(
            (stats.flows_suspended, stats.operations_pending, stats.workers),
            (3, 6, workers),
            "an operation and a wait for each flow"
        );
        drop(flows);
        assert_eq!(exec.stats().flows_suspended, 0);
        until(|| exec.stats().operations_pending == 0);
        block_on(exec.flow(async |_: &Flow| Ok(()))).unwrap();
        assert_eq!(exec.stats().flows_suspended, 0);
    }
}

#[test]
fn work_that_no_worker_has_begun_is_counted_and_so_are_sleepers() {
    let exec = Executor::builder().workers(1).build().unwrap();
    until(|| exec.stats().workers_asleep == 1);
    let (release, held) = mpsc::channel::<()>();
    let (begins, begun) = mpsc::channel::<()>();
    let engine = Engine::new(&exec).unwrap();
    let waits = Op::task("waits", (), (), move || {
        begins.send(()).unwrap();
        held.recv().unwrap();
    });
    let waits = block_on(engine.push(waits)).unwrap();
    begun.recv().unwrap();
    let mut g = Graph::new();
    let one = g.task("one", (), || 1u64);
    g.output("one", &one);
    let mut run = exec.run(&plan(&g), Inputs::new());
    assert!(poll_once(&mut run).is_pending());
    let stats = exec.stats();
    assert_eq!((stats.workers_asleep, stats.work_queued, stats.operations_pending), (0, 1, 1));
    release.send(()).unwrap();
    block_on(async { (waits.await.unwrap(), run.await.unwrap()) });
    until(|| exec.stats().workers_asleep == 1);
    let stats = exec.stats();
    assert_eq!((stats.work_queued, stats.operations_pending, stats.runs_in_flight), (0, 0, 0));
}
