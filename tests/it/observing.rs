//! Observers: told of every node that ran, of how it ended, and of none that did not run.

use std::collections::HashSet;
use std::sync::Arc;

use anabranch::{Executor, Graph, HostStream, Inputs, Plan, Timeline, TimelineSpan};
use futures::future::join_all;

use crate::support::{block_on, chain, plan};

/// Returns an executor and what it writes down.
fn observed(workers: usize, spans_max: usize) -> (Executor, Arc<Timeline>) {
    let timeline = Arc::new(Timeline::new(spans_max));
    (Executor::builder().workers(workers).observer(timeline.clone()).build().unwrap(), timeline)
}

fn names(spans: &[TimelineSpan]) -> Vec<&str> {
    spans.iter().map(|span| span.node.as_str()).collect()
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
    for run in spans.iter().map(|span| span.run).collect::<HashSet<usize>>() {
        let own: Vec<_> = spans.iter().filter(|span| span.run == run).cloned().collect();
        assert!(own.len().is_multiple_of(3) && own.chunks(3).all(|three| names(three) == ["a", "b", "c"]));
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
