//! Operations that fail with a code that is not fatal: the device goes on after them, and only a query
//! reports the failure. No run and no variable takes their leftovers for a result.

use anabranch::cuda::Completion;
use anabranch::policy::{PerOperator, Placement, Single};
use anabranch::{DeviceStream, Engine, Error, Executor, Graph, HostBuffer, Op, Plan, inputs};
use anabranch_soft_cuda::{Code, Which};
use futures::future::join;

use super::vars::{add, download, engine, push, pushed, upload};
use super::{Gpu, adding, output_by_host, uploaded};
use crate::support::{Deed, block_on, hooked, poll_once, poll_with, until, value_of};

const WAYS: [Completion; 3] = [Completion::Lane, Completion::Event, Completion::HostFunction];

/// Two paths from one upload to a sum: on one stream, or on several.
fn two_ways() -> Graph {
    let (mut g, _, up) = uploaded("up");
    let ways = ["left", "right"]
        .map(|way| (0..3).fold(up, |last, turn| g.try_kernel(format!("{way} {turn}"), (&last, &last), adding())));
    let sum = g.try_kernel("sum", (&ways[0], &ways[1]), adding());
    output_by_host(&mut g, &sum, |x| x[0]);
    g
}

const RIGHT: f32 = 16.0;

fn run(exec: &Executor, plan: &Plan) -> anabranch::Run {
    exec.run(plan, inputs! { "x" => vec![1.0_f32; 100] })
}

fn is_it(error: &Error) -> bool {
    !error.is_device_lost() && format!("{error:#}").contains("CUDA_ERROR_INVALID_VALUE")
}

/// Fails each operation of a run in turn, after `warm` successful runs. Returns the number of runs that
/// failed.
fn fail_each_operation(exec: impl Fn(&Gpu) -> Executor, plan: &Plan, warm: usize) -> u32 {
    let mut failed = 0;
    for operation in 1..=30 {
        let gpu = Gpu::new();
        let exec = exec(&gpu);
        (0..warm).for_each(|_| assert_eq!(*value_of::<f32>(block_on(run(&exec, plan)), "out"), RIGHT));
        gpu.device.fail_operation(Which::Any, operation, Code::INVALID_VALUE);
        match block_on(run(&exec, plan)) {
            Ok(mut outputs) => assert_eq!(*outputs.take::<f32>("out").unwrap(), RIGHT, "operation {operation}"),
            Err(error) => {
                assert!(is_it(&error) && error.node().is_none(), "operation {operation}: {error:?}");
                failed += 1;
            }
        }
        gpu.device.clear_faults();
        // The failure of an operation that frees memory may come after the run's end. Then the next run finds
        // it.
        let _ = block_on(run(&exec, plan));
        assert_eq!(*value_of::<f32>(block_on(run(&exec, plan)), "out"), RIGHT, "after operation {operation}");
    }
    failed
}

// Seen to fail with a reactor that queries only stalled lanes. With calls on several streams, seen to fail
// with one that does not query the lanes that a segment was spread over. With events, seen to fail with a
// query of an event that does not pass on its result.
#[test]
fn no_run_takes_what_a_failed_operation_left_for_a_result() {
    let plans = [two_ways().compile_with(&Single).unwrap(), two_ways().compile_with(&PerOperator).unwrap()];
    for completion in WAYS {
        for (plan, warm) in plans.iter().flat_map(|plan| [(plan, 0), (plan, 2)]) {
            let failed = fail_each_operation(|gpu| gpu.executor_by(completion), plan, warm);
            assert!(failed >= 8, "{completion:?} after {warm} runs: {failed}");
        }
    }
}

/// A kernel on one stream, whose end the host does not await, and kernels on other streams that read its
/// result.
fn one_behind_another() -> Plan {
    let (mut g, x, up) = uploaded("up");
    let first = g.try_kernel("first", (&up, &up), adding());
    let gate = g.task("gate", &x, |x: &Vec<f32>| x.len());
    let second = move |s: &mut DeviceStream, x: &_, y: &_, _: &usize| adding()(s, x, y);
    let sums = ["left", "right"].map(|name| g.try_kernel(name, (&first, &up, &gate), second));
    let sum = g.try_kernel("sum", (&sums[0], &sums[1]), adding());
    output_by_host(&mut g, &sum, |x| x[0]);
    g.compile_with(&PerOperator).unwrap()
}

// Seen to fail with a run that does not check for faults when a device has reached one of its points.
#[test]
fn work_behind_a_failed_operation_of_another_stream_is_no_result_either() {
    let plan = one_behind_another();
    for kernel in 1..=4 {
        let gpu = Gpu::new();
        let exec = gpu.executor_of_calls(2);
        gpu.device.fail_operation(Which::Kernel, kernel, Code::INVALID_VALUE);
        assert!(is_it(&block_on(run(&exec, &plan)).unwrap_err()), "kernel {kernel}");
        assert_eq!(*value_of::<f32>(block_on(run(&exec, &plan)), "out"), 6.0, "after kernel {kernel}");
        drop(exec);
        gpu.is_clean();
    }
}

// Seen to fail with a run that takes a fault of any lane for its own.
#[test]
fn a_run_on_another_stream_at_the_same_time_is_not_concerned() {
    let gpu = Gpu::new();
    let (exec, plan) = (gpu.executor(2), two_ways().compile_with(&Single).unwrap());
    gpu.device.stall_operation(Which::Copy, 1);
    let mut other = run(&exec, &plan);
    assert!(poll_once(&mut other).is_pending());
    // Its mark is its last call, so the kernel that fails is not one of its own.
    until(|| gpu.device.counters().stalled == 1 && gpu.device.calls_of("cuStreamWriteValue64_v2") == 1);
    gpu.device.fail_operation(Which::Kernel, 1, Code::INVALID_VALUE);
    assert!(is_it(&block_on(run(&exec, &plan)).unwrap_err()));
    gpu.device.release_stall();
    assert_eq!(*value_of::<f32>(block_on(other), "out"), RIGHT);
}

// Seen to fail with a query at each check of the reactor.
#[test]
fn the_driver_is_asked_once_for_each_mark_at_most() {
    let gpu = Gpu::new();
    let (exec, plan) = (gpu.executor_of_calls(2), two_ways().compile_with(&Single).unwrap());
    let (first, second) = block_on(join(run(&exec, &plan), run(&exec, &plan)));
    [first, second].into_iter().for_each(|outputs| assert_eq!(*value_of::<f32>(outputs, "out"), RIGHT));
    for _ in 0..100 {
        let calls = || (gpu.device.calls_of("cuStreamQuery"), gpu.device.calls_of("cuStreamWriteValue64_v2"));
        let before = calls();
        assert_eq!(*value_of::<f32>(block_on(run(&exec, &plan)), "out"), RIGHT);
        let now = calls();
        // The watchdog adds queries if the machine is so busy that a lane makes no progress for two
        // milliseconds.
        if now.0 - before.0 <= now.1 - before.1 {
            return;
        }
    }
    panic!("a run of {:?} marks asked more often, each of a hundred times", gpu.device.calls_of("cuStreamWriteValue64_v2"));
}

/// A chain over two variables, and a number on the host that depends on it.
fn chain(engine: &Engine) -> anabranch::Result<f32> {
    let [x, y] = ["x", "y"].map(|name| engine.empty_var(name));
    let (down, sum) = (engine.empty_var::<HostBuffer<f32>>("down"), engine.empty_var::<f32>("sum"));
    push(engine, upload("x", &x, 1.0));
    push(engine, upload("y", &y, 2.0));
    (0..3).for_each(|_| push(engine, add("x", &x, &y, &x)));
    push(engine, add("y", &x, &y, &y));
    push(engine, download(&y, &down));
    let ended = pushed(engine, Op::task("sum", &down, &sum, |down: &HostBuffer<f32>| down[0]));
    let read = block_on(sum.read()).map(|sum| *sum);
    assert_eq!(block_on(ended).is_ok(), read.is_ok());
    while block_on(engine.idle()).is_err() {}
    read
}

// Seen to fail with a reactor that queries only stalled lanes.
#[test]
fn no_variable_has_what_a_failed_operation_left() {
    for (completion, placement) in WAYS.into_iter().flat_map(|way| [(way, Placement::Online), (way, Placement::Single)]) {
        let mut failed = 0;
        for operation in 1..=25 {
            let gpu = Gpu::new();
            let exec = gpu.executor_by(completion);
            let engine = engine(&exec, placement);
            gpu.device.fail_operation(Which::Any, operation, Code::INVALID_VALUE);
            match chain(&engine) {
                Ok(sum) => assert_eq!(sum, 9.0, "{completion:?} {placement:?}: operation {operation}"),
                Err(error) => {
                    assert!(is_it(&error), "operation {operation}: {error:?}");
                    failed += 1;
                }
            }
            gpu.device.clear_faults();
            let _ = chain(&engine);
            assert_eq!(chain(&engine).unwrap(), 9.0, "after operation {operation}");
        }
        assert!(failed >= 8, "{completion:?} {placement:?}: {failed}");
    }
}

/// The reactor is blocked in a waker until the operation has failed. So it finds the failure when it queries
/// an earlier operation, before it knows of the end of the later one. Seen to fail with an operation that
/// does not check for faults of its lane at its end.
#[test]
fn what_is_found_before_an_operation_is_awaited_is_not_lost() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let engine = engine(&exec, Placement::Single);
    let [x, y] = ["x", "y"].map(|name| engine.empty_var(name));
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let (stands, standing) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new((held, stands));
    let waker = hooked(move |deed| {
        if deed == Deed::Wake {
            let (held, stands) = &*held.lock().unwrap();
            stands.send(()).unwrap();
            // Until the other end is dropped.
            let _ = held.recv();
        }
    });
    gpu.device.stall_operation(Which::Copy, 1);
    let mut first = pushed(&engine, upload("x", &x, 1.0));
    assert!(poll_with(&mut first, &waker).is_pending());
    gpu.device.fail_operation(Which::Memset, 1, Code::INVALID_VALUE);
    // Otherwise the reactor may see the end of both at once.
    until(|| gpu.device.counters().stalled == 1);
    gpu.device.stall_operation(Which::Copy, 1);
    let earlier = pushed(&engine, upload("x", &x, 2.0));
    until(|| gpu.device.calls_of("cuMemcpyHtoDAsync_v2") == 2);
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let later = Op::try_kernel("later", (), &y, move |s: &mut DeviceStream| {
        let mut y = s.alloc::<f32>(2)?;
        (0..2).try_for_each(|_| s.fill(&mut y, 1.0))?;
        // This puts the fills on the device before the operation is submitted.
        s.raw().expect("it is a GPU's").stream();
        told.lock().unwrap().recv()?;
        Ok(y)
    });
    let later = pushed(&engine, later);
    until(|| gpu.device.calls_of("cuMemsetD32Async") == 2);
    gpu.device.release_first_stall();
    standing.recv().unwrap();
    gpu.device.release_stall();
    until(|| gpu.device.counters().executed == gpu.device.counters().issued - 1);
    drop(let_go);
    assert!(is_it(&block_on(earlier).unwrap_err()));
    go_on.send(()).unwrap();
    assert!(is_it(&block_on(later).unwrap_err()));
    assert!(is_it(&block_on(y.read()).unwrap_err()));
}
