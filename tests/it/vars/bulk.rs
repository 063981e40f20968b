//! Bulks: what is joined has the result, the failures and the order of what is not.

use std::sync::{Arc, Mutex};

use anabranch::{Engine, Executor, Op, Var};

use super::{engine, engines, idle, on, push, pushed};
use crate::support::{block_on, executor, poll_once};

fn add(x: &Var<u64>) -> Op<'_> {
    Op::task("add", x, x, |x: &u64| x + 1)
}

/// An operation that is run only when the other end is dropped or sent something.
fn hold(engine: &Engine) -> std::sync::mpsc::Sender<()> {
    let (open, opened) = std::sync::mpsc::channel::<()>();
    push(engine, Op::task("hold", (), (), move || _ = opened.recv()));
    open
}

#[test]
fn joined_operations_are_one_that_is_pending() {
    let (_exec, engine) = engine(1);
    let (x, open) = (engine.var("x", 0), hold(&engine));
    let mut bulk = engine.bulk(10);
    for _ in 0..25 {
        drop(block_on(bulk.push(add(&x))).unwrap());
    }
    assert_eq!(engine.pending(), 3);
    bulk.end();
    assert_eq!(engine.pending(), 4);
    drop(open);
    idle(&engine).unwrap();
    assert_eq!((*block_on(x.read()).unwrap(), x.version()), (25, 25));
}

#[test]
fn whatever_else_is_done_comes_behind_what_was_joined() {
    // Seen to fail with each `close_bulk` taken out.
    for (_exec, engine) in engines() {
        let mut bulk = engine.bulk(100);
        let (x, log) = (engine.var("x", 0), Arc::new(Mutex::new(Vec::new())));
        drop(block_on(bulk.push(add(&x))).unwrap());
        assert_eq!(*block_on(x.read()).unwrap(), 1, "a read");
        drop(block_on(bulk.push(add(&x))).unwrap());
        block_on(x.wait_writable()).unwrap();
        assert_eq!(x.version(), 2, "a wait");
        drop(block_on(bulk.push(add(&x))).unwrap());
        let seen = log.clone();
        block_on(pushed(&engine, Op::task("look", &x, (), move |x: &u64| seen.lock().unwrap().push(*x)))).unwrap();
        let handle = block_on(bulk.push(add(&x))).unwrap();
        block_on(handle).unwrap();
        assert_eq!(x.version(), 4, "a handle that is awaited");
        drop(block_on(bulk.push(add(&x))).unwrap());
        idle(&engine).unwrap();
        assert_eq!((x.version(), log.lock().unwrap().clone()), (5, vec![3]), "idle, and a push");
        let y = engine.var("y", 0);
        drop(block_on(bulk.push(Op::task("copy", &x, &y, |x: &u64| *x))).unwrap());
        drop(x);
        assert_eq!(*block_on(y.read()).unwrap(), 5, "a variable that is dropped");
    }
}

#[test]
fn a_failure_poisons_what_its_own_operation_writes() {
    for (_exec, engine) in engines() {
        let [x, y, z] = ["x", "y", "z"].map(|name| engine.var(name, 1_u64));
        let mut bulk = engine.bulk(100);
        let first = block_on(bulk.push(add(&x))).unwrap();
        let fails = block_on(bulk.push(Op::try_task("fails", &x, &y, |_: &u64| Err("no".into())))).unwrap();
        let depends = block_on(bulk.push(Op::task("depends", &y, &z, |y: &u64| *y))).unwrap();
        let panics = block_on(bulk.push(Op::task("panics", (), (), || panic!("on purpose")))).unwrap();
        let last = block_on(bulk.push(add(&x))).unwrap();
        bulk.end();
        assert_eq!((block_on(first).is_ok(), block_on(last).is_ok(), *block_on(x.read()).unwrap()), (true, true, 3));
        assert_eq!(block_on(fails).unwrap_err().node(), Some("fails"));
        let not_run = block_on(depends).unwrap_err();
        assert!(not_run.node() == Some("depends") && not_run.to_string().contains("'fails'"), "{not_run}");
        assert_eq!(block_on(panics).unwrap_err().node(), Some("panics"));
        assert_eq!(block_on(z.read()).unwrap_err().node(), Some("fails"));
        assert_eq!(idle(&engine).unwrap_err().node(), Some("panics"), "it writes nothing");
    }
}

#[test]
fn what_cannot_be_joined_is_pushed_behind_it() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 1_u64);
        let mut bulk = engine.bulk(100);
        drop(block_on(bulk.push(add(&x))).unwrap());
        let double = Op::future("double", &x, &x, |x: Arc<u64>| async move { Ok(*x * 2) });
        drop(block_on(bulk.push(double)).unwrap());
        drop(block_on(bulk.push(add(&x))).unwrap());
        drop(block_on(bulk.push(add(&x).priority(3))).unwrap());
        assert_eq!(*block_on(x.read()).unwrap(), 6);
    }
}

#[test]
fn a_bulk_waits_until_there_is_room() {
    let exec = executor(1);
    let engine = Engine::builder(&exec).max_pending(2).build().unwrap();
    let (x, open) = (engine.var("x", 0), hold(&engine));
    let mut bulk = engine.bulk(2);
    (0..2).for_each(|_| drop(block_on(bulk.push(add(&x))).unwrap()));
    let mut waits = bulk.push(add(&x));
    assert!(poll_once(&mut waits).is_pending());
    drop(open);
    drop(block_on(waits).unwrap());
    bulk.end();
    assert_eq!(*block_on(x.read()).unwrap(), 3);
}

#[test]
fn operations_of_a_bulk_end_when_the_executor_is_shut_down() {
    for (exec, engine) in [engine(1), engine(2), on(Executor::sim(5))] {
        let x = engine.var("x", 0);
        let mut bulk = engine.bulk(100);
        let handles: Vec<_> = (0..10).map(|_| block_on(bulk.push(add(&x))).unwrap()).collect();
        block_on(exec.shutdown()).unwrap();
        bulk.end();
        for handle in handles {
            assert!(block_on(handle).unwrap_err().is_shut_down());
        }
        assert!(block_on(x.read()).unwrap_err().is_shut_down());
    }
}
