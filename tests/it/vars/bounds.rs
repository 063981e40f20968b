//! Bounds, and the end of executors.

use std::sync::{Arc, Barrier};

use anabranch::{Engine, Op};

use super::{engines, idle, push, pushed};
use crate::support::{block_on, executor, poll_once};

#[test]
fn an_engine_that_is_full_gives_the_operation_back() {
    let exec = executor(1);
    let engine = Engine::builder(&exec).max_pending(2).build().unwrap();
    let (gate, x) = (Arc::new(Barrier::new(2)), engine.var("x", 0));
    let held = gate.clone();
    push(&engine, Op::task("hold", (), &x, move || i32::from(held.wait().is_leader())));
    let add = || Op::task("add", &x, &x, |x: &i32| x + 10);
    push(&engine, add());
    let (error, op) = engine.try_push(add()).unwrap_err();
    assert!(error.is_busy());
    assert_eq!(error.to_string(), "the engine already has 2 operations pending: await some of them, or raise max_pending");
    let mut waits = engine.push(op);
    assert!(poll_once(&mut waits).is_pending());
    gate.wait();
    drop(block_on(waits).unwrap());
    assert_eq!(*block_on(x.read()).unwrap() / 10, 2);
}

/// Seen to fail with a push that waits for its first poll.
#[test]
fn what_there_is_room_for_is_pushed_at_once_and_nothing_else_without_a_wait() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 0);
        drop(engine.push(Op::task("add", &x, &x, |x: &i32| x + 1)));
        assert_eq!(*block_on(x.read()).unwrap(), 1);
    }
    let exec = executor(1);
    let engine = Engine::builder(&exec).max_pending(1).build().unwrap();
    let (gate, x) = (Arc::new(Barrier::new(2)), engine.var("x", 0));
    let held = gate.clone();
    push(
        &engine,
        Op::task("hold", (), (), move || {
            held.wait();
        }),
    );
    let mut waits = engine.push(Op::task("add", &x, &x, |x: &i32| x + 1));
    assert!(poll_once(&mut waits).is_pending());
    drop(waits);
    gate.wait();
    idle(&engine).unwrap();
    assert_eq!(*block_on(x.read()).unwrap(), 0);
}

/// Seen to fail with a push that does not forget what it has said.
#[test]
fn a_push_says_once_what_became_of_it() {
    for (_exec, engine) in engines() {
        let mut push = engine.push(Op::task("one", (), (), || ()));
        assert!(matches!(poll_once(&mut push), std::task::Poll::Ready(Ok(_))));
        assert!(matches!(poll_once(&mut push), std::task::Poll::Ready(Err(_))));
    }
}

#[test]
fn many_pushes_grow_nothing() {
    let exec = executor(2);
    let engine = Engine::builder(&exec).max_pending(100).build().unwrap();
    let x = engine.var("x", 0_u64);
    for _ in 0..100_000 {
        push(&engine, Op::task("add", &x, &x, |x: &u64| x + 1));
        assert!(engine.pending() <= 100);
    }
    assert_eq!(*block_on(x.read()).unwrap(), 100_000);
}

#[test]
fn settings_out_of_range_are_errors() {
    let exec = executor(1);
    for max in [0, 16_777_215] {
        let error = Engine::builder(&exec).max_pending(max).build().unwrap_err();
        assert_eq!(error.to_string(), format!("max_pending must be from 1 to 16777214, not {max}"));
    }
    let engines: Vec<Engine> = (0..256).map(|_| Engine::new(&exec).unwrap()).collect();
    let error = Engine::new(&exec).unwrap_err();
    assert_eq!(error.to_string(), "the number of engines of an executor is 257, the limit is 256");
    drop(engines);
    block_on(pushed(&Engine::new(&exec).unwrap(), Op::task("one", (), (), || ()))).unwrap();
}

#[test]
fn operations_end_when_their_executor_is_shut_down() {
    for (exec, engine) in engines() {
        let x = engine.var("x", 0);
        let mut handles: Vec<_> = (0..100).map(|_| pushed(&engine, Op::task("add", &x, &x, |x: &i32| x + 1))).collect();
        block_on(exec.shutdown()).unwrap();
        for handle in &mut handles {
            match block_on(handle) {
                Ok(()) => {}
                Err(error) => assert!(error.is_shut_down(), "{error:?}"),
            }
        }
        assert!(block_on(engine.push(Op::task("late", (), (), || ()))).unwrap_err().is_shut_down());
        assert!(block_on(x.read()).unwrap_err().is_shut_down());
        assert!(Engine::new(&exec).unwrap_err().is_shut_down());
        idle(&engine).unwrap();
        drop(x);
        assert_eq!(engine.pending(), 0);
    }
}

#[test]
fn an_engine_without_work_keeps_no_executor_from_its_end() {
    // Seen to fail (the shutdown never ends) with an engine that leaves only when an operation ends.
    for (exec, engine) in engines() {
        let x = engine.var("x", 0);
        block_on(exec.shutdown()).unwrap();
        drop((x, engine));
    }
}

#[test]
fn an_executor_is_dropped_while_operations_are_pending() {
    for (exec, engine) in engines() {
        let x = engine.var("x", 0);
        (0..1000).for_each(|_| push(&engine, Op::task("add", &x, &x, |x: &i32| x + 1)));
        let add = pushed(&engine, Op::task("add", &x, &x, |x: &i32| x + 1));
        drop((exec, engine));
        assert!(block_on(add).map_or_else(|error| error.is_shut_down(), |()| true));
        match block_on(x.read()) {
            Ok(x) => assert_eq!(*x, 1001),
            Err(error) => assert!(error.is_shut_down(), "{error:?}"),
        }
    }
}
