//! Device times: when and where observers are told, and what that costs the driver.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use anabranch::exec::{Observer, Origin, Work, WorkKind, WorkSpan};
use anabranch::policy::{PerOperator, Placement, Single};
use anabranch::{Buffer, DeviceStream, Executor, HostBuffer, inputs};
use anabranch_soft_cuda::{Seen, Which};

use super::times::{on_device, run, slow_then_fast, span, timed, unawaited_plan};
use super::vars::{OnDevice, engine, pushed, upload as upload_op};
use super::{Gpu, adding, download, output_by_host, uploaded, wait_for_worker};
use crate::support::{block_on, poll_once, until};

fn executor(gpu: &Gpu, observer: impl Observer) -> Executor {
    let exec = Executor::builder().workers(1).cuda(&[gpu.device.ordinal() as u32]).device_times(true);
    exec.observer(Arc::new(observer)).build().unwrap()
}

/// The numbers of the operations that have begun.
#[derive(Default, Clone)]
struct Numbers(Arc<Mutex<Vec<u32>>>);

impl Observer for Numbers {
    fn begins(&self, work: &Work, _: Option<&Origin>) {
        if let WorkKind::Operation { number } = work.kind {
            self.0.lock().unwrap().push(number);
        }
    }

    fn ended(&self, _: &WorkSpan) {}
}

// Seen to fail with the number of operations without a slot.
#[test]
fn kernels_in_flight_have_numbers_of_their_own() {
    let (gpu, numbers) = (Gpu::new(), Numbers::default());
    let exec = executor(&gpu, numbers.clone());
    let engine = engine(&exec, Placement::default());
    let [x, y]: [OnDevice; 2] = ["x", "y"].map(|name| engine.empty_var(name));
    gpu.device.stall_operation(Which::Copy, 1);
    drop((pushed(&engine, upload_op("a", &x, 1.0)), pushed(&engine, upload_op("b", &y, 1.0))));
    until(|| numbers.0.lock().unwrap().len() == 2);
    let begun: HashSet<u32> = numbers.0.lock().unwrap().iter().copied().collect();
    assert_eq!(begun.len(), 2, "{begun:?}");
    gpu.device.release_stall();
    block_on(engine.idle()).unwrap();
    drop((x, y, engine, exec));
    gpu.is_clean();
}

// Seen to fail with segments that are told although nothing of the run waits for them.
#[test]
fn a_thread_that_awaits_a_node_is_not_the_one_that_observers_are_told_on() {
    let gpu = Gpu::new();
    let told: Arc<Mutex<HashSet<ThreadId>>> = Arc::default();
    let exec = executor(&gpu, {
        let told = told.clone();
        move |_: &WorkSpan| _ = told.lock().unwrap().insert(std::thread::current().id())
    });
    let plan = unawaited_plan();
    gpu.device.stall_operation(Which::Kernel, 2);
    let mut run = exec.run(&plan, inputs! { "x" => vec![1.0_f32] });
    assert!(poll_once(&mut run).is_pending());
    // `early` has ended, and `late` is stopped.
    until(|| gpu.device.counters().stalled == 1);
    block_on(run.node("early")).unwrap();
    assert!(!told.lock().unwrap().contains(&std::thread::current().id()));
    gpu.device.release_stall();
    block_on(run).unwrap();
    drop(exec);
    gpu.is_clean();
}

// Seen to fail with the end of a library's node at the submission.
#[test]
fn the_node_of_a_library_ends_before_the_next_body() {
    let gpu = Arc::new(Gpu::new());
    let (exec, timeline) = timed(&gpu);
    let (mut g, _, up) = uploaded("up");
    let library = g.try_kernel("library", &up, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut y = s.alloc::<f32>(x.len())?;
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        raw.stream().memcpy_dtod(&raw.view(x)?, &mut raw.view_mut(&mut y)?)?;
        Ok(y)
    });
    let (records, of) = (Arc::new(AtomicUsize::new(0)), gpu.clone());
    let seen = records.clone();
    let after = g.try_kernel("after", (&library, &library), {
        let add = adding();
        move |s: &mut DeviceStream, x: &Buffer<f32>, y: &Buffer<f32>| {
            seen.store(of.device.calls_of("cuEventRecord") as usize, Ordering::SeqCst);
            add(s, x, y)
        }
    });
    output_by_host(&mut g, &after, |x| x[0]);
    let plan = g.compile_with(&Single).unwrap();
    let recorded = |exec: &Executor| {
        let before = gpu.device.calls_of("cuEventRecord") as usize;
        assert_eq!(run(exec, &plan), 2.0);
        records.load(Ordering::SeqCst) - before
    };
    // Both ends of both nodes, beside the events that cudarc records for its views.
    assert_eq!(recorded(&exec), recorded(&gpu.executor_of_calls(1)) + 4);
    on_device(&timeline.nodes(), "library");
    drop((exec, plan, g));
    gpu.is_clean();
}

// Seen to hang with a reactor that is outside of its executor.
#[test]
fn an_observer_that_waits_for_its_executor_gets_an_error() {
    let gpu = Gpu::new();
    let (own, refused): (Arc<OnceLock<Executor>>, Arc<Mutex<Vec<bool>>>) = Default::default();
    let plan = slow_then_fast().compile_with(&Single).unwrap();
    let exec = executor(&gpu, {
        let (own, plan, refused) = (own.clone(), plan.clone(), refused.clone());
        move |span: &WorkSpan| {
            if &*span.work.name == "down"
                && let Some(own) = own.get()
            {
                let waited = block_on(own.run(&plan, inputs! { "x" => vec![1.0_f32] }));
                refused.lock().unwrap().push(waited.is_err_and(|error| error.to_string().contains("an observer waits")));
            }
        }
    });
    let exec = own.get_or_init(|| exec);
    gpu.device.stall_operation(Which::Copy, 2);
    let mut run = exec.run(&plan, inputs! { "x" => vec![1.0_f32] });
    assert!(poll_once(&mut run).is_pending());
    until(|| gpu.device.counters().stalled == 1);
    // So the reactor finds the end.
    wait_for_worker(exec);
    gpu.device.release_stall();
    block_on(run).unwrap();
    assert_eq!(*refused.lock().unwrap(), [true]);
}

// Seen to fail (4,889 calls) with a query for each node that has not ended.
#[test]
fn the_driver_is_asked_a_few_times_for_each_node() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let (mut g, x, up) = uploaded("up");
    let (mut last, mut sums) = (up, Vec::new());
    for node in 0..50 {
        let gate = g.task(format!("gate {node}"), &x, |_: &Vec<f32>| ());
        last = g.try_kernel(format!("kernel {node}"), (&last, &last), adding());
        g.order(&gate, &last);
        let down = g.try_kernel(format!("down {node}"), &last, download);
        sums.push(g.task(format!("first {node}"), &down, |x: &HostBuffer<f32>| x[0]));
    }
    sums.iter().enumerate().for_each(|(node, sum)| g.output(format!("out {node}"), sum));
    gpu.device.stall_operation(Which::Kernel, 1);
    let mut run = exec.run(&g.compile_with(&PerOperator).unwrap(), inputs! { "x" => vec![0.0_f32] });
    assert!(poll_once(&mut run).is_pending());
    until(|| gpu.device.calls_of("cuLaunchKernel") == 50);
    gpu.device.release_stall();
    block_on(run).unwrap();
    let nodes = timeline.nodes().iter().filter(|span| span.on_device().is_some()).count() as u64;
    assert_eq!(nodes, 101);
    let calls = gpu.device.calls_of("cuEventElapsedTime");
    assert!(calls < 20 * nodes, "{calls}");
    drop(exec);
    gpu.is_clean();
}

// Seen to fail (6,016 events) with times that are read only at the ends that the host waits for.
#[test]
fn a_long_chain_has_no_more_events_than_nodes_in_flight() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let (mut g, _, up) = uploaded("up");
    let last = (0..3_000).fold(up, |last, node| g.try_kernel(node.to_string(), (&last, &last), adding()));
    output_by_host(&mut g, &last, |x| x[0]);
    gpu.device.stall_operation(Which::Kernel, 1);
    let mut run = exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => vec![0.0_f32] });
    assert!(poll_once(&mut run).is_pending());
    until(|| gpu.device.calls_of("cuLaunchKernel") > 256);
    // It has ended its work, because the lane has no room.
    wait_for_worker(&exec);
    assert!(gpu.device.calls_of("cuLaunchKernel") <= 600, "{}", gpu.device.calls_of("cuLaunchKernel"));
    gpu.device.release_stall();
    block_on(run).unwrap();
    assert_eq!(timeline.nodes().iter().filter(|span| span.on_device().is_some()).count(), 3_002);
    assert!(gpu.device.counters().events < 2_500, "{:?}", gpu.device.counters());
    drop(exec);
    gpu.is_clean();
}

// Seen to fail with a time that is noted only when observers are told.
#[test]
fn a_kernel_is_ready_when_those_before_it_are_submitted() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    run(&exec, &slow_then_fast().compile_with(&Single).unwrap());
    let spans = timeline.nodes();
    assert!(span(&spans, "fast").ready >= span(&spans, "slow").end);
    drop(exec);
    gpu.is_clean();
}

// Seen to fail with anchors that are awaited: thousands of queries.
#[test]
fn an_anchor_that_the_device_does_not_come_to_is_not_waited_for() {
    let gpu = Gpu::new();
    let (exec, timeline) = timed(&gpu);
    let plan = slow_then_fast().compile_with(&Single).unwrap();
    let passes = |time: Duration| {
        let begin = Instant::now();
        until(|| begin.elapsed() > time);
    };
    passes(Duration::from_millis(1_050));
    let anchors = || gpu.device.calls_of("cuEventDestroy_v2");
    let before = anchors();
    // The first run records an anchor, the second takes it.
    (0..2).for_each(|_| assert_eq!(run(&exec, &plan), 4.0));
    assert_eq!(anchors(), before + 1, "the old one is gone");

    passes(Duration::from_millis(1_050));
    gpu.device.event_queries(Seen::Never);
    let queries = gpu.device.calls_of("cuEventQuery");
    (0..10).for_each(|_| assert_eq!(run(&exec, &plan), 4.0));
    assert!(gpu.device.calls_of("cuEventQuery") - queries <= 10);
    assert!(
        timeline
            .nodes()
            .iter()
            .filter(|span| span.launched != anabranch::exec::Launched::Host)
            .all(|span| span.on_device().is_some())
    );
    drop(exec);
    gpu.is_clean();
}
