//! The drain: all begun work ends, and no other work begins.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use anabranch::{Engine, Executor, Flow, Function, Graph, Inputs, Op, Pipeline, Ranked, Value};
use futures::channel::oneshot;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};

use super::{letter, one_at_a_time, waiting};
use crate::support::{Alarm, block_on, executor, executors, plan, poll_once, poll_with};

#[test]
fn an_executor_without_work_is_shut_down() {
    for exec in executors() {
        block_on(exec.drain()).unwrap();
        assert!(block_on(exec.run(&waiting(), letter().1)).unwrap_err().is_shut_down());
        block_on(exec.drain()).unwrap();
    }
}

#[test]
fn runs_that_have_begun_end_and_others_do_not_begin() {
    // Seen to fail with a drain that closes at once, and with one that refuses nothing.
    for exec in executors() {
        let (sender, inputs) = letter();
        let mut run = exec.run(&waiting(), inputs);
        assert!(poll_once(&mut run).is_pending());
        let mut drain = exec.drain();
        let (alarm, waker) = Alarm::new();
        assert!(poll_with(&mut drain, &waker).is_pending());
        let refused = block_on(exec.run(&waiting(), letter().1)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the executor is draining: it ends what has begun, and begins nothing else; use another executor"
        );
        assert!(refused.is_shut_down() && !refused.is_cancelled());
        assert!(exec.try_run(&waiting(), letter().1).unwrap_err().error().is_shut_down());
        assert!(block_on(exec.flow(async |_: &Flow| Ok(()))).unwrap_err().is_shut_down());
        sender.send(7).unwrap();
        assert_eq!(*block_on(run).unwrap().take::<u32>("word").unwrap(), 7);
        block_on(drain).unwrap();
        assert!(alarm.rings() > 0);
    }
}

#[test]
fn runs_that_wait_for_room_are_admitted_and_end() {
    // Seen to fail with a check of the drain for queued runs, too.
    for exec in one_at_a_time() {
        let plan = waiting();
        let (senders, mut runs): (Vec<_>, Vec<_>) =
            (0..3).map(|_| letter()).map(|(sender, word)| (sender, exec.run(&plan, word))).unzip();
        runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
        let drain = exec.drain();
        senders.into_iter().for_each(|sender| sender.send(1).unwrap());
        let (runs, drained) = block_on(async { futures::join!(join_all(runs), drain) });
        assert!(runs.iter().all(Result::is_ok) && drained.is_ok());
    }
}

#[test]
fn a_flow_that_has_begun_makes_runs_and_flows_and_operations_to_its_end() {
    // Seen to fail without the mark of a flow's poll, and with a drain that does not wait for flows.
    let add = Function::new("add", |g: &mut Graph, x: Value<u32>| g.task("add", &x, |x: &u32| x + 1)).unwrap();
    for exec in executors() {
        let (sender, receiver) = oneshot::channel::<u32>();
        let inside = exec.clone();
        let add = &add;
        let mut flow = Box::pin(exec.flow(async move |f: &Flow| {
            let x = receiver.await.map_err(anabranch::Error::other)?;
            let y = f.get(&f.call(add, &f.value("x", x))).await?;
            let z = inside.call(add, *y).await?;
            let inner = f.flow(async |f: &Flow| Ok(*f.get(&f.task("twice", (), move || 2 * *z)).await?)).await?;
            let other = inside.flow(async |f: &Flow| Ok(*f.get(&f.value("one", 1)).await?)).await?;
            Ok(inner + other)
        }));
        assert!(poll_once(&mut flow).is_pending());
        assert_eq!(exec.stats().flows_in_flight, 1);
        let mut drain = exec.drain();
        assert!(poll_once(&mut drain).is_pending());
        sender.send(1).unwrap();
        let (sum, drained) = block_on(async { futures::join!(flow, drain) });
        assert_eq!(sum.unwrap(), 7);
        drained.unwrap();
        assert_eq!(exec.stats().flows_in_flight, 0);
    }
}

#[test]
fn a_flow_that_is_dropped_ends_the_wait() {
    // Seen to fail (nothing woke the future) without the ring at the end of the last flow.
    for exec in executors() {
        let mut flow = Box::pin(exec.flow(async |_: &Flow| Ok(std::future::pending::<()>().await)));
        assert!(poll_once(&mut flow).is_pending());
        let (alarm, waker) = Alarm::new();
        let mut drain = exec.drain();
        assert!(poll_with(&mut drain, &waker).is_pending());
        drop(flow);
        assert_eq!(alarm.rings(), 1);
        block_on(drain).unwrap();
    }
}

#[test]
fn a_node_that_has_begun_makes_runs() {
    for exec in [0, 1, 2].map(executor) {
        let inner = waiting();
        let (sender, receiver) = oneshot::channel::<u32>();
        let (word_sender, word) = letter();
        let (receiver, word) = (Mutex::new(Some(receiver)), Mutex::new(Some(word)));
        let inside = exec.clone();
        let mut g = Graph::new();
        let sum = g.future("outer", (), move || {
            let (receiver, word) = (receiver.lock().unwrap().take().unwrap(), word.lock().unwrap().take().unwrap());
            let (exec, plan) = (inside.clone(), inner.clone());
            async move {
                let x = receiver.await?;
                Ok(x + *exec.run(&plan, word).await?.take::<u32>("word")?)
            }
        });
        g.output("sum", &sum);
        let mut run = exec.run(&plan(&g), Inputs::new());
        assert!(poll_once(&mut run).is_pending());
        let mut drain = exec.drain();
        assert!(poll_once(&mut drain).is_pending());
        sender.send(1).unwrap();
        word_sender.send(2).unwrap();
        let (sum, drained) = block_on(async { futures::join!(run, drain) });
        assert_eq!(*sum.unwrap().take::<u32>("sum").unwrap(), 3);
        drained.unwrap();
    }
}

#[test]
fn an_operation_that_has_begun_makes_runs() {
    // Seen to fail (an inline executor refused the run) with a mark of the polls of flows alone.
    for exec in executors() {
        let engine = Engine::new(&exec).unwrap();
        let (sender, receiver) = oneshot::channel::<u32>();
        let (word_sender, word) = letter();
        let (inside, plan, x) = (exec.clone(), waiting(), engine.var("x", 0));
        let sum = Op::future("sum", (), &x, async move || {
            let x = receiver.await?;
            Ok(x + *inside.run(&plan, word).await?.take::<u32>("word")?)
        });
        let pushed = block_on(engine.push(sum)).unwrap();
        let mut drain = exec.drain();
        assert!(poll_once(&mut drain).is_pending());
        sender.send(1).unwrap();
        word_sender.send(2).unwrap();
        let (pushed, drained) = block_on(async { futures::join!(pushed, drain) });
        assert!(pushed.is_ok() && drained.is_ok());
    }
}

#[test]
fn a_pipeline_takes_no_further_items() {
    // Seen to fail (it went on for ever) with a source that is polled on.
    for exec in executors() {
        let next = Pipeline::new("next", &Ranked::default(), |g, x| g.task("next", &x, |x: &u64| x + 1)).unwrap();
        let mut results = exec.pipe(&next, stream::iter(0..));
        let (first, second) = block_on(async { (results.next().await, results.next().await) });
        assert_eq!((first.unwrap().unwrap(), second.unwrap().unwrap()), (1, 2));
        let drain = exec.drain();
        let (mut rest, drained) = block_on(async { futures::join!(results.collect::<Vec<_>>(), drain) });
        // The items that had begun, without gaps, and then the error that ends the stream.
        assert!(rest.pop().unwrap().unwrap_err().is_shut_down());
        assert!(rest.len() < 1000 && rest.iter().map(|x| *x.as_ref().unwrap()).eq((3..).take(rest.len())));
        drained.unwrap();
    }
}

#[test]
fn a_pipeline_that_waits_for_its_source_ends() {
    // Seen to fail (nothing woke the future) without the ring of runs in flight.
    for exec in executors() {
        let next = Pipeline::new("next", &Ranked::default(), |g, x| g.task("next", &x, |x: &u64| x + 1)).unwrap();
        let mut results = exec.pipe(&next, stream::pending::<u64>());
        let (alarm, waker) = Alarm::new();
        assert!(poll_with(&mut results.next(), &waker).is_pending());
        let drain = exec.drain();
        assert_eq!(alarm.rings(), 1);
        assert!(block_on(results.next()).unwrap().unwrap_err().is_shut_down());
        assert!(block_on(results.next()).is_none());
        drop(results);
        block_on(drain).unwrap();
    }
}

#[test]
fn a_pipeline_of_a_flow_that_has_begun_goes_on_to_its_end() {
    // Seen to fail with a drain that ends all sources.
    for exec in executors() {
        let next = Pipeline::new("next", &Ranked::default(), |g, x| g.task("next", &x, |x: &u64| x + 1)).unwrap();
        let (sender, receiver) = oneshot::channel::<()>();
        let (inside, next) = (exec.clone(), &next);
        let mut flow = Box::pin(exec.flow(async move |_: &Flow| {
            receiver.await.map_err(anabranch::Error::other)?;
            inside.pipe(next, stream::iter(0..100)).try_collect::<Vec<u64>>().await
        }));
        assert!(poll_once(&mut flow).is_pending());
        let drain = exec.drain();
        sender.send(()).unwrap();
        let (made, drained) = block_on(async { futures::join!(flow, drain) });
        assert!(made.unwrap().into_iter().eq(1..=100));
        drained.unwrap();
    }
}

#[tokio::test]
async fn a_flow_that_has_begun_spawns_runs() {
    // Seen to fail without the mark of a run that is spawned.
    let (exec, plan) = (executor(1), waiting());
    let (sender, receiver) = oneshot::channel::<()>();
    let (word_sender, word) = letter();
    let inside = exec.clone();
    let mut flow = Box::pin(exec.flow(async move |_: &Flow| {
        receiver.await.map_err(anabranch::Error::other)?;
        let mut outputs = inside.run(&plan, word).spawn().await.map_err(anabranch::Error::other)??;
        outputs.take::<u32>("word")
    }));
    assert!(poll_once(&mut flow).is_pending());
    let drain = exec.drain();
    sender.send(()).unwrap();
    word_sender.send(5).unwrap();
    let (word, drained) = futures::join!(flow, drain);
    assert_eq!(*word.unwrap(), 5);
    drained.unwrap();
}

#[test]
fn a_drain_inside_of_an_operation_or_a_flow_is_an_error_and_changes_nothing() {
    // Seen to fail (it hung) with a check for nodes alone.
    for exec in executors() {
        let engine = Engine::new(&exec).unwrap();
        let said = engine.var("said", String::new());
        let inside = exec.clone();
        let polls = Op::future("polls", (), &said, async move || Ok(inside.drain().await.unwrap_err().to_string()));
        block_on(block_on(engine.push(polls)).unwrap()).unwrap();
        let expected = "a drain that is awaited inside of a node, operation or flow of its executor would never end: \
            await it outside";
        assert_eq!(*block_on(said.read()).unwrap(), expected);
        let inside = exec.clone();
        let error = block_on(exec.flow(async |_: &Flow| inside.drain().await)).unwrap_err();
        assert_eq!(error.to_string(), expected);
        block_on(exec.flow(async |_: &Flow| Ok(()))).unwrap();
    }
}

#[test]
fn operations_end_and_a_failure_that_nothing_reports_is_told() {
    // Seen to fail (nothing reported the failure) with a drain that does not wait for engines.
    for exec in executors() {
        let engine = Engine::new(&exec).unwrap();
        let (sender, receiver) = oneshot::channel::<u32>();
        let x = engine.var("x", 0_u32);
        let (wait, fail) = (
            Op::future("wait", (), &x, async move || Ok(receiver.await?)),
            Op::try_task("fail", &x, (), |x: &u32| Err::<(), _>(format!("it is {x}").into())),
        );
        // Their handles are dropped.
        drop((block_on(engine.push(wait)).unwrap(), block_on(engine.push(fail)).unwrap()));
        let mut drain = exec.drain();
        assert!(poll_once(&mut drain).is_pending());
        sender.send(3).unwrap();
        let error = block_on(drain).unwrap_err();
        assert_eq!(format!("{error:#}"), "operation 'fail' failed: it is 3");
    }
}

#[test]
fn a_drain_that_is_dropped_refuses_work_and_shuts_nothing_down() {
    for exec in executors() {
        let (sender, inputs) = letter();
        let mut run = exec.run(&waiting(), inputs);
        assert!(poll_once(&mut run).is_pending());
        drop(exec.drain());
        assert!(block_on(exec.run(&waiting(), letter().1)).unwrap_err().is_shut_down());
        sender.send(7).unwrap();
        block_on(run).unwrap();
        block_on(exec.drain()).unwrap();
    }
}

#[test]
fn a_drain_inside_of_a_node_is_an_error_and_changes_nothing() {
    for exec in [0, 1, 2].map(executor) {
        let inside = exec.clone();
        let mut g = Graph::new();
        let error = g.future("drain", (), move || {
            let exec = inside.clone();
            async move { Ok(exec.drain().await.unwrap_err().to_string()) }
        });
        g.output("error", &error);
        let plan = plan(&g);
        let error = block_on(exec.run(&plan, Inputs::new())).unwrap().take::<String>("error").unwrap();
        assert!(error.contains("inside"), "{error}");
        block_on(exec.run(&plan, Inputs::new())).unwrap();
    }
}

#[test]
fn a_shutdown_cuts_a_drain_short() {
    for exec in executors() {
        let (_sender, inputs) = letter();
        let mut run = exec.run(&waiting(), inputs);
        assert!(poll_once(&mut run).is_pending());
        let (drain, shutdown) = (exec.drain(), exec.shutdown());
        let (run, drained, down) = block_on(async { futures::join!(run, drain, shutdown) });
        assert!(run.unwrap_err().is_shut_down());
        drained.unwrap();
        down.unwrap();
    }
}

#[test]
fn no_accepted_work_is_cut_short() {
    // Seen to fail without the mark of a flow's poll, and with a drain that does not wait for flows.
    for round in 0..18 {
        let exec = executor(round % 3);
        let is_going = AtomicBool::new(true);
        let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while is_going.load(SeqCst) {
                        requests(&exec, &begun, &ended);
                    }
                });
            }
            while ended.load(SeqCst) < 20 {
                std::thread::yield_now();
            }
            block_on(exec.drain()).unwrap();
            is_going.store(false, SeqCst);
        });
        assert_eq!(begun.load(SeqCst), ended.load(SeqCst));
    }
}

/// Makes a flow that makes a run, and pushes an operation that makes one. Each run records its begin and its
/// end.
fn requests(exec: &Executor, begun: &Arc<AtomicUsize>, ended: &Arc<AtomicUsize>) {
    let note = |g: &mut Graph| {
        let (begun, ended) = (begun.clone(), ended.clone());
        g.future("note", (), move || {
            begun.fetch_add(1, SeqCst);
            let ended = ended.clone();
            async move {
                smol::future::yield_now().await;
                Ok(_ = ended.fetch_add(1, SeqCst))
            }
        })
    };
    let mut g = Graph::new();
    note(&mut g);
    let plan = plan(&g);
    let flow = exec.flow(async |f: &Flow| {
        begun.fetch_add(1, SeqCst);
        exec.run(&plan, Inputs::new()).await?;
        let (inside, plan) = (exec.clone(), plan.clone());
        let x = f.future("run", (), move || async move { Ok(_ = inside.run(&plan, Inputs::new()).await?) });
        f.get(&x).await?;
        Ok(_ = ended.fetch_add(1, SeqCst))
    });
    let (flow, run) = block_on(async { futures::join!(flow, exec.run(&plan, Inputs::new())) });
    assert!(flow.is_ok() || flow.as_ref().is_err_and(anabranch::Error::is_shut_down), "{flow:?}");
    assert!(run.is_ok() || run.as_ref().is_err_and(anabranch::Error::is_shut_down), "{run:?}");
}

#[tokio::test]
async fn a_run_that_waits_for_room_and_is_spawned_then_leaves_the_queue() {
    // Seen to fail (a run stayed in the queue) with a mark of a run that is queued already.
    let exec = Executor::builder().workers(1).max_in_flight(1).build().unwrap();
    let plan = waiting();
    let ((sender, first), (_, second)) = (letter(), letter());
    let mut first = exec.run(&plan, first);
    assert!(poll_once(&mut first).is_pending());
    let (inside, plan) = (exec.clone(), &plan);
    let flow = exec.flow(async move |_: &Flow| {
        let mut second = inside.run(plan, second);
        assert!(poll_once(&mut second).is_pending());
        second.spawn().abort();
        Ok(())
    });
    flow.await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(exec.stats().runs_waiting, 0);
    sender.send(1).unwrap();
    first.await.unwrap();
}
