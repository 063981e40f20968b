//! A task that uses an engine without ever having to wait lets other tasks run.

use std::cell::Cell;
use std::rc::Rc;

use anabranch::{Engine, Executor, Flow, Op, Var};

use crate::support::{block_on, executors};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Push,
    Bulk,
    Handle,
    Read,
    Idle,
    Flow,
}

const ALL: [Kind; 6] = [Kind::Push, Kind::Bulk, Kind::Handle, Kind::Read, Kind::Idle, Kind::Flow];

async fn step(kind: Kind, exec: &Executor, engine: &Engine, x: &Var<u64>) {
    let add = || Op::task("add", x, x, |x: &u64| x + 1);
    match kind {
        Kind::Push => drop(engine.push(add()).await.unwrap()),
        Kind::Bulk => {
            let mut bulk = engine.bulk(10);
            for _ in 0..10 {
                bulk.push(add()).await.unwrap();
            }
        }
        Kind::Handle => engine.push(add()).await.unwrap().await.unwrap(),
        Kind::Read => drop(x.read().await.unwrap()),
        Kind::Idle => engine.idle().await.unwrap(),
        Kind::Flow => exec.flow(async |_: &Flow| Ok(())).await.unwrap(),
    }
}

/// Runs steps until another task has run. Returns whether it has, within `steps_max` steps.
async fn until_another_runs(kind: Kind, exec: Executor, has_run: Rc<Cell<bool>>, steps_max: u32) -> bool {
    let engine = Engine::new(&exec).unwrap();
    let x = engine.var("x", 0);
    // Pushed, and never polled: seen to block all other tasks when a due unit was due only once.
    for _ in 0..2 {
        drop(engine.push(Op::task("first", &x, &x, |x: &u64| *x)));
    }
    for _ in 0..steps_max {
        if has_run.get() {
            return true;
        }
        step(kind, &exec, &engine, &x).await;
    }
    false
}

/// Failed at first, for pushes, for awaits of `idle`, and for awaits of flows.
#[test]
fn a_task_of_tokio_that_never_waits_lets_others_run() {
    for exec in executors() {
        for kind in ALL {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let ran = tokio::task::LocalSet::new().block_on(&runtime, async {
                let has_run = Rc::new(Cell::new(false));
                let hog = tokio::task::spawn_local(until_another_runs(kind, exec.clone(), has_run.clone(), 20_000));
                let other = tokio::task::spawn_local(async move { has_run.set(true) });
                other.await.unwrap();
                hog.await.unwrap()
            });
            assert!(ran, "{exec:?}, {kind:?}");
        }
    }
}

/// Seen to fail when only tokio's budget is consulted.
#[test]
fn a_task_of_another_runtime_that_only_pushes_lets_others_run() {
    for (exec, kind) in executors().into_iter().flat_map(|exec| [Kind::Push, Kind::Bulk].map(|kind| (exec.clone(), kind))) {
        let tasks = smol::LocalExecutor::new();
        let has_run = Rc::new(Cell::new(false));
        let hog = tasks.spawn(until_another_runs(kind, exec.clone(), has_run.clone(), 1_000_000));
        tasks.spawn(async move { has_run.set(true) }).detach();
        assert!(block_on(tasks.run(hog)), "{exec:?}, {kind:?}");
    }
}

/// Seen to fail (it is run twice, or its handle is lost) with a push that is polled as new when it is polled
/// again.
#[test]
fn a_push_that_lets_others_run_is_done_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for exec in executors() {
        let engine = Engine::new(&exec).unwrap();
        let x = engine.var("x", 0_u64);
        runtime.block_on(async {
            for _ in 0..10_000 {
                engine.push(Op::task("add", &x, &x, |x: &u64| x + 1)).await.unwrap().await.unwrap();
                engine.push(Op::task("add", &x, &x, |x: &u64| x + 1)).await.unwrap();
            }
            assert_eq!(*x.read().await.unwrap(), 20_000);
        });
    }
}
