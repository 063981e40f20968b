//! The trace of a timeline, in the format of Perfetto and Chrome.

use std::collections::HashMap;
use std::sync::Arc;

use anabranch::{BoxError, Executor, Flow, Graph, Pipeline, Ranked, Timeline, Value};
use futures::{StreamExt, stream};
use serde_json::Value as Json;
use smol::future::yield_now;

use crate::support::block_on;

/// Runs a pipeline beside a flow, and returns the events of the trace.
fn traced(workers: usize, spans_max: usize) -> Json {
    let timeline = Arc::new(Timeline::new(spans_max));
    let exec = Executor::builder().workers(workers).observer(timeline.clone()).build().unwrap();
    let build = |g: &mut Graph, x: Value<u64>| {
        let slow = g.future("slow", &x, async |x: Arc<u64>| {
            yield_now().await;
            Ok::<_, BoxError>(*x)
        });
        g.try_task("check", &slow, |x: &u64| if *x == 3 { Err("three".into()) } else { Ok(*x) })
    };
    let pipeline = Pipeline::new("checks", &Ranked::default(), build).unwrap();
    let flow = exec.flow(async |f: &Flow| Ok(*f.get(&f.task("op", (), || 1)).await?));
    let (results, one) = block_on(futures::future::join(exec.pipe(&pipeline, stream::iter(0..8)).collect::<Vec<_>>(), flow));
    assert_eq!((results.len(), one.unwrap()), (8, 1));
    block_on(exec.idle()).unwrap();
    serde_json::from_str(&timeline.to_perfetto()).unwrap()
}

fn events<'t>(trace: &'t Json, ph: &str) -> Vec<&'t Json> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == ph).collect()
}

#[test]
fn slices_of_a_thread_are_nested_and_all_else_begins_and_ends() {
    // Seen to fail with futures as slices.
    for workers in [0, 1, 2] {
        let trace = traced(workers, 1_000);
        let mut threads: HashMap<u64, Vec<(f64, f64)>> = HashMap::new();
        for slice in events(&trace, "X") {
            let (from, length) = (slice["ts"].as_f64().unwrap(), slice["dur"].as_f64().unwrap());
            threads.entry(slice["tid"].as_u64().unwrap()).or_default().push((from, from + length));
        }
        for slices in threads.values_mut() {
            slices.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
            let mut open: Vec<f64> = Vec::new();
            for &(from, until) in slices.iter() {
                open.retain(|&end| end > from);
                assert!(open.iter().all(|&end| until <= end + 1e-3), "a slice ends after the one around it");
                open.push(until);
            }
        }
        let ids = |ph| {
            let mut ids: Vec<u64> = events(&trace, ph).iter().map(|event| event["id"].as_u64().unwrap()).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(ids("b"), ids("e"));
        // A run, eight items and their futures, and the flow, at least.
        assert!(ids("b").len() > 1 + 8 + 8, "{workers}: {}", ids("b").len());
    }
}

#[test]
fn events_have_their_run_their_item_and_their_end() {
    let trace = traced(1, 1_000);
    let checks: Vec<_> = events(&trace, "X").into_iter().filter(|slice| slice["name"] == "check").collect();
    let failed: Vec<_> = checks.iter().filter(|slice| slice["args"]["ended"] == "failed").collect();
    assert_eq!((checks.len(), failed.len()), (8, 1));
    assert_eq!((&failed[0]["args"]["item"], failed[0]["cat"].as_str()), (&Json::from(3), Some("node")));
    let run = events(&trace, "b").into_iter().find(|event| event["cat"] == "run").unwrap();
    assert_eq!(run["name"], "checks");
    assert!(checks.iter().all(|slice| slice["args"]["run"] == run["args"]["run"]));
    let names: Vec<_> = events(&trace, "M").iter().map(|event| event["args"]["name"].as_str().unwrap().to_owned()).collect();
    assert!(names.contains(&"worker 0".to_owned()), "{names:?}");
}

#[test]
fn a_trace_says_how_many_spans_are_left_out() {
    let trace = traced(0, 5);
    let shown = events(&trace, "X").len() + events(&trace, "b").len();
    assert_eq!(shown, 5);
    assert!(trace["otherData"]["spans_left_out"].as_u64().unwrap() > 10);
}
