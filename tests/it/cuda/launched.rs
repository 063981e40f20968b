//! The form of a launch: CUDA graphs for repeated work, and calls for all other work.

use std::sync::Arc;

use anabranch::device::{In, Out};
use anabranch::device::{Kernel, Launch};
use anabranch::exec::Launched;
use anabranch::policy::{PerOperator, Single};
use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Plan, Timeline, inputs};
use anabranch_soft_cuda::Which;

use super::{Gpu, adding, download, output_by_host, uploaded};
use crate::support::{block_on, poll_once, until, value_of};

/// Doubles `x` four times.
fn doubled() -> Plan {
    let (mut g, _, up) = uploaded("up");
    let last = (0..4).fold(up, |last, turn| g.try_kernel(turn.to_string(), (&last, &last), adding()));
    output_by_host(&mut g, &last, |x| x.to_vec());
    g.compile_with(&Single).unwrap()
}

fn run(exec: &Executor, plan: &Plan, x: &[f32]) -> Vec<f32> {
    value_of::<Vec<f32>>(block_on(exec.run(plan, inputs! { "x" => x.to_vec() })), "out").to_vec()
}

fn observed(gpu: &Gpu) -> (Executor, Arc<Timeline>) {
    let timeline = Arc::new(Timeline::new(10_000));
    let exec = Executor::builder().workers(1).cuda(&[gpu.device.ordinal() as u32]).observer(timeline.clone());
    (exec.build().unwrap(), timeline)
}

#[test]
fn the_timeline_says_how_each_node_was_launched() {
    // Seen to fail with all spans reported as calls.
    let gpu = Gpu::new();
    let (exec, timeline) = observed(&gpu);
    let plan = doubled();
    (0..3).for_each(|_| assert_eq!(run(&exec, &plan, &[1.0, 2.0]), [16.0, 32.0]));
    let spans = timeline.nodes();
    let of = |run: usize, launched| spans[7 * run..][..7].iter().filter(|span| span.launched == launched).count();
    assert_eq!(
        [0, 1, 2].map(|run| [Launched::Calls, Launched::CudaGraph, Launched::Host].map(|how| of(run, how))),
        [[6, 0, 1], [0, 6, 1], [0, 6, 1]]
    );
    assert_eq!(gpu.device.calls_of("cuGraphLaunch"), 2);
    assert_eq!(gpu.device.calls_of("cuGraphInstantiateWithFlags"), 1);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn other_values_addresses_and_sizes_are_set_in_the_graph_that_is_there() {
    // Seen to fail with an update that sets nothing.
    let gpu = Gpu::new();
    let (exec, plan) = (gpu.executor(1), doubled());
    for len in [3, 3, 5, 1000, 1, 7] {
        let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
        let doubled: Vec<f32> = x.iter().map(|x| 16.0 * x).collect();
        assert_eq!(run(&exec, &plan, &x), doubled);
    }
    assert_eq!(gpu.device.calls_of("cuGraphInstantiateWithFlags"), 1);
    assert_eq!(gpu.device.calls_of("cuGraphLaunch"), 5);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn the_same_again_is_one_call() {
    // Seen to fail with an update that sets everything.
    let gpu = Gpu::new();
    let n = anabranch_soft_cuda::Param::scalar::<u32>();
    super::DRIVER.register_kernel("nothing", &[n], |_| ());
    // SAFETY: the software driver calls the function that is registered under this name, with this parameter.
    let kernel = unsafe { Kernel::<(u32,)>::ptx("nothing", ".visible .entry nothing() { ret; }") };
    let mut g = Graph::new();
    for node in 0..5 {
        let kernel = kernel.clone();
        g.try_kernel(node.to_string(), (), move |s: &mut DeviceStream| Ok(s.launch(&kernel, Launch::for_len(1), (node,))?));
    }
    let (exec, plan) = (gpu.executor(1), g.compile_with(&PerOperator).unwrap());
    (0..10).for_each(|_| drop(block_on(exec.run(&plan, inputs! {})).unwrap()));
    let calls = |call| gpu.device.calls_of(call);
    assert_eq!([calls("cuLaunchKernel"), calls("cuGraphLaunch"), calls("cuGraphExecKernelNodeSetParams_v2")], [5, 9, 0]);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn each_run_in_flight_has_a_graph_of_its_own() {
    // Seen to fail with one instance for all.
    let gpu = Gpu::new();
    let (exec, plan) = (gpu.executor(1), doubled());
    (0..2).for_each(|_| assert_eq!(run(&exec, &plan, &[1.0]), [16.0]));
    gpu.device.stall_operation(Which::Kernel, 1);
    let mut runs: Vec<_> = (0..12).map(|_| exec.run(&plan, inputs! { "x" => vec![1.0_f32] })).collect();
    runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
    until(|| gpu.device.calls_of("cuGraphLaunch") == 13);
    // At most two of twelve runs have the stalled lane.
    let mut done = 0;
    until(|| {
        runs.retain_mut(|run| poll_once(run).is_pending());
        done = 12 - runs.len();
        done >= 10
    });
    let instances = gpu.device.calls_of("cuGraphInstantiateWithFlags");
    assert!((2..=8).contains(&instances), "{instances}");
    gpu.device.release_stall();
    runs.into_iter().for_each(|run| assert_eq!(value_of::<Vec<f32>>(block_on(run), "out")[..], [16.0]));
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_run_waits_for_no_graph_that_is_at_work_on_another_lane() {
    // Seen to fail (as a run that never ends) when, of as many graphs as lanes, the one that has been at work
    // for longest is taken.
    let gpu = Gpu::new();
    let (exec, plan) = (gpu.executor(1), doubled());
    (0..2).for_each(|_| assert_eq!(run(&exec, &plan, &[1.0]), [16.0]));
    // Lanes are chosen by places, and there are eight: the last run gets the lane of the first.
    let mut runs: Vec<_> = (0..9).map(|_| exec.try_run(&plan, inputs! { "x" => vec![1.0_f32] }).unwrap()).collect();
    let alone = runs.remove(7);
    // The first kernel of each graph's four.
    (0..8).for_each(|graph| gpu.device.stall_operation(Which::Kernel, 4 * graph + 1));
    runs.iter_mut().for_each(|run| assert!(poll_once(run).is_pending()));
    until(|| gpu.device.calls_of("cuGraphLaunch") == 9);
    assert_eq!(value_of::<Vec<f32>>(block_on(alone), "out")[..], [16.0]);
    assert_eq!(gpu.device.calls_of("cuGraphInstantiateWithFlags"), 8, "one for each lane");
    gpu.device.release_stall();
    runs.into_iter().for_each(|run| assert_eq!(value_of::<Vec<f32>>(block_on(run), "out")[..], [16.0]));
    drop(exec);
    gpu.is_clean();
}

#[test]
fn graphs_can_be_turned_off() {
    let gpu = Gpu::new();
    let (exec, plan) = (gpu.executor_of_calls(1), doubled());
    (0..5).for_each(|_| assert_eq!(run(&exec, &plan, &[1.0]), [16.0]));
    assert_eq!(gpu.device.calls().iter().filter(|(call, _)| call.starts_with("cuGraph")).count(), 0, "{:?}", gpu.device.calls());
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_kernel_that_does_something_else_every_time_is_launched_by_calls_and_then_as_one_of_several_graphs() {
    let gpu = Gpu::new();
    let (mut g, x, up) = uploaded("up");
    let filled = g.try_kernel("fill", (&x, anabranch::take(&up)), |s: &mut DeviceStream, x: &Vec<f32>, mut up: Buffer<f32>| {
        (0..x[0] as usize).try_for_each(|turn| s.fill(&mut up, turn as f32))?;
        Ok(up)
    });
    output_by_host(&mut g, &filled, |x| x.to_vec());
    let (exec, plan) = (gpu.executor(1), g.compile_with(&Single).unwrap());
    let graphs = || gpu.device.calls_of("cuGraphLaunch");
    for turn in 0..3 {
        for fills in 1..=3 {
            assert_eq!(run(&exec, &plan, &[fills as f32]), [fills as f32 - 1.0]);
            assert_eq!(graphs(), if turn == 0 { 0 } else { 3 * turn - 3 + fills });
        }
    }
    // More than the number that is remembered.
    for _ in 0..3 {
        (1..=9).for_each(|fills| assert_eq!(run(&exec, &plan, &[fills as f32]), [fills as f32 - 1.0]));
    }
    drop(exec);
    gpu.is_clean();
}

#[test]
fn the_same_work_shared_out_in_another_way_is_another_graph() {
    // Seen to fail (as a race) when recordings were compared without the ends of their parts.
    let gpu = Gpu::new();
    let mut g = Graph::new();
    let x = g.input::<Vec<f32>>("x");
    let fills = |is_left: bool| {
        move |s: &mut DeviceStream, x: &Vec<f32>| {
            let mut y = s.alloc::<f32>(64)?;
            let turns = if is_left { x[0] } else { 5.0 - x[0] };
            (0..turns as usize).try_for_each(|turn| s.fill(&mut y, turn as f32 + 0.5))?;
            Ok(y)
        }
    };
    let [left, right] = [("left", true), ("right", false)].map(|(name, is_left)| g.try_kernel(name, &x, fills(is_left)));
    let sum = g.try_kernel("sum", (&left, &right), adding());
    output_by_host(&mut g, &sum, |x| x.to_vec());
    let (exec, plan) = (gpu.executor(1), g.compile_with(&PerOperator).unwrap());
    for turns in [1.0, 1.0, 4.0, 4.0, 2.0, 2.0, 3.0] {
        assert_eq!(run(&exec, &plan, &[turns]), [4.0; 64]);
    }
    assert_eq!(gpu.device.violations(), []);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn how_many_graphs_are_kept_is_bounded() {
    // Seen to fail without the bound.
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let plans: Vec<Plan> = (0..300).map(|_| doubled()).collect();
    for plan in plans.iter().chain(&plans) {
        assert_eq!(run(&exec, plan, &[1.0]), [16.0]);
    }
    assert_eq!(gpu.device.calls_of("cuGraphInstantiateWithFlags"), 300);
    assert_eq!(gpu.device.calls_of("cuGraphExecDestroy"), 300 - 256);
    assert_eq!(run(&exec, &plans[0], &[1.0]), [16.0], "it begins anew");
    drop(exec);
    gpu.is_clean();
}

#[test]
fn memory_that_a_later_node_of_the_stream_may_have_is_not_allocated_again() {
    // Seen to fail with a search that never finds any. A search that does not compare streams is found by
    // random graphs, as a race.
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    assert_eq!(run(&exec, &doubled(), &[1.0]), [16.0]);
    assert_eq!(gpu.device.calls_of("cuMemAllocAsync"), 2, "each sum goes where the one before the last was");
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_library_amid_a_segment_finds_what_came_before_and_is_found_by_what_comes_after() {
    // Seen to fail without the flush.
    let gpu = Gpu::new();
    let (mut g, _, up) = uploaded("up");
    let one = g.try_kernel("one", (&up, &up), adding());
    let library = g.try_kernel("library", &one, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut y = s.alloc::<f32>(x.len())?;
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        let (from, to) = (raw.read(x)?, raw.write(&mut y)?);
        // SAFETY: both buffers have this number of bytes.
        unsafe { cudarc::driver::result::memcpy_dtod_async(to, from, x.size_bytes(), raw.stream().cu_stream())? };
        Ok(y)
    });
    let other = g.try_kernel("other", (&library, &up), adding());
    output_by_host(&mut g, &other, |x| x.to_vec());
    for policy in [&Single as &dyn anabranch::policy::Policy, &PerOperator] {
        let (exec, plan) = (gpu.executor(1), g.compile_with(policy).unwrap());
        (0..4).for_each(|_| assert_eq!(run(&exec, &plan, &[1.0, 5.0]), [3.0, 15.0]));
        assert_eq!(gpu.device.calls_of("cuGraphLaunch"), 0);
    }
    gpu.is_clean();
}

// Seen to fail with an end that destroys the lent streams.
#[test]
fn a_stream_that_a_library_keeps_outlives_its_executor() {
    let gpu = Gpu::new();
    let (mut g, _, up) = uploaded("up");
    let library = g.try_kernel("library", &up, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        raw.read(x)?;
        Ok(raw.stream().clone())
    });
    g.output("stream", &library);
    let exec = gpu.executor(1);
    let run = exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => vec![1.0_f32] });
    let stream = value_of::<Arc<cudarc::driver::CudaStream>>(block_on(run), "stream");
    drop(exec);
    // This stream, and the one of cudarc's context.
    until(|| gpu.device.counters().streams == 2);
    stream.synchronize().unwrap();
    drop(stream);
    gpu.is_clean();
}

#[test]
fn what_is_refused_before_a_library_has_the_stream_fails_all_that_comes_after_and_needs_it() {
    // Seen to fail with refusals that are reported for one node only.
    let gpu = Gpu::new();
    let (mut g, _, up) = uploaded("up");
    let bad = g.try_kernel("bad", (&up, &up), adding());
    let beside = g.try_kernel("beside", (&up, &up), adding());
    let library = g.try_kernel("library", (&bad, &beside), |s: &mut DeviceStream, x: &Buffer<f32>, _: &Buffer<f32>| {
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        raw.read(x)?;
        raw.stream();
        Ok(1)
    });
    let beside = g.try_kernel("down", &beside, download);
    let seen = g.task("seen", (&beside, &library), |x: &HostBuffer<f32>, _: &i32| x[0]);
    g.output("seen", &seen);
    let (exec, plan) = (gpu.executor(1), g.compile_with(&Single).unwrap());
    gpu.device.fail_call("cuLaunchKernel", 1, anabranch_soft_cuda::Code::INVALID_VALUE);
    let run = exec.run(&plan, inputs! { "x" => vec![4.0_f32] });
    let nodes = ["bad", "beside", "library", "down", "seen"].map(|node| run.node(node));
    let error = block_on(run).unwrap_err();
    assert_eq!(error.node(), Some("bad"), "{error:#}");
    nodes.into_iter().for_each(|node| assert!(block_on(node).is_err()));
    drop((exec, error));
    gpu.is_clean();
}

#[test]
fn a_node_that_nobody_but_the_device_waits_for_can_be_awaited_late() {
    // Seen to fail (never to end) with segments that are awaited only if they are watched when they are
    // submitted.
    let gpu = Gpu::new();
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let opened = std::sync::Mutex::new(opened);
    let (mut g, x, up) = uploaded("up");
    let early = g.try_kernel("early", (&up, &up), adding());
    let gate = g.task("gate", &x, move |_: &Vec<f32>| _ = opened.lock().unwrap().recv());
    let late = g.try_kernel("late", (&early, &early), adding());
    g.order(&gate, &late);
    let down = g.try_kernel("down", &late, download);
    g.output("down", &down);
    let exec = gpu.executor(2);
    let mut run = exec.run(&g.compile_with(&PerOperator).unwrap(), inputs! { "x" => vec![1.0_f32] });
    assert!(poll_once(&mut run).is_pending());
    until(|| gpu.device.calls_of("cuLaunchKernel") == 1);
    block_on(run.node("early")).unwrap();
    open.send(()).unwrap();
    assert_eq!(value_of::<HostBuffer<f32>>(block_on(run), "down")[..], [4.0]);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_graph_that_the_driver_refuses_to_change_is_built_anew() {
    let gpu = Gpu::new();
    let (exec, plan) = (gpu.executor(1), doubled());
    (0..3).for_each(|_| assert_eq!(run(&exec, &plan, &[1.0]), [16.0]));
    gpu.device.fail_call("cuGraphExecKernelNodeSetParams_v2", 1, anabranch_soft_cuda::Code::INVALID_VALUE);
    assert_eq!(run(&exec, &plan, &[1.0, 2.0]), [16.0, 32.0]);
    let launches = gpu.device.calls_of("cuGraphLaunch");
    assert_eq!(run(&exec, &plan, &[3.0]), [48.0]);
    assert_eq!([gpu.device.calls_of("cuGraphLaunch"), gpu.device.calls_of("cuGraphCreate")], [launches + 1, 2]);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_kernel_that_the_driver_refuses_in_the_midst_of_a_segment_leaves_what_does_not_need_it() {
    // Seen to fail with a judge that lets all work go on, and with one that lets none.
    let gpu = Gpu::new();
    let (mut g, _, up) = uploaded("up");
    let bad = g.try_kernel("bad", (&up, &up), adding());
    let behind = g.try_kernel("behind", (&bad, &bad), adding());
    let beside = g.try_kernel("beside", (&up, &up), adding());
    let [behind, beside] =
        [("behind down", behind), ("beside down", beside)].map(|(name, value)| g.try_kernel(name, &value, download));
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let notes = seen.clone();
    let beside = g.task("seen", &beside, move |x: &HostBuffer<f32>| notes.lock().unwrap().push(x[0]));
    g.output("behind", &behind);
    g.output("beside", &beside);
    let (exec, plan) = (gpu.executor_of_calls(1), g.compile_with(&Single).unwrap());
    gpu.device.fail_call("cuLaunchKernel", 1, anabranch_soft_cuda::Code::INVALID_VALUE);
    let error = block_on(exec.run(&plan, inputs! { "x" => vec![4.0_f32] })).unwrap_err();
    assert_eq!(error.node(), Some("bad"), "{error:#}");
    assert_eq!(*seen.lock().unwrap(), [8.0], "beside is done");
    assert_eq!(gpu.device.calls_of("cuLaunchKernel"), 2, "behind is not launched");
    drop((exec, error));
    gpu.is_clean();
}

#[test]
fn a_node_that_fails_asks_for_nothing() {
    let gpu = Gpu::new();
    let (mut g, _, up) = uploaded("up");
    let bad = g.try_kernel("bad", &up, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut y = s.alloc::<f32>(x.len())?;
        s.fill(&mut y, 1.0)?;
        Err::<Buffer<f32>, _>("no".into())
    });
    let down = g.try_kernel("down", &bad, download);
    g.output("down", &down);
    let exec = gpu.executor(1);
    for _ in 0..3 {
        let error = block_on(exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => vec![4.0_f32] })).unwrap_err();
        assert_eq!(error.node(), Some("bad"), "{error:#}");
    }
    assert_eq!(gpu.device.calls_of("cuMemsetD32Async"), 0);
    drop(exec);
    gpu.is_clean();
}

#[test]
fn every_number_of_parameters_reaches_a_graphs_kernel() {
    type Eight = Kernel<(In<f32>, Out<f32>, u32, f32, f32, f32, f32, f32)>;
    let gpu = Gpu::new();
    let param = anabranch_soft_cuda::Param::scalar::<f32>();
    let n = anabranch_soft_cuda::Param::scalar::<u32>();
    let [read, write] = [anabranch_soft_cuda::Param::READ, anabranch_soft_cuda::Param::WRITE];
    super::DRIVER.register_kernel("eight", &[read, write, n, param, param, param, param, param], |launch| {
        // SAFETY: the kernel is registered and launched with a u32 as parameter 2, the length of both
        // buffers.
        let n = unsafe { launch.scalar::<u32>(2) } as usize;
        let all = [3, 4, 5, 6, 7].map(|param| {
            // SAFETY: the kernel is registered and launched with floats as parameters 3 to 7.
            unsafe { launch.scalar::<f32>(param) }
        });
        let [x, y] = [0, 1].map(|param| {
            // SAFETY: the kernel is launched with two buffers of `n` elements.
            unsafe { launch.slice::<f32>(param, n) }
        });
        (0..n).for_each(|i| y[i] = all.iter().fold(x[i], |sum, number| 10.0 * sum + number));
    });
    // SAFETY: the software driver calls the function that is registered under this name, with these
    // parameters; `n` is the length of both buffers.
    let kernel = unsafe { Eight::ptx("eight", ".visible .entry eight() { ret; }") };
    let (mut g, x, up) = uploaded("up");
    let eight = g.try_kernel("eight", (&x, &up), move |s: &mut DeviceStream, given: &Vec<f32>, x: &Buffer<f32>| {
        let mut y = s.alloc::<f32>(x.len())?;
        s.launch(&kernel, Launch::for_len(x.len()), (x, &mut y, x.len() as u32, 1.0, 2.0, given[0], 4.0, 5.0))?;
        Ok(y)
    });
    output_by_host(&mut g, &eight, |x| x.to_vec());
    let (exec, plan) = (gpu.executor(1), g.compile_with(&Single).unwrap());
    for x in [3.0, 3.0, 3.0, 7.0] {
        assert_eq!(run(&exec, &plan, &[x]), [100_000.0 * x + 12_045.0 + 100.0 * x]);
    }
    assert_eq!(gpu.device.calls_of("cuGraphLaunch"), 3);
    drop(exec);
    gpu.is_clean();
}
