//! All work is observed in the same way: runs, items, flows, nodes, operations and the tiles of scopes.

use std::collections::{BTreeMap, HashSet};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anabranch::exec::{Ended, RunId, WorkSpan};
use anabranch::graph::times;
use anabranch::scope::{Streaming, Sum, Tile, TileMut};
use anabranch::sim::{Faults, Order};
use anabranch::{BoxError, Engine, Executor, Flow, Function, Graph, Inputs, Op, Pipeline, Ranked, Value, inputs};
use futures::channel::oneshot;
use futures::{StreamExt, stream};
use smol::future::yield_now;
use tokio::sync::Semaphore;

use super::ledger::Ledger;
use crate::support::{block_on, panic_quietly, plan, poll_once};

/// Returns executors without workers, with one and with two, and a simulated one, each with its ledger.
fn executors() -> Vec<(Executor, Arc<Ledger>)> {
    let builders = [0, 1, 2].map(|workers| Executor::builder().workers(workers));
    let simulated = Executor::builder().simulated(Order::Seeded(7), Faults::default());
    let build = |builder: anabranch::exec::ExecutorBuilder| {
        let ledger = Arc::new(Ledger::default());
        (builder.observer(ledger.clone()).build().unwrap(), ledger)
    };
    builders.into_iter().chain([simulated]).map(build).collect()
}

/// Returns the number of pieces of work of each kind that have ended in each way.
fn counts(spans: &[WorkSpan]) -> BTreeMap<(&'static str, &'static str), usize> {
    let mut counts = BTreeMap::new();
    spans.iter().for_each(|span| *counts.entry((span.work.kind_name(), span.ended.name())).or_insert(0) += 1);
    counts
}

fn times_of<'s>(spans: &'s [WorkSpan], name: &str) -> &'s WorkSpan {
    spans.iter().find(|span| span.work.name == name).unwrap_or_else(|| panic!("{name} is not among {spans:?}"))
}

/// A future that is pending twice.
async fn slow(x: Arc<u64>) -> Result<u64, BoxError> {
    yield_now().await;
    yield_now().await;
    Ok(*x)
}

fn looped() -> Graph {
    let mut g = Graph::new();
    let x = g.input::<u64>("x");
    let a = g.task("a", &x, |x: &u64| x + 1);
    let b = g.future("b", &a, slow);
    let c = g.repeat("loop", &b, times(3), |g, x| {
        let y = g.future("in loop", &x, slow);
        g.task("add", &y, |y: &u64| y + 1)
    });
    let d = g.try_task("d", &c, |c: &u64| if *c > 99 { Err("too much".into()) } else { Ok(*c) });
    let e = g.task("e", (&d, &a), |d: &u64, a: &u64| d + a);
    g.output("e", &e);
    g
}

#[test]
fn a_run_and_its_nodes_begin_and_end_once() {
    for (exec, ledger) in executors() {
        let plan = plan(&looped());
        let run = exec.run(&plan, inputs! { "x" => 1u64 });
        let id = run.id();
        block_on(run).unwrap();
        let spans = ledger.close();
        assert_eq!(counts(&spans), BTreeMap::from([(("node", "ok"), 11), (("run", "ok"), 1)]), "{exec:?}");
        assert!(spans.iter().all(|span| span.work.run == id && span.work.around.is_none()));
        let last = spans.last().unwrap();
        assert_eq!(last.work.kind_name(), "run", "its nodes end before it");
        assert!(spans.iter().all(|span| last.start <= span.start && span.end <= last.end));
        let polls = |name| times_of(&spans, name).polls;
        assert_eq!(["a", "b", "loop", "loop/body/in loop"].map(polls), [1, 3, 0, 3]);
        block_on(exec.run(&plan, inputs! { "x" => 100u64 })).unwrap_err();
        let expected = [(("node", "failed"), 1), (("node", "ok"), 9), (("run", "failed"), 1)];
        assert_eq!(counts(&ledger.close()), BTreeMap::from(expected));
    }
}

#[test]
fn a_node_is_ready_when_all_that_it_reads_has_ended() {
    // Seen to fail without the ends of nodes, and without the begins of inner graphs.
    for (exec, ledger) in executors() {
        let plan = plan(&looped());
        block_on(exec.run(&plan, inputs! { "x" => 1u64 })).unwrap();
        let spans = ledger.close();
        let of = |name| times_of(&spans, name);
        assert_eq!((of("b").ready, of("loop").ready, of("d").ready), (of("a").end, of("b").end, of("loop").end));
        assert_eq!(of("e").ready, of("d").end);
        assert!(of("run").start <= of("a").ready && of("run").ready <= of("run").start);
        let adds: Vec<_> = spans.iter().filter(|span| span.work.name == "loop/body/add").collect();
        let slow: Vec<_> = spans.iter().filter(|span| span.work.name == "loop/body/in loop").collect();
        assert!((0..3).all(|at| adds[at].ready == slow[at].end));
        assert!((1..3).all(|at| slow[at].ready >= adds[at - 1].end), "an iteration begins after the one before");
    }
}

/// Permits for futures, and the number of futures that have started to wait for one.
struct Gate {
    permits: Semaphore,
    arrived: AtomicUsize,
}

impl Gate {
    async fn pass(self: Arc<Self>, x: u64) -> Result<u64, BoxError> {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        self.permits.acquire().await?.forget();
        Ok(x)
    }
}

/// A future and a loop of three iterations, each of which waits at the gate.
fn gated(gate: &Arc<Gate>) -> Graph {
    let mut g = Graph::new();
    let (one, other) = (gate.clone(), gate.clone());
    let a = g.future("first", (), move || one.clone().pass(0));
    let b = g.repeat("loop", &a, times(3), move |g, x| g.future("in loop", &x, move |x: Arc<u64>| other.clone().pass(*x)));
    g.output("b", &b);
    g
}

#[test]
fn a_run_that_is_dropped_at_any_of_its_futures_ends_what_it_began() {
    // Seen to fail when an aborted future does not end.
    for (exec, ledger) in executors() {
        for permits in 0..=4 {
            let gate = Arc::new(Gate { permits: Semaphore::new(permits), arrived: AtomicUsize::new(0) });
            let mut run = exec.run(&plan(&gated(&gate)), Inputs::new());
            let mut is_done = false;
            while !is_done && gate.arrived.load(Ordering::SeqCst) <= permits {
                is_done = poll_once(&mut run).is_ready();
            }
            drop(run);
            block_on(exec.idle()).unwrap();
            let counts = counts(&ledger.close());
            let cancelled = |kind| counts.get(&(kind, "cancelled")).copied().unwrap_or(0);
            // The future, and the loop around all but the first one.
            let nodes = if permits == 0 { 1 } else { 2 };
            assert_eq!((cancelled("node"), cancelled("run")), if permits == 4 { (0, 0) } else { (nodes, 1) }, "{counts:?}");
        }
    }
}

#[test]
fn a_run_that_is_refused_or_dropped_unpolled_does_not_begin() {
    for (exec, ledger) in executors() {
        let plan = plan(&looped());
        block_on(exec.run(&plan, Inputs::new())).unwrap_err();
        drop(exec.run(&plan, inputs! { "x" => 1u64 }));
        drop(exec.try_run(&plan, inputs! { "x" => 1u64 }).unwrap());
        assert_eq!(ledger.close().len(), 0);
    }
}

#[test]
fn each_item_of_a_pipeline_begins_and_ends() {
    for (exec, ledger) in executors() {
        let build = |g: &mut Graph, x: Value<u64>| {
            let y = g.future("slow", &x, slow);
            g.try_task("even", &y, |y: &u64| if y.is_multiple_of(2) { Ok(*y) } else { Err("odd".into()) })
        };
        let pipeline = Pipeline::new("halves", &Ranked::default(), build).unwrap();
        let results = exec.pipe(&pipeline, stream::iter(0..10));
        let id = results.id();
        assert_eq!(block_on(results.collect::<Vec<_>>()).len(), 10);
        block_on(exec.idle()).unwrap();
        let spans = ledger.close();
        let expected = [("item", "failed", 5), ("item", "ok", 5), ("node", "failed", 5), ("node", "ok", 15), ("run", "ok", 1)];
        assert_eq!(counts(&spans), expected.into_iter().map(|(kind, ended, count)| ((kind, ended), count)).collect());
        let items: HashSet<u64> =
            spans.iter().filter(|span| span.work.kind_name() == "item").map(|span| span.work.item).collect();
        assert_eq!((items, spans.iter().all(|span| span.work.run == id)), ((0..10).collect(), true));
        // A stream of results that is dropped early.
        let mut results = exec.pipe(&pipeline, stream::iter(0..10));
        assert!(block_on(results.next()).unwrap().is_ok());
        drop(results);
        block_on(exec.idle()).unwrap();
        assert!(ledger.close().iter().any(|span| span.work.kind_name() == "run" && span.ended == Ended::Cancelled));
    }
}

#[test]
fn a_flow_is_around_its_operations_calls_and_inner_flows() {
    for (exec, ledger) in executors() {
        let step = Function::new("step", |g: &mut Graph, x: Value<u64>| g.future("slow", &x, slow)).unwrap();
        let flow = exec.flow(async |f: &Flow| {
            let x = f.task("begin", (), || 1u64);
            let y = f.future("wait", &x, slow);
            let inner = f.flow(async |f: &Flow| Ok(*f.get(&f.task("inner", (), || 2u64)).await?)).await?;
            Ok(inner + *f.get(&f.call(&step, &y)).await?)
        });
        let id = flow.id().unwrap();
        assert_eq!(block_on(flow).unwrap(), 3);
        let spans = ledger.close();
        let is_step = |span: &&WorkSpan| span.work.is_operation() && span.work.name == "step";
        let own = ["begin", "wait"].map(|name| times_of(&spans, name).work.run);
        assert_eq!(spans.iter().find(is_step).unwrap().work.run, id);
        assert_eq!(own, [id; 2], "{exec:?}");
        let inner = spans.iter().find(|span| span.work.kind_name() == "flow" && span.work.run != id).unwrap();
        assert_eq!((inner.work.around, times_of(&spans, "inner").work.run), (Some(id), inner.work.run));
        let call = spans.iter().find(|span| span.work.kind_name() == "run").unwrap();
        assert_eq!((call.work.around, &*call.work.name), (Some(id), "step"), "the run of the call");
        assert!(times_of(&spans, "wait").ready >= times_of(&spans, "begin").end);
        assert!(spans.iter().filter(|span| span.work.kind_name() == "flow").all(|span| span.ended == Ended::Ok));
    }
}

#[test]
fn a_flow_that_is_dropped_fails_or_panics_ends_so() {
    for (exec, ledger) in executors() {
        let mut dropped = Box::pin(exec.flow(async |f: &Flow| {
            let never = f.future("never", (), || pending::<Result<u64, BoxError>>());
            Ok(*f.get(&never).await?)
        }));
        let failing = exec.flow(async |f: &Flow| Ok(*f.get(&f.try_task("fails", (), || Err::<u64, _>("no".into()))).await?));
        let panicking = exec.flow(async |_: &Flow| if true { panic_quietly("ouch") } else { Ok(0) });
        let ids = [dropped.id().unwrap(), failing.id().unwrap(), panicking.id().unwrap()];
        assert!((0..3).all(|_| poll_once(&mut dropped).is_pending()));
        drop(dropped);
        assert!(block_on(failing).is_err() && block_on(panicking).is_err());
        // A pushed operation ends as soon as a worker runs it; without workers, at once.
        let engine = Engine::new(&exec).unwrap();
        block_on(engine.idle()).unwrap();
        drop((engine, exec));
        crate::support::until(|| ledger.is_closed());
        let spans = ledger.close();
        let of = |id: RunId| spans.iter().find(|span| span.work.run == id && span.work.kind_name() == "flow").unwrap().ended;
        assert_eq!(ids.map(of), [Ended::Cancelled, Ended::Failed, Ended::Failed]);
    }
}

#[test]
fn operations_that_fail_wait_or_are_dropped_with_their_engine_end_once() {
    for (exec, ledger) in executors() {
        let engine = Engine::new(&exec).unwrap();
        let (x, y, z) = (engine.var("x", 1u64), engine.empty_var::<u64>("y"), engine.empty_var::<u64>("z"));
        block_on(async {
            let (release, held) = oneshot::channel::<()>();
            drop(engine.push(Op::future("wait", &x, &y, async move |x: Arc<u64>| Ok(held.await.map(|()| *x)?))).await?);
            let fails = Op::try_task("fails", &y, &z, |_: &u64| Err::<u64, _>("no".into()));
            let fails = engine.push(fails).await?;
            release.send(()).unwrap();
            fails.await.unwrap_err();
            drop(engine.push(Op::task("not run", &z, &y, |z: &u64| *z)).await?);
            drop(engine.push(Op::join("both", [Op::task("one", &x, (), |_: &u64| ()), Op::task("two", (), &x, || 2)])).await?);
            engine.idle().await.ok();
            drop(engine.push(Op::future("never", (), &x, || pending::<Result<u64, BoxError>>())).await?);
            Ok::<(), anabranch::Error>(())
        })
        .unwrap();
        let (id, begun) = (engine.id(), || ledger.has_begun("never"));
        if exec.workers() > 0 {
            crate::support::until(begun);
        }
        drop((engine, x, y, z, exec));
        crate::support::until(|| ledger.is_closed());
        let spans = ledger.close();
        assert!(spans.iter().all(|span| span.work.run == id));
        assert_eq!(times_of(&spans, "fails").ready, times_of(&spans, "wait").end);
        let ended = |name: &str| times_of(&spans, name).ended;
        assert_eq!(["wait", "fails", "one", "two"].map(ended), [Ended::Ok, Ended::Failed, Ended::Ok, Ended::Ok]);
        assert!(spans.iter().all(|span| span.work.name != "not run" && span.work.name != "both"));
        let never = spans.iter().find(|span| span.work.name == "never");
        assert!(never.is_none_or(|never| never.ended == Ended::Cancelled));
    }
}

#[test]
fn the_steps_of_a_scope_are_items_of_runs_in_its_run() {
    for (exec, ledger) in executors() {
        let mut g = Graph::new();
        let total = g.scope("sums", Streaming::strict().memory_max(200_000), |s| {
            let a = s.store("a", [100_000]);
            s.write("fill", (), &a, |mut a: TileMut<f64, 1>| a.fill(1.0));
            s.fold("sum", &a, Sum, |a: Tile<f64, 1>| a.as_slice().iter().sum::<f64>())
        });
        g.output("total", &total);
        let run = exec.run(&plan(&g), Inputs::new());
        let id = run.id();
        assert_eq!(*block_on(run).unwrap().take::<f64>("total").unwrap(), 1e5);
        let spans = ledger.close();
        let groups: Vec<_> = spans.iter().filter(|span| span.work.around == Some(id)).collect();
        assert!(!groups.is_empty() && groups.iter().all(|span| span.work.kind_name() == "run"));
        let steps = spans.iter().filter(|span| span.work.run == groups[0].work.run && span.work.kind_name() == "item").count();
        assert!(steps > 1, "{steps}");
    }
}

#[test]
fn the_thread_of_a_span_is_its_worker_or_the_caller() {
    for (exec, ledger) in executors() {
        block_on(exec.run(&plan(&looped()), inputs! { "x" => 1u64 })).unwrap();
        let here = std::thread::current().id();
        for span in ledger.close().iter().filter(|span| span.work.node_id().is_some()) {
            match span.thread.worker {
                Some(worker) => assert!((worker as usize) < exec.workers() && span.thread.id != here),
                None => assert!(exec.workers() == 0 && span.thread.id == here),
            }
        }
    }
}

#[test]
fn numbers_are_different_for_all_runs_and_stay() {
    let (exec, other) = (Executor::inline(), Executor::inline());
    let plan = plan(&looped());
    let runs: Vec<_> = (0..10).map(|at| if at % 2 == 0 { &exec } else { &other }.run(&plan, Inputs::new())).collect();
    let ids: HashSet<RunId> = runs.iter().flat_map(|run| [run.id(), run.id()]).collect();
    assert_eq!(ids.len(), 10);
}
