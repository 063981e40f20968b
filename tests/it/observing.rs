//! Observers: told of every node that ran, of how it ended, and of none that did not run.

use std::collections::HashSet;
use std::sync::Arc;

use anabranch::exec::TimelineSpan;
use anabranch::{Executor, Graph, HostStream, Inputs, Plan, Timeline};
use futures::future::join_all;

use crate::support::{block_on, chain, plan};

/// Returns an executor and what it writes down.
fn observed(workers: usize, spans_max: usize) -> (Executor, Arc<Timeline>) {
    let timeline = Arc::new(Timeline::new(spans_max));
    (Executor::builder().workers(workers).observer(timeline.clone()).build().unwrap(), timeline)
}

fn names(spans: &[TimelineSpan]) -> Vec<&str> {
    spans.iter().map(|span| &*span.node).collect()
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
        let spans = timeline.spans();
        assert_eq!(names(&spans), ["a", "b", "c"]);
        assert!(spans.iter().all(|span| span.is_ok && span.start <= span.end));
        assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start), "{spans:?}");
        assert!((spans[1].end - spans[1].start).as_micros() >= 1000, "from its first poll to its last");
        let streams: Vec<u32> = plan.schedule().order().iter().map(|&node| plan.schedule().stream_of(node)).collect();
        assert_eq!(spans.iter().map(|span| span.stream).collect::<Vec<_>>(), streams);
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
        let spans = timeline.spans();
        assert_eq!(names(&spans).into_iter().collect::<HashSet<_>>(), HashSet::from(["a", "c"]));
        assert!(spans.iter().all(|span| !span.is_ok));
    }
}

#[test]
fn runs_at_the_same_time_are_told_apart() {
    let (exec, timeline) = observed(2, 1000);
    let plan = three();
    let runs = block_on(join_all((0..20).map(|_| exec.run(&plan, Inputs::new()))));
    assert!(runs.into_iter().all(|run| run.is_ok()));
    let spans = timeline.spans();
    for run in spans.iter().map(|span| span.run).collect::<HashSet<u64>>() {
        let own: Vec<_> = spans.iter().filter(|span| span.run == run).cloned().collect();
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
    assert_eq!(timeline.spans().len(), 10);
}

#[test]
fn a_timeline_gives_each_run_of_a_plan_as_spans() {
    // Seen to fail with the runs of other plans among them.
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
    // The costs that were given say nothing; measured, the slow kernel comes first. Seen to fail with the
    // costs that were given.
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
