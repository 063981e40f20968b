//! Observers are called for every node that ran, with its end, and for no node that did not run.

mod all_work;
mod ledger;
mod stats;
#[cfg(feature = "json")]
mod trace;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anabranch::exec::{Ended, Observer, RunId, Work, WorkSpan};
use anabranch::graph::times;
use anabranch::{BoxError, Engine, Executor, Flow, Function, Graph, HostStream, Inputs, Op, Plan, Timeline, Value};
use futures::future::join_all;

use crate::support::{block_on, boxes, chain, panic_quietly, plan, poll_once};

/// Returns an executor and its timeline.
fn observed(workers: usize, spans_max: usize) -> (Executor, Arc<Timeline>) {
    let timeline = Arc::new(Timeline::new(spans_max));
    (Executor::builder().workers(workers).observer(timeline.clone()).build().unwrap(), timeline)
}

fn names(spans: &[WorkSpan]) -> Vec<&str> {
    spans.iter().map(|span| &*span.work.name).collect()
}

/// A task, an async node that waits for a millisecond, a kernel.
fn three() -> Plan {
    let mut g = Graph::new();
    let a = g.task("a", (), || 1u64);
    let b = g.future("b", &a, async |a: Arc<u64>| {
        smol::Timer::after(std::time::Duration::from_millis(1)).await;
        Ok(*a)
    });
    let c = g.kernel("c", &b, |s: &mut HostStream, b: &u64| s.launch(|| b + 1));
    g.output("out", &c);
    plan(&g)
}

#[test]
fn every_node_that_ran_is_told_of_once_and_in_order() {
    for workers in [0, 1, 2, 8] {
        let (exec, timeline) = observed(workers, 100);
        let plan = three();
        block_on(exec.run(&plan, Inputs::new())).unwrap();
        let spans = timeline.nodes();
        assert_eq!(names(&spans), ["a", "b", "c"]);
        assert!(spans.iter().all(|span| span.is_ok() && span.start <= span.end));
        assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start), "{spans:?}");
        assert!((spans[1].end - spans[1].start).as_micros() >= 1000, "from its first poll to its last");
        let streams: Vec<u32> = plan.schedule().order().iter().map(|&node| plan.schedule().stream_of(node)).collect();
        assert_eq!(spans.iter().filter_map(|span| span.work.stream()).collect::<Vec<_>>(), streams);
    }
}

#[test]
fn a_node_that_failed_is_told_of_and_one_that_was_skipped_is_not() {
    let mut g = Graph::new();
    let a = g.try_task("a", (), || Err::<u64, _>("no".into()));
    let b = g.task("b", &a, |a: &u64| *a);
    let c = g.future("c", (), async || Err::<u64, _>("no".into()));
    g.output("b", &b);
    g.output("c", &c);
    for workers in [0, 1, 2] {
        let (exec, timeline) = observed(workers, 100);
        assert!(block_on(exec.run(&plan(&g), Inputs::new())).is_err());
        let spans = timeline.nodes();
        assert_eq!(names(&spans).into_iter().collect::<HashSet<_>>(), HashSet::from(["a", "c"]));
        assert!(spans.iter().all(|span| !span.is_ok()));
    }
}

// Seen to fail without `tell_rest`, where the loop of a run without workers never ended.
#[test]
fn a_loop_or_a_node_that_was_cancelled_ends_as_cancelled() {
    for workers in [0, 1, 2] {
        let (exec, timeline) = observed(workers, 100);
        let has_begun = Arc::new(AtomicBool::new(false));
        let begins = has_begun.clone();
        let mut g = Graph::new();
        let a = g.task("a", (), || 1u64);
        let b = g.repeat("loop", &a, times(2), move |body, x| {
            body.future("never", &x, move |_: Arc<u64>| {
                begins.store(true, Ordering::SeqCst);
                std::future::pending::<Result<u64, BoxError>>()
            })
        });
        g.output("b", &b);
        let mut run = exec.run(&plan(&g), Inputs::new());
        while !has_begun.load(Ordering::SeqCst) {
            assert!(poll_once(&mut run).is_pending());
        }
        run.cancel();
        assert!(block_on(run).unwrap_err().is_cancelled());
        let ended: Vec<_> = timeline.spans().iter().map(|span| (span.work.name.to_string(), span.ended)).collect();
        let expected =
            [("a", Ended::Ok), ("loop/body/never", Ended::Cancelled), ("loop", Ended::Cancelled), ("run", Ended::Cancelled)];
        assert_eq!(ended, expected.map(|(name, ended)| (name.to_owned(), ended)));
    }
}

#[test]
fn runs_at_the_same_time_are_told_apart() {
    let (exec, timeline) = observed(2, 1000);
    let plan = three();
    let runs = block_on(join_all((0..20).map(|_| exec.run(&plan, Inputs::new()))));
    assert!(runs.into_iter().all(|run| run.is_ok()));
    let spans = timeline.nodes();
    for run in spans.iter().map(|span| span.work.run).collect::<HashSet<RunId>>() {
        let own: Vec<_> = spans.iter().filter(|span| span.work.run == run).cloned().collect();
        assert_eq!(names(&own), ["a", "b", "c"]);
    }
}

#[test]
fn a_timeline_keeps_no_more_than_it_was_told_to() {
    let (exec, timeline) = observed(0, 10);
    let mut g = Graph::new();
    let x = g.task("x", (), || 0u64);
    let out = chain(&mut g, &x, 100);
    g.output("out", &out);
    block_on(exec.run(&plan(&g), Inputs::new())).unwrap();
    assert_eq!(timeline.nodes().len(), 10);
}

#[test]
fn a_timeline_gives_each_run_of_a_plan_as_spans() {
    // Seen to fail when the runs of other plans are included.
    let (exec, timeline) = observed(2, 1000);
    let (plan, other) = (three(), three());
    for plan in [&plan, &other, &plan] {
        block_on(exec.run(plan, Inputs::new())).unwrap();
    }
    let runs = timeline.runs(&plan);
    assert_eq!((runs.len(), timeline.runs(&other).len()), (2, 1));
    for run in runs {
        assert_eq!(run.iter().map(|span| span.node).collect::<Vec<_>>(), plan.schedule().order());
        assert_eq!(run[0].start_us, 0.0);
        let svg = plan.schedule().to_svg(&run);
        assert!(svg.starts_with("<svg") && ["a", "b", "c"].iter().all(|name| svg.contains(&format!("<title>{name} on "))));
    }
}

#[test]
fn measured_costs_put_the_critical_path_first() {
    // The given costs are equal; with measured costs, the slow kernel comes first. Seen to fail with the
    // given costs.
    let mut g = Graph::new();
    for node in 0..3 {
        let name = format!("k{node}");
        g.kernel(&name, (), move |s: &mut HostStream| {
            s.launch(|| {
                if node == 2 {
                    std::thread::sleep(std::time::Duration::from_millis(50))
                }
            })
        });
    }
    let last = g.kernel("last", (), |_: &mut HostStream| 7u64);
    g.output("last", &last);
    let plan = g.compile_with(&anabranch::policy::CriticalPath::default().streams(1)).unwrap();
    let (exec, timeline) = observed(1, 100);
    block_on(exec.run(&plan, Inputs::new())).unwrap();
    let costs = timeline.costs_us(&plan);
    assert!(costs[2].unwrap() >= 50_000.0, "{costs:?}");
    let better = plan.recompile(&timeline).unwrap();
    let first = better.schedule().order()[0];
    assert_eq!(&*better.schedule().shape().nodes()[first.index()].name, "k2");
    assert_eq!(better.schedule().streams(), 1);
    better.verify().unwrap();
    assert_eq!(*block_on(exec.run(&better, Inputs::new())).unwrap().take::<u64>("last").unwrap(), 7);
}

#[test]
fn a_plan_that_is_compiled_again_gives_the_same() {
    // Seen to fail without the facts of values: shared, taken, in place.
    let mut g = Graph::new();
    let word = g.input::<String>("word");
    let upper = g.task("upper", &word, |word: &String| word.to_uppercase());
    let length = g.future("length", &upper, async |upper: Arc<String>| Ok(upper.len()));
    let text = g.task("text", (anabranch::take(&length), &upper), |length: usize, upper: &String| format!("{upper} {length}"));
    g.output("text", &text);
    let plan = plan(&g);
    let (exec, timeline) = observed(2, 100);
    let again = plan.recompile(&timeline).unwrap();
    for plan in [&plan, &again, &again.recompile(&timeline).unwrap()] {
        let inputs = anabranch::inputs! { "word" => String::from("river") };
        let text = block_on(exec.run(plan, inputs)).unwrap().take::<String>("text").unwrap();
        assert_eq!(*text, "RIVER 5");
    }
}

/// An operation of each kind: a task, a future that waits for a millisecond, a kernel, one that fails, and
/// one that does not run because of that.
async fn five(engine: &Engine) {
    let var = |name| engine.var(name, 1u64);
    let (a, b, c, d) = (var("a"), var("b"), var("c"), var("d"));
    drop(engine.push(Op::task("task", &a, &b, |a: &u64| a + 1)).await.unwrap());
    let waits = async |b: Arc<u64>| {
        smol::Timer::after(std::time::Duration::from_millis(1)).await;
        Ok(*b)
    };
    drop(engine.push(Op::future("future", &b, &c, waits)).await.unwrap());
    drop(engine.push(Op::kernel("kernel", &c, &d, |s: &mut HostStream, c: &u64| s.launch(|| c + 1))).await.unwrap());
    drop(engine.push(Op::try_task("fails", &d, &c, |_: &u64| Err::<u64, _>("no".into()))).await.unwrap());
    drop(engine.push(Op::task("does not run", &c, &d, |c: &u64| *c)).await.unwrap());
    assert!(engine.idle().await.is_ok(), "c and d are poisoned still");
}

#[test]
fn every_operation_that_ran_is_heard_of_once_and_in_order() {
    for workers in [0, 1, 2] {
        let (exec, timeline) = observed(workers, 100);
        let engine = Engine::new(&exec).unwrap();
        block_on(five(&engine));
        let operations = timeline.operations();
        let ended: Vec<_> = operations.iter().map(|op| (&*op.work.name, op.is_ok())).collect();
        assert_eq!(ended, [("task", true), ("future", true), ("kernel", true), ("fails", false)]);
        assert!(operations.windows(2).all(|pair| pair[0].end <= pair[1].start), "{operations:?}");
        assert!((operations[1].end - operations[1].start).as_micros() >= 1000, "from its closure to its last poll");
        assert!(timeline.nodes().is_empty());
    }
}

#[test]
fn the_parts_of_a_joined_operation_are_heard_of() {
    for workers in [0, 2] {
        let (exec, timeline) = observed(workers, 3);
        let engine = Engine::new(&exec).unwrap();
        let x = engine.var("x", 0u64);
        let add = |name: &'static str| Op::task(name, &x, &x, |x: &u64| x + 1);
        block_on(async {
            drop(engine.push(Op::join("both", [add("one"), add("two")])).await.unwrap());
            engine.push(add("three")).await.unwrap().await.unwrap();
            engine.push(add("beyond the bound")).await.unwrap().await.unwrap();
        });
        let operations = timeline.operations();
        let names: Vec<_> = operations.iter().map(|op| &*op.work.name).collect();
        assert_eq!(names, ["one", "two", "three"]);
    }
}

#[test]
fn runs_and_operations_of_a_flow_are_told_apart() {
    let (exec, timeline) = observed(2, 100);
    let step = Function::new("step", |g: &mut Graph, x: Value<u64>| g.task("add", &x, |x: &u64| x + 1)).unwrap();
    let two = exec.flow(async |f: &Flow| {
        let x = f.task("begin", (), || 1u64);
        Ok(*f.get(&f.call(&step, &x)).await?)
    });
    assert_eq!(block_on(two).unwrap(), 2);
    let (nodes, operations) = (timeline.nodes(), timeline.operations());
    assert_eq!(names(&nodes), ["add"]);
    let operation_names: Vec<_> = operations.iter().map(|op| &*op.work.name).collect();
    assert_eq!(operation_names, ["begin", "step"]);
    assert!(operations[1].start <= nodes[0].start && nodes[0].end <= operations[1].end, "the call is around its node");
    assert_ne!(nodes[0].work.run, operations[0].work.run);
}

/// Panics when it observes an operation.
struct Touchy;

impl Observer for Touchy {
    fn ended(&self, span: &WorkSpan) {
        if span.work.is_operation() {
            assert_eq!(span.work.name, "touch");
            panic_quietly("not this one");
        }
    }
}

#[test]
fn an_observer_that_panics_at_an_operation_is_reported() {
    for workers in [0, 2] {
        let exec = Executor::builder().workers(workers).observer(Arc::new(Touchy)).build().unwrap();
        let engine = Engine::new(&exec).unwrap();
        let x = engine.var("x", 0u64);
        block_on(async {
            let pushed = engine.push(Op::task("touch", (), &x, || 1)).await.unwrap();
            assert!(pushed.await.is_ok(), "the operation did its part");
            assert_eq!(*x.read().await.unwrap(), 1);
            assert_eq!(engine.idle().await.unwrap_err().to_string(), "the observer panicked at 'touch': not this one");
            engine.idle().await.unwrap();
        });
        let flow = exec.flow(async |f: &Flow| Ok(*f.get(&f.task("touch", (), || 1)).await?));
        assert_eq!(block_on(flow).unwrap_err().to_string(), "the observer panicked at 'touch': not this one");
    }
}

#[test]
fn a_timeline_draws_threads_as_rows_names_in_colours_and_items_together() {
    // Seen to fail with a colour for each item, and with one group for all.
    let (timeline, begin, plan) = (Timeline::new(100), Instant::now(), three());
    let ids: Vec<_> = plan.schedule().shape().ids().collect();
    let exec = Executor::inline();
    let runs = [(); 2].map(|()| exec.run(&plan, Inputs::new()));
    let add = |run: usize, item, id: usize, times: (u64, u64), is_ok| {
        let [start, end] = [times.0, times.1].map(|us| begin + Duration::from_micros(us));
        let mut span = WorkSpan::new(Work::node(&plan, ids[id], 0), start, start, end);
        (span.work.run, span.work.item, span.ended) = (runs[run].id(), item, if is_ok { Ended::Ok } else { Ended::Failed });
        timeline.ended(&span);
    };
    assert!(timeline.to_svg().contains(">takes 0 µs<"));
    // A run over two items, the second of which fails, beside another run.
    add(1, 0, 2, (25, 90), true);
    add(0, 0, 0, (10, 30), true);
    add(0, 1, 0, (30, 50), true);
    add(0, 0, 1, (30, 70), true);
    add(0, 1, 1, (70, 80), false);
    let picture = timeline.to_svg();
    assert!(picture.contains(">5 nodes · 1 failed · takes 80 µs<"), "{picture}");
    let drawn = boxes(&picture);
    // By group: the first run's first item, the other run, the second item.
    let places: Vec<_> = drawn.iter().map(|node| node.0).collect();
    assert_eq!(places, ["a #0", "b #0", "c", "a #1", "b #1"]);
    let here = std::thread::current().name().unwrap().to_owned();
    assert!(drawn.iter().all(|node| node.1 == here), "they are of this thread: {drawn:?}");
    let color = |at: usize| drawn[at].2;
    assert_eq!((color(0), color(1)), (color(3), color(4)), "a name has a colour");
    assert!(color(0) != color(1) && color(1) != color(2));
    assert_eq!(drawn.iter().filter(|node| node.3 != "#00000033").map(|node| node.0).collect::<Vec<_>>(), ["b #1"]);
    assert!(picture.contains(&format!("<title>b #1 on {here}: 10 µs from 60 µs, failed&#10;node of run ")), "{picture}");
}

#[test]
fn a_timeline_that_was_full_says_so() {
    // Seen to fail without the count.
    let (timeline, plan, now) = (Timeline::new(2), three(), Instant::now());
    let picture = |timeline: &Timeline| timeline.to_svg();
    for id in plan.schedule().shape().ids() {
        assert!(picture(&timeline).contains(">timeline</text>"));
        timeline.ended(&WorkSpan::new(Work::node(&plan, id, 0), now, now, now));
    }
    assert!(picture(&timeline).contains(">timeline, full: the first 2 of 3 spans</text>"), "{}", picture(&timeline));
}
