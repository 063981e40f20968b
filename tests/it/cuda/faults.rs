//! Failures of the driver and of the device: the run ends with an error, does not hang, and the next run is
//! right.

use std::time::{Duration, Instant};

use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Plan, Run, inputs};
use anabranch_soft_cuda::{Code, Which};
use futures::future::join;

use super::{Gpu, adding, download, filling, output_by_host, uploaded};
use crate::support::{block_on, plan, value_of};

/// Thirty nodes on several streams: two chains double `x` repeatedly, and their results are added.
fn thirty() -> Plan {
    let (mut g, _, up) = uploaded("up");
    let ways = ["left", "right"]
        .map(|way| (0..13).fold(up, |last, turn| g.try_kernel(format!("{way} {turn}"), (&last, &last), adding())));
    let sum = g.try_kernel("sum", (&ways[0], &ways[1]), adding());
    output_by_host(&mut g, &sum, |x| x[0]);
    plan(&g)
}

const RIGHT: f32 = (2 << 13) as f32;

fn run(exec: &Executor, plan: &Plan) -> Run {
    exec.run(plan, inputs! { "x" => vec![1.0_f32; 100] })
}

#[test]
fn a_fatal_error_at_any_operation_ends_every_run_on_the_device_and_blames_nobody() {
    lose_at_every_operation(0);
}

#[test]
fn a_fatal_error_at_any_operation_of_graphs_ends_every_run_on_the_device_and_blames_nobody() {
    lose_at_every_operation(2);
}

/// Runs two runs side by side on a device that is lost at each operation in turn, after `warm` successful
/// runs.
fn lose_at_every_operation(warm: usize) {
    let plan = thirty();
    let mut slowest = Duration::ZERO;
    for operation in 1..=80 {
        let gpu = Gpu::new();
        let exec = gpu.executor(2);
        (0..warm).for_each(|_| assert_eq!(*value_of::<f32>(block_on(run(&exec, &plan)), "out"), RIGHT));
        assert_eq!(gpu.device.calls_of("cuGraphLaunch") > 0, warm > 1);
        gpu.device.fail_operation(Which::Any, operation, Code::ILLEGAL_ADDRESS);
        let started = Instant::now();
        let (one, other) = block_on(join(run(&exec, &plan), run(&exec, &plan)));
        slowest = slowest.max(started.elapsed());
        for outputs in [one, other] {
            match outputs {
                Ok(mut outputs) => assert_eq!(*outputs.take::<f32>("out").unwrap(), RIGHT),
                Err(error) => {
                    assert!(error.is_device_lost(), "operation {operation}: {error:?}");
                    assert_eq!(error.node(), None, "operation {operation}: {error:?}");
                }
            }
        }
        // The operation may be a free behind all that the runs wait for. Then a run on another stream can end
        // before the device reaches it.
        let is_lost = || block_on(run(&exec, &plan)).is_err_and(|error| error.is_device_lost());
        if operation <= 60 {
            crate::support::until(is_lost);
        }
        drop(exec);
    }
    println!("the slowest pair of runs ended after {slowest:?}");
}

// Seen to fail with memory that goes back to its pool.
#[test]
fn memory_that_a_lost_device_may_still_touch_is_never_used_again() {
    let (gpu, plan) = (Gpu::new(), thirty());
    let exec = gpu.executor(1);
    gpu.device.fail_operation(Which::Kernel, 20, Code::ILLEGAL_ADDRESS);
    assert_eq!(exec.in_quarantine(), 0);
    assert!(block_on(run(&exec, &plan)).unwrap_err().is_device_lost());
    crate::support::until(|| exec.in_quarantine() > 0);
    assert_eq!(gpu.device.calls_of("cuMemFreeAsync"), 0);
}

// Seen to fail with a watchdog that takes every fault for a fatal one.
#[test]
fn a_fault_that_is_not_fatal_fails_its_run_and_the_device_goes_on() {
    let (gpu, plan) = (Gpu::new(), thirty());
    let exec = gpu.executor(1);
    gpu.device.fail_operation(Which::Kernel, 3, Code::INVALID_VALUE);
    gpu.device.stall_operation(Which::Kernel, 5);
    let error = block_on(run(&exec, &plan)).unwrap_err();
    assert!(!error.is_device_lost(), "{error:?}");
    assert_eq!(error.node(), None, "{error:?}");
    assert!(error.to_string().contains("CUDA_ERROR_INVALID_VALUE"), "{error}");
    gpu.device.clear_faults();
    (0..3).for_each(|_| assert_eq!(*value_of::<f32>(block_on(run(&exec, &plan)), "out"), RIGHT));
    drop(exec);
    gpu.is_clean();
}

/// A chain of fills, more than a lane accepts at once. The first is stalled.
fn long() -> Plan {
    let (mut g, _, up) = uploaded("up");
    let last = (0..1500).fold(up, |last, node| g.try_kernel(node.to_string(), anabranch::take(&last), filling(node as f32)));
    output_by_host(&mut g, &last, |x| x[0]);
    plan(&g)
}

// Seen to fail (never to end) with a backlog that does not check whether the device is lost.
#[test]
fn a_run_that_waits_for_room_ends_when_its_device_is_lost() {
    let (gpu, plan) = (Gpu::new(), long());
    let exec = gpu.executor(1);
    gpu.device.stall_operation(Which::Any, 2);
    gpu.device.fail_operation(Which::Any, 3, Code::ILLEGAL_ADDRESS);
    let mut run = run(&exec, &plan);
    assert!(crate::support::poll_once(&mut run).is_pending());
    crate::support::until(|| gpu.device.counters().issued > 500);
    gpu.device.release_stall();
    assert!(block_on(run).unwrap_err().is_device_lost());
}

// Seen to fail (never to end) with a resumption that takes a fault for room.
#[test]
fn a_run_that_waits_for_room_ends_when_its_lane_has_a_fault() {
    let (gpu, plan) = (Gpu::new(), long());
    let exec = gpu.executor(1);
    gpu.device.fail_operation(Which::Any, 2, Code::INVALID_VALUE);
    gpu.device.stall_operation(Which::Any, 3);
    let mut failing = run(&exec, &plan);
    assert!(crate::support::poll_once(&mut failing).is_pending());
    // Two segments are submitted. The third is submitted without its nodes, after the fault is known.
    crate::support::until(|| gpu.device.calls_of("cuStreamWriteValue64_v2") > 2);
    gpu.device.clear_faults();
    let error = block_on(failing).unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_INVALID_VALUE"), "{error:?}");
    assert_eq!(*value_of::<f32>(block_on(run(&exec, &plan)), "out"), 1499.0);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_segment_whose_end_is_refused_fails_with_all_that_needs_it() {
    for call in ["cuEventRecord", "cuStreamWriteValue64_v2"] {
        let gpu = Gpu::new();
        let exec = gpu.executor_of_calls(1);
        let (mut g, x, up) = uploaded("up");
        let first = g.try_kernel("first", (&up, &up), adding());
        let gate = g.task("gate", &x, |x: &Vec<f32>| x.len());
        let second =
            g.try_kernel("second", (&first, &gate), |s: &mut DeviceStream, x: &Buffer<f32>, _: &usize| adding()(s, x, x));
        let down = g.try_kernel("down", &second, download);
        g.output("down", &down);
        let plan = plan(&g);
        gpu.device.fail_call(call, 1, Code::INVALID_VALUE);
        let error = block_on(run(&exec, &plan)).unwrap_err();
        assert!(!error.is_device_lost(), "{call}: {error:?}");
        assert!(gpu.device.calls_of("cuLaunchKernel") <= 1, "{call}: {error:?}");
        gpu.device.clear_faults();
        assert_eq!(value_of::<HostBuffer<f32>>(block_on(run(&exec, &plan)), "down")[0], 4.0);
        drop((exec, error));
        gpu.is_clean();
    }
}

#[test]
fn out_of_memory_at_any_allocation_fails_its_run_and_nothing_else() {
    let (gpu, plan) = (Gpu::new(), thirty());
    let exec = gpu.executor(1);
    assert_eq!(*value_of::<f32>(block_on(run(&exec, &plan)), "out"), RIGHT);
    let allocations = gpu.device.calls_of("cuMemAllocAsync");
    assert!(allocations > 4, "{allocations}");
    let mut failed = 0;
    for allocation in 1..=allocations + 2 {
        gpu.device.fail_allocation(allocation);
        match block_on(run(&exec, &plan)) {
            Ok(mut outputs) => assert_eq!(*outputs.take::<f32>("out").unwrap(), RIGHT),
            Err(error) => {
                assert!(error.is_out_of_memory(), "allocation {allocation}: {error:?}");
                failed += 1;
            }
        }
        gpu.device.clear_faults();
        assert_eq!(*value_of::<f32>(block_on(run(&exec, &plan)), "out"), RIGHT, "after allocation {allocation}");
    }
    assert_eq!(failed, allocations);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn out_of_memory_says_how_much_was_asked_for() {
    let gpu = Gpu::new();
    gpu.device.memory_limit(1000);
    let mut g = Graph::new();
    let big = g.try_kernel("big", (), |s: &mut DeviceStream| Ok(s.alloc::<f32>(251)?));
    let small = g.try_kernel("small", (), |s: &mut DeviceStream| Ok(s.alloc::<f32>(250)?));
    let len = g.task("len", (&big, &small), |big: &Buffer<f32>, small: &Buffer<f32>| big.len() + small.len());
    g.output("len", &len);
    let error = block_on(gpu.executor(1).run(&plan(&g), anabranch::Inputs::new())).unwrap_err();
    assert_eq!(error.node(), Some("big"));
    let said = format!("CUDA device {} has no 1004 bytes of memory left", gpu.device.ordinal());
    assert!(format!("{error:#}").contains(&said), "{error:#}");
    gpu.is_clean();
}

#[test]
fn a_call_that_the_driver_refuses_fails_its_run_only() {
    // Seen to fail if a refused launch counts as done.
    let plan = thirty();
    let calls = [
        "cuLaunchKernel",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuStreamWriteValue64_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemFreeAsync",
        "cuGraphCreate",
        "cuGraphAddKernelNode_v2",
        "cuGraphInstantiateWithFlags",
        "cuGraphExecMemcpyNodeSetParams",
        "cuGraphLaunch",
    ];
    for call in calls {
        let mut fired = 0;
        // A plan that has run twice is launched as a graph, and makes other calls.
        for (nth, runs_before) in [1, 2, 5].into_iter().flat_map(|nth| [0, 1, 2].map(|runs| (nth, runs))) {
            let (gpu, when) = (Gpu::new(), format!("{call} {nth} after {runs_before} runs"));
            let exec = gpu.executor(1);
            let is_right = || assert_eq!(*value_of::<f32>(block_on(run(&exec, &plan)), "out"), RIGHT, "{when}");
            (0..runs_before).for_each(|_| is_right());
            let called = gpu.device.calls_of(call);
            gpu.device.fail_call(call, nth, Code::INVALID_VALUE);
            match block_on(run(&exec, &plan)) {
                Ok(mut outputs) => assert_eq!(*outputs.take::<f32>("out").unwrap(), RIGHT, "{when}"),
                Err(error) => assert!(!error.is_device_lost() && !error.is_cancelled(), "{when}: {error:?}"),
            }
            fired += u32::from(gpu.device.calls_of(call) - called >= nth);
            gpu.device.clear_faults();
            is_right();
            drop(exec);
            // If the driver refuses to free memory, the memory leaks. Memory is freed after a run's end, so
            // the test cannot know whether the driver has refused.
            if call != "cuMemFreeAsync" {
                gpu.is_clean();
            }
        }
        assert!(fired > 0, "{call} was never refused");
    }
}

#[test]
fn dropping_a_run_does_not_wait_for_a_device_that_stands_still() {
    let (gpu, plan) = (Gpu::new(), thirty());
    let exec = gpu.executor(1);
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        gpu.device.stall_operation(Which::Kernel, 3);
        let mut run = run(&exec, &plan);
        assert!(crate::support::poll_once(&mut run).is_pending());
        crate::support::until(|| gpu.device.counters().issued > gpu.device.counters().executed + 5);
        let started = Instant::now();
        drop(run);
        quickest = quickest.min(started.elapsed());
        assert_eq!(exec.in_limbo(), 1, "its memory is kept");
        // Also if the stream has not reached the operation yet.
        gpu.device.clear_faults();
        crate::support::until(|| exec.in_limbo() == 0);
    }
    assert!(quickest < Duration::from_millis(1), "{quickest:?}");
    assert_eq!(*value_of::<f32>(block_on(run(&exec, &plan)), "out"), RIGHT);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_cancelled_run_ends_when_what_was_submitted_is_over() {
    cancel_at_every_kernel(|gpu| gpu.executor(2));
    cancel_at_every_kernel(|gpu| gpu.executor_of_calls(2));
}

fn cancel_at_every_kernel(executor: fn(&Gpu) -> Executor) {
    let (gpu, plan) = (Gpu::new(), thirty());
    let exec = executor(&gpu);
    for kernel in 1..20 {
        let launches = || gpu.device.calls_of("cuLaunchKernel") + 27 * gpu.device.calls_of("cuGraphLaunch");
        let before = launches();
        gpu.device.stall_operation(Which::Kernel, kernel);
        let mut run = run(&exec, &plan);
        assert!(crate::support::poll_once(&mut run).is_pending());
        crate::support::until(|| launches() >= before + kernel);
        run.cancel();
        (0..100).for_each(|_| assert!(crate::support::poll_once(&mut run).is_pending(), "a kernel of it stands still"));
        gpu.device.clear_faults();
        assert!(block_on(run).unwrap_err().is_cancelled());
        assert_eq!(*value_of::<f32>(block_on(self::run(&exec, &plan)), "out"), RIGHT);
    }
    drop(exec);
    gpu.is_clean();
}

#[test]
fn there_is_no_such_device() {
    let gpu = Gpu::new();
    let none = Executor::cuda(1000).unwrap_err();
    assert_eq!(none.to_string(), "there is no CUDA device 1000: this machine has 64");
    let settings = Executor::builder().workers(0).cuda(&[gpu.device.ordinal() as u32]).build().unwrap_err();
    assert_eq!(settings.to_string(), "the number of workers of an executor with CUDA devices must be 1 or more, not 0");
    gpu.is_clean();
}

#[test]
fn runs_end_when_their_executor_is_dropped_and_the_device_has_let_go() {
    let (gpu, plan) = (Gpu::new(), thirty());
    let exec = gpu.executor(1);
    gpu.device.stall_operation(Which::Kernel, 1);
    let mut runs = [run(&exec, &plan), run(&exec, &plan)];
    runs.iter_mut().for_each(|run| assert!(crate::support::poll_once(run).is_pending()));
    crate::support::until(|| gpu.device.counters().stalled == 1);
    drop(exec);
    gpu.device.release_stall();
    let [first, second] = runs.map(block_on);
    assert!(first.unwrap_err().is_shut_down());
    // None of its kernels is stalled, so it may have ended before.
    match second {
        Ok(mut outputs) => assert_eq!(*outputs.take::<f32>("out").unwrap(), RIGHT),
        Err(error) => assert!(error.is_shut_down(), "{error:?}"),
    }
    gpu.is_clean();
}

#[test]
fn a_panic_in_a_kernel_is_an_error_of_its_run() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let mut g = Graph::new();
    let up = g.try_kernel("up", (), |s: &mut DeviceStream| Ok(s.upload(&[1.0_f32])?));
    let bad = g.kernel("bad", &up, |_: &mut DeviceStream, _: &Buffer<f32>| -> u32 { crate::support::panic_quietly("no") });
    let after = g.task("after", &bad, |x: &u32| *x);
    g.output("after", &after);
    let error = block_on(exec.run(&plan(&g), anabranch::Inputs::new())).unwrap_err();
    assert!(error.is_panic());
    let said = format!("node 'bad' panicked on stream 0 of CUDA device {}: no", gpu.device.ordinal());
    assert_eq!(error.to_string(), said);
    assert_eq!(*value_of::<f32>(block_on(run(&exec, &thirty())), "out"), RIGHT, "the next run is fine");
    drop(exec);
    gpu.is_clean();
}

// Seen to fail with the driver's code alone.
#[test]
fn page_locked_memory_that_is_refused_says_how_much_was_asked_for() {
    for (nth, node, bytes) in [(2, "up", 8000), (3, "down", 8000)] {
        let gpu = Gpu::new();
        let exec = gpu.executor(1);
        let (mut g, _, up) = uploaded("up");
        output_by_host(&mut g, &up, |x| x.len());
        let plan = plan(&g);
        gpu.device.fail_allocation(nth);
        let go = || block_on(exec.run(&plan, inputs! { "x" => vec![1.0_f32; 2000] }));
        let error = go().unwrap_err();
        assert!(error.is_out_of_memory() && error.node() == Some(node), "{error:?}");
        let said = format!("the host has no {bytes} bytes of page-locked memory left for CUDA device {}: ", gpu.device.ordinal());
        assert!(format!("{error:#}").contains(&said), "{error:#}");
        assert_eq!(*value_of::<usize>(go(), "out"), 2000, "a retry works");
        drop((exec, error));
        gpu.is_clean();
    }
    let gpu = Gpu::new();
    gpu.device.fail_allocation(1);
    let error = Executor::builder().workers(1).cuda(&[gpu.device.ordinal() as u32]).build().unwrap_err();
    assert!(error.is_out_of_memory() && error.to_string().contains("128 bytes of page-locked memory"), "{error:?}");
    gpu.is_clean();
}
