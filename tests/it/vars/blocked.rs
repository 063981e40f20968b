//! The pending operations, and their reasons to wait, as shown to a user in search of a cycle.

use std::sync::Arc;

use anabranch::engine::{Blocked, Pushed, WaitsFor};
use anabranch::{Engine, Flow, Op, Var, take};
use futures::channel::oneshot;

use crate::support::{block_on, executor, until};

/// Waits until the pending operations have the given text, and returns them. Work in progress on threads may
/// take a moment.
fn blocked_as(engine: &Engine, text: &str) -> Blocked {
    let mut blocked = engine.blocked().unwrap();
    until(|| {
        // Without workers, a poll runs the ready operations.
        let _ = futures::FutureExt::now_or_never(engine.idle());
        blocked = engine.blocked().unwrap();
        if blocked.to_string() != text {
            eprintln!("{blocked}");
        }
        blocked.to_string() == text
    });
    blocked
}

async fn push(engine: &Engine, op: Op<'_>) {
    drop(engine.push(op).await.unwrap());
}

/// Pushes an operation that writes the variable once the sender has sent.
async fn gate(engine: &Engine, name: &'static str, var: &Var<i32>) -> oneshot::Sender<i32> {
    let (send, receive) = oneshot::channel();
    push(engine, Op::future(name, (), var, async move || Ok(receive.await?))).await;
    send
}

#[test]
fn nothing_is_pending() {
    for workers in [0, 2] {
        let engine = Engine::new(&executor(workers)).unwrap();
        let blocked = engine.blocked().unwrap();
        assert_eq!(
            (blocked.to_string(), blocked.operations().len(), blocked.cycles().len()),
            ("0 pending operations".into(), 0, 0)
        );
    }
}

#[test]
fn each_waits_for_those_directly_ahead_of_it() {
    for workers in [0, 2] {
        let engine = Engine::new(&executor(workers)).unwrap();
        let (x, y) = (engine.var("x", 0), engine.var("y", 0));
        let send = block_on(async {
            let send = gate(&engine, "write", &x).await;
            push(&engine, Op::task("read 1", &x, (), |_: &i32| ())).await;
            push(&engine, Op::task("read 2", &x, &y, |x: &i32| *x)).await;
            push(&engine, Op::task("take", take(&x), &x, |x: i32| x + 1)).await;
            push(&engine, Op::task("both", (&x, &y), (), |_: &i32, _: &i32| ())).await;
            send
        });
        blocked_as(
            &engine,
            "5 pending operations\n\
             0 'write' waits for something outside of the engine\n\
             1 'read 1' waits for variable 'x' behind 0 'write'\n\
             2 'read 2' waits for variable 'x' behind 0 'write'\n\
             3 'take' waits for variable 'x' behind 1 'read 1', 2 'read 2'\n\
             4 'both' waits for variable 'x' behind 3 'take', and for variable 'y' behind 2 'read 2'",
        );
        send.send(1).unwrap();
        block_on(engine.idle()).unwrap();
        assert_eq!(*block_on(x.read()).unwrap(), 2);
    }
}

#[test]
fn a_write_waits_for_the_reads_that_are_inside() {
    let engine = Engine::new(&executor(2)).unwrap();
    let x = engine.var("x", 0);
    let gates: Vec<oneshot::Sender<()>> = block_on(async {
        let mut gates = Vec::new();
        for name in ["read 0", "read 1", "read 2"] {
            let (send, receive) = oneshot::channel();
            push(&engine, Op::future(name, &x, (), async move |_: Arc<i32>| Ok(receive.await?))).await;
            gates.push(send);
        }
        push(&engine, Op::task("write", (), &x, || 1)).await;
        gates
    });
    let mut gates = gates.into_iter();
    let outside = |n: usize, name: usize| format!("{n} 'read {name}' waits for something outside of the engine\n");
    blocked_as(
        &engine,
        &format!(
            "4 pending operations\n{}{}{}3 'write' waits for variable 'x' behind 0 'read 0', 1 'read 1', 2 'read 2'",
            outside(0, 0),
            outside(1, 1),
            outside(2, 2)
        ),
    );
    // The read in the middle leaves, so nothing is linked to the other two any more.
    let first = gates.next().unwrap();
    gates.next().unwrap().send(()).unwrap();
    blocked_as(
        &engine,
        &format!(
            "3 pending operations\n{}{}2 'write' waits for variable 'x' behind 0 'read 0', 1 'read 2'",
            outside(0, 0),
            outside(1, 2)
        ),
    );
    first.send(()).unwrap();
    gates.for_each(|gate| gate.send(()).unwrap());
    block_on(engine.idle()).unwrap();
}

/// 'first' awaits 'second', which awaits an operation behind 'first'. No poll detects that.
#[test]
fn a_cycle_through_a_third_operation_can_be_read() {
    for workers in [0, 2] {
        let engine = Arc::new(Engine::new(&executor(workers)).unwrap());
        let (x, y, z) = (engine.var("x", 0), engine.var("y", 0), engine.var("z", 0));
        let (send, receive) = oneshot::channel();
        block_on(async {
            let second = {
                let x = x.clone();
                async move || {
                    let _: () = receive.await?;
                    Ok(*x.read().await?)
                }
            };
            let second = engine.push(Op::future("second", (), &y, second)).await.unwrap();
            push(&engine, Op::future("first", (), (&x, &z), async move || second.await.map(|()| (1, 1)).map_err(Into::into)))
                .await;
        });
        send.send(()).unwrap();
        let blocked = blocked_as(
            &engine,
            "3 pending operations\n\
             0 'second' waits for the end of 2 'read of x'\n\
             1 'first' waits for the end of 0 'second'\n\
             2 'read of x' waits for variable 'x' behind 1 'first'\n\
             cycle: 0 'second', 2 'read of x', 1 'first', 0",
        );
        assert_eq!(blocked.cycles(), [[0, 2, 1]]);
        assert_eq!(blocked.operations()[1].waits, [WaitsFor::Operations(vec![0])]);
        drop((x, y, z));
    }
}

/// Pushes an operation that holds `has`, and reads `reads` once the sender has sent.
async fn reads_later(engine: &Engine, has: &Var<i32>, reads: &Var<i32>) -> (Pushed, oneshot::Sender<()>) {
    let (send, receive) = oneshot::channel();
    let reads = reads.clone();
    let body = async move || {
        receive.await?;
        Ok(*reads.read().await?)
    };
    (engine.push(Op::future("reads", (), has, body)).await.unwrap(), send)
}

/// An operation is in one cycle, and waits for another. The search finds both in either order. Seen to fail
/// with a search that takes all operations on its path for operations of the cycle.
#[test]
fn a_cycle_behind_another_can_be_read() {
    for is_own_first in [false, true] {
        let engine = Engine::new(&executor(0)).unwrap();
        let [x, y, z, w] = ["x", "y", "z", "w"].map(|name| engine.var(name, 0));
        let (send_other, other) = oneshot::channel::<Pushed>();
        let (send_own, own) = oneshot::channel::<Pushed>();
        let sent = block_on(async {
            let outer = async move || {
                futures::future::try_join(other.await?, own.await?).await?;
                Ok(1)
            };
            push(&engine, Op::future("outer", (), &z, outer)).await;
            let early = if is_own_first { Some(reads_later(&engine, &w, &z).await) } else { None };
            let (reads_x, first) = reads_later(&engine, &y, &x).await;
            let awaits = async move || reads_x.await.map(|()| 1).map_err(Into::into);
            let has_x = engine.push(Op::future("has x", (), &x, awaits)).await.unwrap();
            let (reads_z, second) = match early {
                Some(early) => early,
                None => reads_later(&engine, &w, &z).await,
            };
            assert!(send_other.send(has_x).is_ok() && send_own.send(reads_z).is_ok());
            [first, second]
        });
        sent.into_iter().for_each(|send| send.send(()).unwrap());
        until(|| {
            let _ = futures::FutureExt::now_or_never(engine.idle());
            engine.blocked().unwrap().cycles().len() == 2
        });
        drop((x, y, z, w));
    }
}

/// An operation awaits a task that awaits an operation behind the first one. The cycle has a gap, and both
/// ends of the gap are reported as "outside".
#[test]
fn a_cycle_through_a_task_shows_its_two_ends() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let engine = Engine::new(&executor(2)).unwrap();
    let x = engine.var("x", 0);
    runtime.block_on(async {
        let reader = x.clone();
        let body = async move || {
            let task = tokio::spawn(async move { reader.read().await.map(|x| *x) });
            Ok(task.await?? + 1)
        };
        push(&engine, Op::future("awaits a task", (), &x, body)).await;
    });
    let blocked = blocked_as(
        &engine,
        "2 pending operations\n\
         0 'awaits a task' waits for something outside of the engine\n\
         1 'read of x' waits for variable 'x' behind 0 'awaits a task'; is awaited from outside",
    );
    assert!(blocked.cycles().is_empty() && blocked.operations()[1].is_awaited_outside);
}

/// While operations are pushed, run, and free their variables, each inspection returns, and reads valid
/// operations.
#[test]
fn inspections_go_on_beside_everything_else() {
    let engine = Engine::new(&executor(2)).unwrap();
    let shared = engine.var("shared", 0u64);
    std::thread::scope(|scope| {
        let pushes = scope.spawn(|| {
            block_on(async {
                for round in 0..3_000u64 {
                    let own = engine.var(format!("own {round}"), vec![round]);
                    push(&engine, Op::task(format!("fill {round}"), &shared, &own, |x: &u64| vec![*x; 3])).await;
                    push(
                        &engine,
                        Op::task(format!("add {round}"), (&own, &shared), &shared, |own: &Vec<u64>, x: &u64| {
                            x + own.len() as u64
                        }),
                    )
                    .await;
                }
            });
        });
        let mut looked = 0u64;
        while !pushes.is_finished() || looked == 0 {
            let blocked = engine.blocked().unwrap();
            for operation in blocked.operations() {
                assert!(["fill ", "add ", "free"].iter().any(|name| operation.name.starts_with(name)), "{operation:?}");
                for waits in &operation.waits {
                    if let WaitsFor::Variable { variable, .. } = waits {
                        assert!(variable == "shared" || variable.starts_with("own "), "{operation:?}");
                    }
                }
            }
            assert!(blocked.cycles().is_empty(), "{blocked}");
            looked += 1;
        }
    });
    block_on(engine.idle()).unwrap();
    assert_eq!(*block_on(shared.read()).unwrap(), 9_000);
}

/// Operations that read the variable that the previous one writes, in both directions: no order of inspection
/// makes a cycle. Seen to fail with an inspection that keeps operations that have left meanwhile.
#[test]
fn inspections_beside_running_operations_see_no_cycle() {
    for workers in [1, 2] {
        let engine = Engine::new(&executor(workers)).unwrap();
        let (x, y) = (engine.var("x", 0u64), engine.var("y", 0u64));
        std::thread::scope(|scope| {
            let pushes = scope.spawn(|| {
                block_on(async {
                    for _ in 0..20_000 {
                        push(&engine, Op::task("there", &x, &y, |x: &u64| *x)).await;
                        push(&engine, Op::task("back", &y, &x, |y: &u64| *y + 1)).await;
                    }
                });
            });
            while !pushes.is_finished() {
                let blocked = engine.blocked().unwrap();
                assert!(blocked.cycles().is_empty(), "{blocked}");
                let on_devices = blocked.operations().iter().filter(|operation| operation.waits.contains(&WaitsFor::Device));
                assert_eq!(on_devices.count(), 0, "there is no device: {blocked}");
            }
        });
        block_on(engine.idle()).unwrap();
    }
}

/// Flows of an executor share an engine that has no handle.
#[test]
fn what_is_pending_in_flows_can_be_read() {
    let exec = executor(2);
    assert_eq!(exec.blocked().unwrap().to_string(), "0 pending operations");
    let (send, receive) = oneshot::channel::<i32>();
    let flow = exec.flow(async move |f: &Flow| {
        let x = f.future("late", (), async move || Ok(receive.await?));
        Ok(*f.get(&x).await?)
    });
    let mut flow = Box::pin(flow);
    assert!(futures::FutureExt::now_or_never(&mut flow).is_none());
    until(|| exec.blocked().unwrap().to_string().contains("'late' waits for something outside of the engine"));
    send.send(3).unwrap();
    assert_eq!(block_on(flow).unwrap(), 3);
}
