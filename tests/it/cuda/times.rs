//! Device times: when a GPU worked on nodes and operations, as observers are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch::exec::{DeviceSpan, Ended, Launched, WorkSpan};
use anabranch::graph::times;
use anabranch::policy::{PerOperator, Placement, Single};
use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Pipeline, Plan, Timeline, Value, inputs};
use anabranch_soft_cuda::{Code, Which};
use futures::{StreamExt, stream};

use super::vars::{OnDevice, engine, pushed, upload as upload_op};
use super::{Gpu, adding, download, output_by_host, upload, uploaded};
use crate::support::{block_on, poll_once, until, value_of};

const DELAY: Duration = Duration::from_millis(3);

/// An executor that takes times, and its timeline.
pub(super) fn timed(gpu: &Gpu) -> (Executor, Arc<Timeline>) {
    let timeline = Arc::new(Timeline::new(10_000));
    let exec = Executor::builder().workers(1).cuda(&[gpu.device.ordinal() as u32]).device_times(true);
    (exec.observer(timeline.clone()).build().unwrap(), timeline)
}

/// Uploads `x`, adds it to itself in `slow`, and that in `fast`.
pub(super) fn slow_then_fast() -> Graph {
    let (mut g, _, up) = uploaded("up");
    let slow = g.try_kernel("slow", (&up, &up), adding());
    let fast = g.try_kernel("fast", (&slow, &slow), adding());
    output_by_host(&mut g, &fast, |x| x[0]);
    g
}

pub(super) fn run(exec: &Executor, plan: &Plan) -> f32 {
    *value_of(block_on(exec.run(plan, inputs! { "x" => vec![1.0_f32] })), "out")
}

pub(super) fn span(spans: &[WorkSpan], name: &str) -> WorkSpan {
    let mut found = spans.iter().filter(|span| &*span.work.name == name);
    let span = found.next().unwrap_or_else(|| panic!("{name} has no span")).clone();
    assert!(found.next().is_none(), "{name} has one span");
    span
}

pub(super) fn on_device(spans: &[WorkSpan], name: &str) -> DeviceSpan {
    let span = span(spans, name);
    let ran = span.on_device().unwrap_or_else(|| panic!("{name} has no times"));
    assert!(span.start <= ran.start && ran.start <= ran.end, "{span:?}");
    assert_eq!(span.run_time(), ran.end - ran.start);
    ran
}

// Seen to fail with an end that is recorded before the work, and with a start that is the first of the
// segment.
#[test]
fn a_span_says_when_the_device_worked_on_the_node() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    gpu.device.delay_operation(Which::Kernel, 1, DELAY);
    assert_eq!(run(&exec, &slow_then_fast().compile_with(&Single).unwrap()), 4.0);
    let spans = timeline.nodes();
    let [up, slow, fast, down] = ["up", "slow", "fast", "down"].map(|name| on_device(&spans, name));
    assert!(slow.end - slow.start >= DELAY, "{slow:?}");
    for (before, after) in [(up, slow), (slow, fast), (fast, down)] {
        assert!(before.end <= after.start, "{before:?} {after:?}");
        assert_eq!((before.device, before.stream), (0, after.stream));
    }
    let out = span(&spans, "out");
    assert!(out.on_device().is_none() && out.ready >= down.end, "a host node is ready when the device is done");
    assert!(spans.iter().all(WorkSpan::is_ok));
    drop(exec);
    gpu.is_clean();
}

#[test]
fn repeated_work_has_times_too_and_is_no_cuda_graph() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let plan = slow_then_fast().compile_with(&Single).unwrap();
    (0..3).for_each(|_| assert_eq!(run(&exec, &plan), 4.0));
    let spans = timeline.nodes();
    let kernels = spans.iter().filter(|span| span.launched == Launched::Calls && span.on_device().is_some());
    assert_eq!((kernels.count(), gpu.device.calls_of("cuGraphLaunch")), (12, 0));
    drop(exec);
    gpu.is_clean();
}

#[test]
fn without_device_times_or_observers_no_times_are_taken() {
    let gpu = Gpu::new();
    let timeline = Arc::new(Timeline::new(10_000));
    let builder = || Executor::builder().workers(1).cuda(&[gpu.device.ordinal() as u32]);
    let plan = slow_then_fast().compile_with(&Single).unwrap();
    for exec in [builder().observer(timeline.clone()), builder().device_times(true)] {
        let exec = exec.build().unwrap();
        (0..3).for_each(|_| assert_eq!(run(&exec, &plan), 4.0));
    }
    assert!(timeline.nodes().iter().all(|span| span.on_device().is_none()));
    assert_eq!((gpu.device.calls_of("cuEventElapsedTime"), gpu.device.calls_of("cuGraphLaunch")), (0, 4));
    gpu.is_clean();
}

// Seen to fail with all parts on the lane of the first.
#[test]
fn nodes_on_several_streams_have_the_times_of_theirs() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let (mut g, _, up) = uploaded("up");
    let [a, b] = ["a", "b"].map(|name| g.try_kernel(name, (&up, &up), adding()));
    let sum = g.try_kernel("sum", (&a, &b), adding());
    output_by_host(&mut g, &sum, |x| x[0]);
    gpu.device.delay_operation(Which::Kernel, 1, DELAY);
    gpu.device.delay_operation(Which::Kernel, 2, DELAY);
    assert_eq!(run(&exec, &g.compile_with(&PerOperator).unwrap()), 4.0);
    let spans = timeline.nodes();
    let [up, a, b, sum] = ["up", "a", "b", "sum"].map(|name| on_device(&spans, name));
    assert_ne!(a.stream, b.stream);
    for node in [a, b] {
        assert!(node.end - node.start >= DELAY && up.end <= node.start && node.end <= sum.start, "{node:?}");
    }
    drop(exec);
    gpu.is_clean();
}

// Seen to fail without the end that the next part records.
#[test]
fn work_of_a_library_counts_as_that_of_its_node() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let (mut g, _, up) = uploaded("up");
    let library = g.try_kernel("library", &up, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut y = s.alloc::<f32>(x.len())?;
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        raw.stream().memcpy_dtod(&raw.view(x)?, &mut raw.view_mut(&mut y)?)?;
        Ok(y)
    });
    let after = g.try_kernel("after", (&library, &library), adding());
    output_by_host(&mut g, &after, |x| x[0]);
    // The second copy, after the upload.
    gpu.device.delay_operation(Which::Copy, 2, DELAY);
    assert_eq!(run(&exec, &g.compile_with(&Single).unwrap()), 2.0);
    let spans = timeline.nodes();
    let [up, library, after] = ["up", "library", "after"].map(|name| on_device(&spans, name));
    assert!(library.end - library.start >= DELAY, "{library:?}");
    assert!(up.end <= library.start && library.end <= after.start);
    drop(exec);
    gpu.is_clean();
}

// Seen to fail with three tries: the span began 3 ms before its submission, and was cut to that.
#[test]
fn a_clock_whose_first_tries_are_late_is_tried_again() {
    let gpu = Gpu::new();
    (1..=3).for_each(|nth| gpu.device.delay_operation(Which::TimedEvent, nth, 2 * DELAY));
    let (exec, timeline) = timed(&gpu);
    gpu.device.delay_operation(Which::Kernel, 1, DELAY);
    assert_eq!(run(&exec, &slow_then_fast().compile_with(&Single).unwrap()), 4.0);
    let slow = on_device(&timeline.nodes(), "slow");
    assert!(slow.end - slow.start >= DELAY, "{slow:?}");
    drop(exec);
    gpu.is_clean();
}

// Seen to fail with spans that are told only at the end of the run.
#[test]
fn every_iteration_of_a_loop_has_times() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let (mut g, _, up) = uploaded("up");
    let last = g.repeat("loop", &up, times(100), |g, x| {
        let sum = g.try_kernel("sum", (&x, &x), adding());
        let down = g.try_kernel("down", &sum, download);
        let half = g.task("half", &down, |x: &HostBuffer<f32>| vec![x[0] / 2.0]);
        g.try_kernel("up", &half, upload)
    });
    output_by_host(&mut g, &last, |x| x[0]);
    assert_eq!(run(&exec, &g.compile().unwrap()), 1.0);
    let spans = timeline.nodes();
    let mut sums = spans.iter().filter(|span| &*span.work.name == "loop/body/sum").map(|span| span.on_device().unwrap());
    let mut last = sums.next().unwrap();
    for next in sums.by_ref() {
        assert!(last.end <= next.start);
        last = next;
    }
    assert_eq!(spans.iter().filter(|span| span.on_device().is_some()).count(), 2 + 3 * 100);
    assert!(gpu.device.counters().events < 50, "{:?}", gpu.device.counters());
    drop(exec);
    gpu.is_clean();
}

/// Uploads `x` and adds it to itself in `early`, whose end only the device waits for: for `late`, after a
/// gate on the host.
fn unawaited(g: &mut Graph, x: &Value<Vec<f32>>) -> Value<HostBuffer<f32>> {
    let up = g.try_kernel("up", x, upload);
    let early = g.try_kernel("early", (&up, &up), adding());
    let gate = g.task("gate", x, |_: &Vec<f32>| ());
    let late = g.try_kernel("late", (&early, &early), adding());
    g.order(&gate, &late);
    g.try_kernel("down", &late, download)
}

#[test]
fn a_node_that_the_host_does_not_wait_for_has_times() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    block_on(exec.run(&unawaited_plan(), inputs! { "x" => vec![1.0_f32] })).unwrap();
    let spans = timeline.nodes();
    let [early, late] = ["early", "late"].map(|name| on_device(&spans, name));
    assert!(early.end <= late.start);
    drop(exec);
    gpu.is_clean();
}

/// The plan of a graph of these nodes alone.
pub(super) fn unawaited_plan() -> Plan {
    let mut g = Graph::new();
    let x = g.input::<Vec<f32>>("x");
    let down = unawaited(&mut g, &x);
    g.output("down", &down);
    g.compile_with(&PerOperator).unwrap()
}

// Seen to fail with times that are read only for the segment that has ended.
#[test]
fn a_loop_keeps_no_events_of_iterations_that_are_over() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let mut g = Graph::new();
    let x = g.input::<Vec<f32>>("x");
    let last = g.repeat("loop", &x, times(100), |g, x| {
        let down = unawaited(g, &x);
        g.task("quarter", &down, |x: &HostBuffer<f32>| vec![x[0] / 4.0])
    });
    g.output("last", &last);
    block_on(exec.run(&g.compile_with(&PerOperator).unwrap(), inputs! { "x" => vec![1.0_f32] })).unwrap();
    assert_eq!(timeline.nodes().iter().filter(|span| span.on_device().is_some()).count(), 4 * 100);
    assert!(gpu.device.counters().events < 50, "{:?}", gpu.device.counters());
    drop(exec);
    gpu.is_clean();
}

// Seen to fail with a node that counts as timed although it has no work.
#[test]
fn a_body_that_enqueues_nothing_has_no_times() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let (mut g, _, up) = uploaded("up");
    let nothing = g.try_kernel("nothing", &up, |_: &mut DeviceStream, x: &Buffer<f32>| Ok(x.len()));
    g.output("len", &nothing);
    gpu.device.stall_operation(Which::Copy, 1);
    let mut run = exec.run(&g.compile().unwrap(), inputs! { "x" => vec![1.0_f32] });
    assert!(poll_once(&mut run).is_pending());
    until(|| timeline.nodes().len() == 1);
    span(&timeline.nodes(), "nothing");
    gpu.device.release_stall();
    block_on(run).unwrap();
    let spans = timeline.nodes();
    on_device(&spans, "up");
    let nothing = span(&spans, "nothing");
    assert!(nothing.is_ok() && nothing.on_device().is_none());
    drop(exec);
    gpu.is_clean();
}

#[test]
fn each_item_of_a_pipeline_has_times() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let doubled = Pipeline::new("doubled", &PerOperator, |g, x: Value<Vec<f32>>| unawaited(g, &x));
    let items = stream::iter((0..20_u8).map(|item| vec![f32::from(item)]));
    assert_eq!(block_on(exec.pipe(&doubled.unwrap(), items).count()), 20);
    let mut items: BTreeMap<u64, Vec<DeviceSpan>> = BTreeMap::new();
    for span in timeline.nodes() {
        items.entry(span.work.item).or_default().extend(span.on_device());
    }
    assert!(items.len() == 20 && items.values().all(|nodes| nodes.len() == 4), "{items:?}");
    drop(exec);
    gpu.is_clean();
}

#[test]
fn operations_have_times() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let engine = engine(&exec, Placement::default());
    let x: OnDevice = engine.empty_var("x");
    gpu.device.delay_operation(Which::Copy, 1, DELAY);
    let upload = pushed(&engine, upload_op("upload", &x, 2.0));
    block_on(upload).unwrap();
    block_on(engine.idle()).unwrap();
    let ran = on_device(&timeline.operations(), "upload");
    assert!(ran.end - ran.start >= DELAY, "{ran:?}");
    drop((x, engine, exec));
    gpu.is_clean();
}

#[test]
fn pictures_and_traces_show_the_streams_of_the_device() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let plan = slow_then_fast().compile_with(&Single).unwrap();
    gpu.device.delay_operation(Which::Kernel, 1, DELAY);
    run(&exec, &plan);
    let picture = timeline.to_svg();
    assert!(picture.contains("GPU 0 · stream ") && picture.contains("worker 0"), "{picture}");
    #[cfg(feature = "json")]
    {
        let trace: serde_json::Value = serde_json::from_str(&timeline.to_perfetto()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let slow: Vec<_> = events.iter().filter(|event| event["name"] == "slow").map(|event| event["pid"].clone()).collect();
        assert_eq!(slow, [2, 1], "on the GPU, and on the host");
        assert!(events.iter().any(|event| event["pid"] == 2 && event["args"]["name"] == "GPU 0"));
    }
    let costs = timeline.costs_us(&plan);
    let slow = plan.schedule().shape().nodes().iter().position(|node| &*node.name == "slow").unwrap();
    assert!(costs[slow].unwrap() >= 1e6 * DELAY.as_secs_f64(), "{costs:?}");
    drop(exec);
    gpu.is_clean();
}

// Seen to fail with spans that are forgotten when their run fails.
#[test]
fn work_that_a_lost_device_never_did_has_no_times() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    gpu.device.fail_operation(Which::Kernel, 1, Code::ILLEGAL_ADDRESS);
    let plan = slow_then_fast().compile_with(&Single).unwrap();
    let error = block_on(exec.run(&plan, inputs! { "x" => vec![1.0_f32] })).unwrap_err();
    assert!(error.is_device_lost(), "{error:#}");
    let spans = timeline.nodes();
    for name in ["slow", "fast", "down"] {
        let span = span(&spans, name);
        assert_eq!((span.ended, span.on_device()), (Ended::Failed, None), "{name}");
    }
    drop((exec, error));
    until(|| gpu.device.counters().retains == 0);
    assert_eq!(gpu.device.counters().events, 0);
}

#[test]
fn a_dropped_run_tells_of_all_that_began() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    gpu.device.stall_operation(Which::Kernel, 1);
    let plan = slow_then_fast().compile_with(&Single).unwrap();
    let mut run = exec.run(&plan, inputs! { "x" => vec![1.0_f32] });
    assert!(poll_once(&mut run).is_pending());
    until(|| gpu.device.calls_of("cuLaunchKernel") == 2);
    drop(run);
    gpu.device.release_stall();
    until(|| timeline.nodes().len() == 4);
    assert!(timeline.nodes().iter().all(|span| span.on_device().is_some()));
    drop(exec);
    gpu.is_clean();
}

/// Lets all calls of a test fail that ask for times.
fn tell_no_times(gpu: &Gpu) {
    (1..=200).for_each(|call| gpu.device.fail_call("cuEventElapsedTime", call, Code::INVALID_VALUE));
}

#[test]
fn a_driver_that_tells_no_times_does_not_fail_the_work() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let plan = slow_then_fast().compile_with(&Single).unwrap();
    tell_no_times(&gpu);
    assert_eq!(run(&exec, &plan), 4.0);
    let spans = timeline.nodes();
    assert!(spans.len() == 5 && spans.iter().all(|span| span.is_ok() && span.on_device().is_none()));
    drop(exec);
    gpu.is_clean();
}

// Seen to fail without the look at the end of a run, and without that at the end of an item.
#[test]
fn a_node_that_the_host_does_not_wait_for_is_told_at_the_latest_at_the_end() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    tell_no_times(&gpu);
    block_on(exec.run(&unawaited_plan(), inputs! { "x" => vec![1.0_f32] })).unwrap();
    ["up", "early", "gate", "late", "down"].iter().for_each(|name| drop(span(&timeline.nodes(), name)));

    let pipeline = Pipeline::new("unawaited", &PerOperator, |g, x: Value<Vec<f32>>| unawaited(g, &x)).unwrap();
    assert_eq!(block_on(exec.pipe(&pipeline, stream::iter([vec![1.0_f32]])).count()), 1);
    let spans = timeline.spans();
    let item = spans.iter().position(|span| span.work.kind_name() == "item").unwrap();
    let nodes = spans[..item].iter().filter(|span| span.work.node_id().is_some());
    assert_eq!(nodes.count(), 2 * 5, "before the end of the item");
    drop(exec);
    gpu.is_clean();
}
