//! Bounds, and the end of executors.

use std::sync::{Arc, Barrier};

use anabranch::{Engine, Executor, Op};
use futures::channel::oneshot;

use super::{engine, engines, idle, push, pushed};
use crate::support::{block_on, executor, poll_once, until};

/// An engine with room for `max_pending` operations. One of them occupies the only worker until the test
/// reaches the gate.
fn held(max_pending: usize) -> (Executor, Engine, Arc<Barrier>) {
    let exec = executor(1);
    let engine = Engine::builder(&exec).max_pending(max_pending).build().unwrap();
    let gate = Arc::new(Barrier::new(2));
    let held = gate.clone();
    push(&engine, Op::task("hold", (), (), move || _ = held.wait()));
    (exec, engine, gate)
}

#[test]
fn an_engine_that_is_full_gives_the_operation_back() {
    let (_exec, engine, gate) = held(2);
    let x = engine.var("x", 0);
    let add = || Op::task("add", &x, &x, |x: &i32| x + 10);
    push(&engine, add());
    let (error, op) = engine.try_push(add()).unwrap_err().into_parts();
    assert!(error.is_busy());
    assert_eq!(error.to_string(), "the engine already has 2 operations pending: await some of them, or raise max_pending");
    let mut waits = engine.push(op);
    assert!(poll_once(&mut waits).is_pending());
    gate.wait();
    drop(block_on(waits).unwrap());
    assert_eq!(*block_on(x.read()).unwrap(), 20);
}

/// Seen to fail with a push that waits for its first poll.
#[test]
fn what_there_is_room_for_is_pushed_at_once() {
    for (_exec, engine) in engines() {
        let x = engine.var("x", 0);
        drop(engine.push(Op::task("add", &x, &x, |x: &i32| x + 1)));
        assert_eq!(*block_on(x.read()).unwrap(), 1);
    }
}

#[test]
fn a_push_that_is_dropped_while_it_waits_for_room_has_pushed_nothing() {
    let (_exec, engine, gate) = held(1);
    let x = engine.var("x", 0);
    let mut waits = engine.push(Op::task("add", &x, &x, |x: &i32| x + 1));
    assert!(poll_once(&mut waits).is_pending());
    drop(waits);
    gate.wait();
    idle(&engine).unwrap();
    assert_eq!(*block_on(x.read()).unwrap(), 0);
}

/// Seen to fail with a push that checks whether it may wait before it checks whether there is room.
#[test]
fn a_push_may_be_awaited_inside_of_an_operation_once_there_is_room() {
    let exec = executor(2);
    let engine = Engine::builder(&exec).max_pending(2).build().unwrap();
    let (inner, added) = (engine.clone(), engine.var("added", 0));
    let (open, opened) = oneshot::channel::<()>();
    let pending = pushed(&engine, Op::future("pending", (), (), move || async move { Ok(opened.await?) }));
    let sum = added.clone();
    let work = move || async move {
        let late = inner.push(Op::task("add", &sum, &sum, |x: &i32| x + 1));
        let _ = open.send(());
        pending.await?;
        until(|| inner.pending() == 1);
        drop(late.await?);
        Ok(())
    };
    block_on(pushed(&engine, Op::future("outer", (), (), work))).unwrap();
    assert_eq!(*block_on(added.read()).unwrap(), 1);
}

/// Seen to fail with a refusal that is dropped with its push.
#[test]
fn a_refusal_that_nobody_awaits_is_told_by_idle() {
    for ((_exec, one), (_other, other)) in engines().into_iter().zip(engines()) {
        let x = other.var("x", 0);
        drop(one.push(Op::task("add", &x, &x, |x: &i32| x + 1)));
        let error = idle(&one).unwrap_err();
        assert!(error.to_string().contains("'x'"), "{error}");
        idle(&one).unwrap();
    }
}

/// Seen to fail with a dropped push that keeps its part in the operation's handle.
#[test]
fn nothing_is_kept_of_a_failure_whose_push_was_dropped() {
    for workers in [1, 2] {
        let (_exec, engine) = engine(workers);
        let (gate, kept) = (Arc::new(Barrier::new(2)), Arc::new(()));
        let (held, cause) = (gate.clone(), Cause(kept.clone()));
        drop(engine.push(Op::try_task("fail", (), (), move || {
            held.wait();
            Err(cause.into())
        })));
        gate.wait();
        drop(idle(&engine).unwrap_err());
        until(|| Arc::strong_count(&kept) == 1);
    }
}

#[derive(Debug)]
struct Cause(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no more")
    }
}

impl std::error::Error for Cause {}

/// Seen to fail with a push that does not forget the result that it has returned.
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
