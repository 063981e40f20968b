//! Flows that are cancelled, dropped, forgotten, or that fail.

use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use anabranch::{Engine, Error, Executor, Flow, Function, Graph, Op, Result, Value};

use super::{Maths, Way, suspend};
use crate::support::{Alarm, Tally, block_on, executors, poll_once, poll_with, until};

#[test]
fn a_cancel_in_iteration_3_of_20_lets_no_further_body_start() {
    for exec in executors() {
        let started = Arc::new(AtomicU32::new(0));
        let counts = started.clone();
        let mut run = Box::pin(exec.flow(async move |f: &Flow| {
            let x = f.value("x", 0);
            for _ in 0..20 {
                let counts = counts.clone();
                let body = Op::future("body", &x, &x, move |x: Arc<u32>| async move {
                    if counts.fetch_add(1, SeqCst) == 2 {
                        pending::<()>().await;
                    }
                    Ok(*x + 1)
                });
                drop(f.node(body));
            }
            f.get(&x).await
        }));
        until(|| {
            assert!(poll_once(&mut run).is_pending());
            started.load(SeqCst) == 3
        });
        run.cancel();
        assert!(block_on(&mut run).unwrap_err().is_cancelled());
        run.cancel();
        assert_eq!(started.load(SeqCst), 3);
        drop(run);
        // All operations that it has pushed end.
        block_on(exec.flow(async |f: &Flow| f.get(&f.value("x", 1)).await)).unwrap();
        assert_eq!(started.load(SeqCst), 3);
    }
}

#[test]
fn a_flow_is_cancelled_from_elsewhere_while_it_is_awaited() {
    for exec in executors() {
        let run = exec.flow(async |_: &Flow| -> Result<()> { pending().await });
        let (canceller, mut run) = (run.canceller(), Box::pin(run));
        assert!(poll_once(&mut run).is_pending());
        let thread = std::thread::spawn(move || canceller.cancel());
        assert!(block_on(run).unwrap_err().is_cancelled());
        thread.join().unwrap();
    }
}

/// Seen to fail with a cancel that does not check whether the flow has ended.
#[test]
fn a_cancel_of_a_flow_that_is_over_leaves_what_it_pushed() {
    for exec in executors() {
        let engine = Engine::new(&exec).unwrap();
        let (x, (open, opened)) = (engine.var("x", 0), futures::channel::oneshot::channel::<()>());
        let written = x.clone();
        let run = engine.flow(async move |f: &Flow| {
            let write = Op::future("write", (), &written, || async move { Ok(opened.await.map_or(0, |()| 1)) });
            drop(f.node(write));
            Ok(())
        });
        let canceller = run.canceller();
        block_on(run).unwrap();
        canceller.cancel();
        let _ = open.send(());
        assert_eq!(*block_on(x.read()).unwrap(), 1, "{exec:?}");
    }
}

/// A flow with values that are counted: a loop, a branch, and a graph, about 20 operations.
async fn counted(
    f: &Flow,
    tally: &Tally,
    body: &Function<Value<crate::support::Counted>, Value<crate::support::Counted>>,
) -> Result<u64> {
    let mut x = f.value("x", tally.value(0));
    for turn in 0..5 {
        let (first, second) = (tally.clone(), tally.clone());
        x = f.task("add", &x, move |x: &crate::support::Counted| first.value(x.get() + 1));
        if turn % 2 == 0 {
            x = f.call(body, &x);
        }
        x = f.future("slowly", &x, move |x: Arc<crate::support::Counted>| async move {
            suspend().await;
            Ok(second.value(x.get() * 2))
        });
        f.get(&x).await?;
    }
    Ok(f.get(&x).await?.get())
}

#[test]
fn a_flow_that_is_dropped_after_any_number_of_polls_leaves_nothing() {
    // Seen to fail (values left) without the drop of pending futures.
    for exec in executors() {
        let tally = Tally::default();
        let inner = tally.clone();
        let body = Function::new("body", move |g: &mut Graph, x: Value<crate::support::Counted>| {
            g.task("same", &x, move |x: &crate::support::Counted| inner.value(x.get()))
        });
        let body = body.unwrap();
        for polls in 0..40 {
            let mut run = Box::pin(exec.flow(async |f: &Flow| counted(f, &tally, &body).await));
            let is_over = (0..polls).any(|_| poll_once(&mut run).is_ready());
            drop(run);
            until(|| tally.alive() == 0);
            let again = block_on(exec.flow(async |f: &Flow| counted(f, &tally, &body).await));
            assert_eq!(again.unwrap(), 62);
            until(|| tally.alive() == 0);
            if is_over {
                break;
            }
        }
    }
}

#[test]
fn what_a_dropped_flow_has_waited_for_is_freed_where_nobody_polls_again() {
    // Seen to fail (the value is left) if a read waits for a poll after its turn has come.
    for exec in [Executor::inline(), Executor::sim(1)] {
        let (tally, engine) = (Tally::default(), Engine::new(&exec).unwrap());
        let mut run = Box::pin(engine.flow(async |f: &Flow| {
            let x = f.value("x", tally.value(1));
            drop(f.node(Op::future("never", (), &x, || async { pending().await })));
            f.get(&x).await.map(|x| x.get())
        }));
        assert!(poll_once(&mut run).is_pending());
        drop(run);
        assert_eq!((tally.alive(), engine.pending()), (0, 0));
    }
}

#[test]
fn a_flow_that_its_own_operation_drops_leaves_nothing_where_nobody_polls_again() {
    // Seen to fail (it is pending) if an operation that is woken while it runs is made ready after the flow's
    // end, and waits for a poll.
    type Held = Mutex<Option<Pin<Box<dyn Future<Output = Result<()>> + Send>>>>;
    let engine = Engine::new(&Executor::inline()).unwrap();
    let held = Arc::new(Held::default());
    let within = held.clone();
    *held.lock().unwrap() = Some(Box::pin(engine.flow(async move |f: &Flow| {
        let drops = Op::future("drops", (), (), move || async move {
            drop(within.lock().unwrap().take());
            pending().await
        });
        drop(f.node(drops));
        pending().await
    })));
    // Pushed while another operation runs, so that it begins after that one, and not in a poll.
    let polls = Op::task("polls", (), (), move || {
        assert!(poll_once(held.lock().unwrap().as_mut().unwrap()).is_pending());
    });
    engine.try_push(polls).map_err(Error::from).unwrap();
    assert_eq!(engine.pending(), 0);
}

#[test]
fn a_flow_that_is_never_polled_does_nothing() {
    for exec in executors() {
        let (x, runs) = (Arc::new(()), Arc::new(AtomicU32::new(0)));
        let (held, counts) = (x.clone(), runs.clone());
        let run = exec.flow(async move |f: &Flow| {
            counts.fetch_add(1, SeqCst);
            drop(held);
            f.get(&f.value("x", 1)).await
        });
        drop(run);
        assert_eq!((runs.load(SeqCst), Arc::strong_count(&x)), (0, 1));
    }
}

#[test]
fn a_forgotten_flow_harms_nobody() {
    for exec in executors() {
        let mut run = Box::pin(exec.flow(async |f: &Flow| {
            let x = f.future("never", (), || async { pending().await });
            f.get(&x).await.map(|x: Arc<u32>| *x)
        }));
        assert!(poll_once(&mut run).is_pending());
        std::mem::forget(run);
        let maths = Maths::new(Way::Graph);
        let product = exec.flow(async |f: &Flow| {
            let x = maths.mul(f, &f.value("x", 2.0), &f.value("y", 3.0));
            f.get(&x).await.map(|x| *x)
        });
        assert_eq!(block_on(product).unwrap(), 6.0);
    }
}

#[test]
fn a_failure_is_told_where_the_value_is_asked_for_and_not_before() {
    for exec in executors() {
        let said = block_on(exec.flow(async |f: &Flow| {
            let bad = f.try_task("bad", (), || -> std::result::Result<f64, anabranch::BoxError> { Err("no luck".into()) });
            let after = f.task("after", &bad, |x: &f64| x + 1.0);
            let other = f.task("other", (), || 5.0);
            assert_eq!(*f.get(&other).await?, 5.0);
            let Err(error) = f.get(&after).await else { panic!("what it reads has failed") };
            Ok(format!("{error:#}"))
        }));
        assert_eq!(said.unwrap(), "operation 'bad' failed: no luck");
    }
}

#[test]
fn a_panic_is_the_error_of_its_flow_only() {
    for exec in executors() {
        let panics = exec.flow(async |f: &Flow| -> Result<()> {
            f.get(&f.value("x", 1)).await?;
            panic!("no luck")
        });
        let error = block_on(panics).unwrap_err();
        assert!(error.is_panic());
        assert_eq!(format!("{error:#}"), "the flow panicked: no luck");
        let node = exec.flow(async |f: &Flow| {
            let x = f.task("node", (), || -> u32 { panic!("no luck") });
            f.get(&x).await.map(|x| *x)
        });
        assert_eq!(format!("{:#}", block_on(node).unwrap_err()), "operation 'node' panicked: no luck");
        assert_eq!(*block_on(exec.flow(async |f: &Flow| f.get(&f.value("x", 1)).await)).unwrap(), 1);
    }
}

#[test]
fn a_call_that_fails_names_the_node() {
    let fails = Function::new("fails", |g: &mut Graph, x: Value<u32>| {
        g.try_task("divide", &x, |x: &u32| 10_u32.checked_div(*x).ok_or_else(|| "by nothing".into()))
    });
    let fails = fails.unwrap();
    for exec in executors() {
        let said = |x: u32| {
            let called = exec.flow(async |f: &Flow| f.get(&f.call(&fails, &f.value("x", x))).await);
            block_on(called).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(
            said(0).unwrap_err(),
            "operation 'fails' failed: node 'divide' failed on host 0 of the host device: by nothing"
        );
        assert_eq!(*said(5).unwrap(), 2);
    }
}

#[test]
fn what_is_pending_when_the_executor_is_shut_down_ends() {
    for exec in executors() {
        let mut run = Box::pin(exec.flow(async |f: &Flow| {
            let x = f.future("never", (), || async { pending().await });
            f.get(&x).await.map(|x: Arc<u32>| *x)
        }));
        assert!(poll_once(&mut run).is_pending());
        block_on(exec.shutdown()).unwrap();
        assert!(block_on(run).unwrap_err().is_shut_down());
        assert!(block_on(exec.flow(async |_: &Flow| Ok(1))).unwrap_err().is_shut_down());
    }
}

#[test]
fn a_flow_does_not_keep_its_executor() {
    for exec in [Executor::inline(), Executor::sim(1), Executor::builder().workers(2).build().unwrap()] {
        let mut run = Box::pin(exec.flow(async |f: &Flow| {
            let x = f.future("never", (), || async { pending().await });
            f.get(&x).await.map(|x: Arc<u32>| *x)
        }));
        assert!(poll_once(&mut run).is_pending());
        drop(exec);
        assert!(block_on(run).unwrap_err().is_shut_down());
    }
}

#[test]
fn what_is_cancelled_before_it_begins_is_as_if_it_had_never_been() {
    // Seen to fail (the cancel reported by `x`) with operations that poison all variables that they would
    // have written.
    for exec in executors() {
        let (old, new) = block_on(exec.flow(async |f: &Flow| {
            let (x, mut new) = (f.value("x", 1), None);
            let mut part = Box::pin(f.flow(async |f: &Flow| -> Result<()> {
                let gate = f.future("gate", (), || async { pending().await });
                drop(f.node(Op::task("late", (&x, &gate), &x, |x: &u32, gate: &u32| x + gate)));
                new = Some(f.task("new", &gate, |gate: &u32| gate + 1));
                pending().await
            }));
            assert!(poll_once(&mut part).is_pending());
            drop(part);
            Ok((*f.get(&x).await?, f.get(&new.unwrap()).await.unwrap_err()))
        }))
        .unwrap();
        assert!(old == 1 && new.is_cancelled(), "{old} {new:#}");
    }
}

/// Flows to be polled by other tasks than the outer flow's.
type Handed = Arc<Mutex<Vec<Pin<Box<dyn Future<Output = Result<()>> + Send>>>>>;

/// Returns a flow that hands out an inner flow, which hands out an innermost one. None of them ends.
fn nested(exec: &Executor, handed: &Handed) -> Pin<Box<impl Future<Output = Result<()>> + use<>>> {
    let (inner, innermost) = (handed.clone(), handed.clone());
    Box::pin(exec.flow(async move |f: &Flow| {
        let flow = f.flow(async move |f: &Flow| {
            let flow = f.flow(async |f: &Flow| f.get(&f.future("never", (), pending)).await.map(|_: Arc<()>| ()));
            innermost.lock().unwrap().push(Box::pin(flow));
            pending().await
        });
        inner.lock().unwrap().push(Box::pin(flow));
        pending().await
    }))
}

/// Failed at first: they were never woken. Seen to fail (no ring) with a cancel that goes one level down, and
/// with one that marks the inner flows and does not wake them.
#[test]
fn flows_within_that_other_tasks_poll_end_when_the_outer_one_is_dropped() {
    for exec in executors() {
        let handed = Handed::default();
        let mut outer = nested(&exec, &handed);
        assert!(poll_once(&mut outer).is_pending());
        let alarms = [Alarm::new(), Alarm::new()];
        for (level, (_, waker)) in alarms.iter().enumerate() {
            let mut flow = handed.lock().unwrap().remove(level);
            assert!(poll_with(&mut flow, waker).is_pending());
            handed.lock().unwrap().insert(level, flow);
        }
        drop(outer);
        assert!(alarms.iter().all(|(alarm, _)| alarm.rings() > 0), "{exec:?}");
        for mut flow in handed.lock().unwrap().drain(..) {
            assert!(matches!(poll_once(&mut flow), Poll::Ready(Err(error)) if error.is_cancelled()), "{exec:?}");
        }
    }
}

/// Seen to fail with an end that cancels the inner flows.
#[test]
fn a_flow_within_that_another_task_polls_outlives_the_outer_ones_code() {
    for exec in executors() {
        let (open, opened) = futures::channel::oneshot::channel::<u8>();
        let inner = block_on(exec.flow(async move |f: &Flow| {
            Ok(f.flow(async move |f: &Flow| f.get(&f.future("one", (), || async { Ok(opened.await?) })).await))
        }));
        let mut inner = Box::pin(inner.unwrap());
        assert!(poll_once(&mut inner).is_pending());
        open.send(1).unwrap();
        assert_eq!(*block_on(inner).unwrap(), 1, "{exec:?}");
    }
}

/// Seen to fail (it is pending) with a scope that does not check whether the outer one is cancelled.
#[test]
fn a_flow_that_is_begun_within_a_cancelled_one_is_cancelled() {
    for exec in executors() {
        let handed = Arc::new(Mutex::new(None));
        let hand = handed.clone();
        let mut outer = Box::pin(exec.flow(async move |f: &Flow| -> Result<()> {
            *hand.lock().unwrap() = Some(f.clone());
            pending().await
        }));
        assert!(poll_once(&mut outer).is_pending());
        outer.cancel();
        let outer = handed.lock().unwrap().take().unwrap();
        let inner = outer.flow(async |_: &Flow| -> Result<()> { pending().await });
        assert!(matches!(poll_once(&mut Box::pin(inner)), Poll::Ready(Err(error)) if error.is_cancelled()));
    }
}

/// Failed at first: nothing woke the flow's task.
#[test]
fn a_push_that_is_refused_in_another_task_ends_the_flow() {
    for exec in executors() {
        let handed = Arc::new(Mutex::new(None));
        let hand = handed.clone();
        let mut run = Box::pin(exec.flow(async move |f: &Flow| -> Result<()> {
            *hand.lock().unwrap() = Some(f.clone());
            pending().await
        }));
        let (alarm, waker) = Alarm::new();
        assert!(poll_with(&mut run, &waker).is_pending());
        block_on(exec.shutdown()).unwrap();
        let elsewhere = handed.lock().unwrap().take().unwrap();
        drop(elsewhere.task("too late", (), || ()));
        assert!(alarm.rings() > 0, "{exec:?}");
        assert!(matches!(poll_once(&mut run), Poll::Ready(Err(error)) if error.is_shut_down()), "{exec:?}");
    }
}
