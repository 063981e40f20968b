//! Operations on variables when the driver or the device fails: all of them end, those that depend on the
//! failure with an error, and the next ones are right.

use std::time::{Duration, Instant};

use anabranch::cuda::Completion;
use anabranch::engine::Pushed;
use anabranch::policy::Placement;
use anabranch::{BoxError, Buffer, DeviceStream, Engine, Error, Flow, HostBuffer, Op, take};
use anabranch_soft_cuda::{Code, HostFunctions, Which};

use super::graphs::adding;
use super::vars::{OnDevice, add, download, engine, fill, push, pushed, read, upload};
use super::{Gpu, wait_for_worker};
use crate::support::{block_on, poll_once, until};

/// The longest time until all has ended. A watchdog queries after two milliseconds; the rest is for a busy
/// machine.
const BOUND: Duration = Duration::from_secs(5);

/// Variables on a device and on the host, and thirty operations on them.
struct Thirty {
    engine: Engine,
    vars: [OnDevice; 3],
    on_host: anabranch::Var<f32>,
}

impl Thirty {
    fn new(engine: Engine) -> Self {
        let vars = ["x", "y", "z"].map(|name| engine.empty_var(name));
        Self { vars, on_host: engine.var("host", 0.0), engine }
    }

    /// Pushes them all.
    fn start(&self) -> Vec<Pushed> {
        let Self { engine, vars: [x, y, z], on_host } = self;
        let down = engine.empty_var::<HostBuffer<f32>>("down");
        let mut ended = vec![pushed(engine, upload("x", x, 1.0)), pushed(engine, upload("y", y, 2.0))];
        (0..4).for_each(|_| ended.push(pushed(engine, add("double", x, x, x))));
        for _ in 0..4 {
            ended.push(pushed(engine, add("z", x, y, z)));
            ended.push(pushed(engine, add("y", y, y, y)));
            ended.push(pushed(engine, add("x", x, z, x)));
        }
        ended.push(pushed(engine, download(x, &down)));
        ended.push(pushed(engine, Op::task("host", &down, on_host, |down: &HostBuffer<f32>| down[0])));
        let up = |s: &mut DeviceStream, x: &f32| Ok(s.upload(&[*x; 2])?);
        ended.push(pushed(engine, Op::try_kernel("up", on_host, z, up)));
        for _ in 0..3 {
            ended.push(pushed(engine, add("z", z, y, z)));
            ended.push(pushed(engine, add("x", z, x, x)));
        }
        ended.push(pushed(engine, download(x, &down)));
        ended.push(pushed(engine, fill("x", x, 7.0)));
        ended.push(pushed(engine, Op::task("host", &down, on_host, |down: &HostBuffer<f32>| down[0])));
        ended
    }

    fn read(&self) -> Result<f32, Error> {
        block_on(self.on_host.read()).map(|value| *value)
    }

    fn serial() -> f32 {
        let (mut x, mut y) = (16.0, 2.0);
        for _ in 0..4 {
            let z = x + y;
            (x, y) = (x + z, y + y);
        }
        let mut z = x;
        for _ in 0..3 {
            z += y;
            x += z;
        }
        x
    }

    /// Runs all of them, and checks that they succeed.
    fn is_right(&self, when: &str) {
        let ended = self.start();
        assert_eq!(self.read().unwrap(), Self::serial(), "{when}");
        ended.into_iter().for_each(|ended| block_on(ended).unwrap_or_else(|error| panic!("{when}: {error:?}")));
        block_on(self.engine.idle()).unwrap_or_else(|error| panic!("{when}: {error:?}"));
    }
}

/// Waits for all operations. Returns the errors.
fn errors(engine: &Engine, ended: Vec<Pushed>) -> Vec<Error> {
    let started = Instant::now();
    let errors = ended.into_iter().filter_map(|ended| block_on(ended).err()).collect();
    while block_on(engine.idle()).is_err() {}
    assert_eq!(engine.pending(), 0);
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    errors
}

// Seen to fail with a completion that takes a fault for an end like any other.
#[test]
fn a_fatal_error_at_any_operation_ends_all_that_is_on_the_device() {
    for placement in [Placement::Online, Placement::Single] {
        let mut lost = 0;
        for operation in 1..=60 {
            let gpu = Gpu::new();
            let exec = gpu.executor(2);
            let thirty = Thirty::new(engine(&exec, placement));
            gpu.device.fail_operation(Which::Any, operation, Code::ILLEGAL_ADDRESS);
            let ended = thirty.start();
            let other = pushed(&thirty.engine, Op::task("other", (), (), || ()));
            let errors = errors(&thirty.engine, ended);
            errors.iter().for_each(|error| assert!(error.is_device_lost(), "operation {operation}: {error:?}"));
            block_on(other).unwrap();
            if !errors.is_empty() {
                lost += 1;
                let late = block_on(pushed(&thirty.engine, upload("late", &thirty.vars[0], 1.0))).unwrap_err();
                assert!(late.is_device_lost() && late.node().is_none(), "{late:?}");
                assert!(thirty.read().unwrap_err().is_device_lost() || operation > 40, "operation {operation}");
            }
        }
        assert!(lost > 40, "{lost}");
    }
}

#[test]
fn operations_that_wait_for_room_end_when_their_device_is_lost() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let engine = engine(&exec, Placement::Online);
    let x = engine.empty_var("x");
    gpu.device.stall_operation(Which::Copy, 1);
    gpu.device.fail_operation(Which::Any, 4, Code::ILLEGAL_ADDRESS);
    push(&engine, upload("x", &x, 1.0));
    let ended: Vec<Pushed> = (0..1500).map(|_| pushed(&engine, fill("fill", &x, 2.0))).collect();
    until(|| gpu.device.counters().issued > 500);
    gpu.device.release_stall();
    let errors = errors(&engine, ended);
    assert!(errors.len() > 1490 && errors.iter().all(Error::is_device_lost), "{}", errors.len());
}

#[test]
fn operations_that_wait_for_room_end_when_their_lane_has_a_fault() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let engine = Engine::builder(&exec).max_streams(1).build().unwrap();
    let [x, y] = ["x", "y"].map(|name| engine.empty_var(name));
    gpu.device.stall_operation(Which::Any, 2);
    // Long enough for the watchdog to query.
    gpu.device.delay_operation(Which::Any, 4, Duration::from_millis(300));
    gpu.device.fail_operation(Which::Any, 3, Code::INVALID_VALUE);
    push(&engine, upload("x", &x, 1.0));
    let ended: Vec<Pushed> = (0..1500).map(|_| pushed(&engine, fill("fill", &x, 2.0))).collect();
    until(|| gpu.device.counters().issued > 500);
    // The only worker runs other work: two operations wait for room, and the rest after one of them.
    let other = pushed(&engine, upload("y", &y, 1.0));
    (0..100).for_each(|_| wait_for_worker(&exec));
    gpu.device.release_stall();
    let error = block_on(other).unwrap_err();
    assert_eq!(format!("{error:#}"), "operation 'y' failed: the CUDA driver answered CUDA_ERROR_INVALID_VALUE (1)");
    let errors = errors(&engine, ended);
    let is_it = |error: &Error| format!("{error:#}").contains("CUDA_ERROR_INVALID_VALUE");
    assert!(errors.len() > 1490 && errors.iter().all(is_it), "{}", errors.len());
    gpu.device.clear_faults();
    // After the delay.
    until(|| {
        push(&engine, upload("x", &x, 3.0));
        read(&engine, &x).is_ok_and(|x| x == 3.0)
    });
    drop((x, y, engine, exec, errors, error));
    gpu.is_clean();
}

// Seen to fail (the variable is poisoned) if a kernel that waits for room counts as one that has begun.
#[test]
fn a_kernel_that_is_cancelled_while_it_waits_for_room_leaves_what_it_takes() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let engine = Engine::builder(&exec).max_streams(1).build().unwrap();
    let [x, y, w] = ["x", "y", "w"].map(|name| engine.empty_var(name));
    push(&engine, upload("y", &y, 7.0));
    block_on(y.wait_writable()).unwrap();
    gpu.device.stall_operation(Which::Copy, 1);
    push(&engine, upload("x", &x, 1.0));
    (0..1500).for_each(|_| push(&engine, fill("fill", &x, 2.0)));
    until(|| gpu.device.counters().issued > 500);
    (0..100).for_each(|_| wait_for_worker(&exec));
    let mut flow = Box::pin(engine.flow(async |f: &Flow| {
        let takes = Op::try_kernel("takes", take(&y), &w, |_: &mut DeviceStream, y: Buffer<f32>| Ok(y));
        f.node(takes).await
    }));
    assert!(poll_once(&mut flow).is_pending());
    // The only worker has found no room by then.
    (0..100).for_each(|_| wait_for_worker(&exec));
    drop(flow);
    gpu.device.release_stall();
    assert_eq!(read(&engine, &y).unwrap(), 7.0);
    block_on(engine.idle()).unwrap();
    drop((x, y, w, engine, exec));
    gpu.is_clean();
}

#[test]
fn what_is_on_a_stream_is_bounded_and_all_of_it_is_done() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let engine = engine(&exec, Placement::Online);
    let x = engine.empty_var("x");
    gpu.device.stall_operation(Which::Copy, 1);
    push(&engine, upload("x", &x, 1.0));
    (0..3000).for_each(|turn| push(&engine, fill("fill", &x, turn as f32)));
    until(|| gpu.device.counters().issued > 500);
    // The only worker repeatedly runs other work.
    (0..100).for_each(|_| wait_for_worker(&exec));
    // Each is one operation, and a word for the host.
    assert!(gpu.device.counters().issued < 1300, "{:?}", gpu.device.counters());
    assert_eq!(engine.pending(), 3001);
    gpu.device.release_stall();
    assert_eq!(read(&engine, &x).unwrap(), 2999.0);
    drop((x, engine, exec));
    gpu.is_clean();
}

#[test]
fn out_of_memory_at_any_allocation_fails_who_needs_it_and_nothing_else() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let thirty = Thirty::new(engine(&exec, Placement::Online));
    thirty.is_right("at first");
    let before = gpu.device.calls_of("cuMemAllocAsync");
    thirty.is_right("again");
    let allocations = gpu.device.calls_of("cuMemAllocAsync") - before;
    assert!(allocations > 20, "{allocations}");
    for allocation in 1..=allocations {
        gpu.device.fail_allocation(allocation);
        let errors = errors(&thirty.engine, thirty.start());
        assert!(!errors.is_empty(), "allocation {allocation}");
        for error in &errors {
            assert!(error.is_out_of_memory(), "allocation {allocation}: {error:?}");
            let says = format!("{error:#}").contains(&format!("CUDA device {} has no 8 bytes", gpu.device.ordinal()));
            assert!(says, "{error:#}");
        }
        assert_eq!(errors.iter().filter(|error| !error.is_skipped()).count(), 1, "allocation {allocation}");
        gpu.device.clear_faults();
        thirty.is_right(&format!("after allocation {allocation}"));
    }
    drop((thirty, exec));
    gpu.is_clean();
}

#[test]
fn a_call_that_the_driver_refuses_fails_its_operation_only() {
    let calls = [
        "cuLaunchKernel",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuStreamWriteValue64_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemsetD32Async",
    ];
    for call in calls {
        let mut fired = 0;
        for nth in [1, 2, 5] {
            let (gpu, when) = (Gpu::new(), format!("{call} {nth}"));
            let exec = gpu.executor(1);
            let thirty = Thirty::new(engine(&exec, Placement::Online));
            // So that some operations have to wait.
            gpu.device.delay_every_operation(Duration::from_micros(200));
            gpu.device.fail_call(call, nth, Code::INVALID_VALUE);
            let errors = errors(&thirty.engine, thirty.start());
            for error in &errors {
                let is_it = format!("{error:#}").contains("CUDA_ERROR_INVALID_VALUE") && !error.is_device_lost();
                assert!(is_it, "{when}: {error:?}");
            }
            assert!(errors.iter().filter(|error| !error.is_skipped()).count() <= 1, "{when}: {errors:?}");
            fired += u32::from(gpu.device.calls_of(call) >= nth);
            gpu.device.clear_faults();
            thirty.is_right(&when);
            drop((thirty, exec, errors));
            gpu.is_clean();
        }
        assert!(fired > 0, "{call} was never refused");
    }
}

/// Three launches.
fn thrice(s: &mut DeviceStream, x: &Buffer<f32>) -> Result<Buffer<f32>, BoxError> {
    let once = adding()(s, x, x)?;
    let twice = adding()(s, &once, x)?;
    adding()(s, &twice, x)
}

/// The device is stalled before the fault until more is submitted, and after it, so that the fault is
/// reported.
fn fail_second_of_three(gpu: &Gpu) {
    gpu.device.stall_operation(Which::Kernel, 1);
    gpu.device.fail_operation(Which::Kernel, 2, Code::INVALID_VALUE);
    gpu.device.stall_operation(Which::Kernel, 3);
}

// Seen to fail with an end that does not check the operations that it read from.
#[test]
fn a_fault_that_is_not_fatal_fails_what_reads_from_there_and_the_device_goes_on() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let engine = engine(&exec, Placement::Online);
    let [x, y, z, w] = ["x", "y", "z", "w"].map(|name| engine.empty_var(name));
    push(&engine, upload("x", &x, 1.0));
    push(&engine, upload("z", &z, 2.0));
    block_on(engine.idle()).unwrap();
    fail_second_of_three(&gpu);
    let bad = pushed(&engine, Op::try_kernel("bad", &x, &y, thrice));
    let fine = pushed(&engine, upload("fine", &w, 1.0));
    // So that the next operation is on a stream without a fault of its own.
    push(&engine, upload("z", &z, 2.0));
    let (after, late) = (pushed(&engine, add("after", &y, &z, &z)), y.read());
    until(|| gpu.device.calls_of("cuLaunchKernel") == 4);
    gpu.device.release_first_stall();
    let error = block_on(bad).unwrap_err();
    assert!(!error.is_device_lost() && format!("{error:#}").contains("CUDA_ERROR_INVALID_VALUE"), "{error:?}");
    assert_eq!(error.node(), Some("bad"));
    gpu.device.clear_faults();
    block_on(fine).unwrap();
    let error = block_on(after).unwrap_err();
    let said = "operation 'after' has no valid result, because 'bad', from which it reads, failed on the device";
    assert!(error.is_skipped() && error.to_string() == said, "{error:?}");
    assert!(format!("{error:#}").contains("CUDA_ERROR_INVALID_VALUE"), "{error:#}");
    assert!(block_on(late).is_err());
    assert!(block_on(z.read()).is_err(), "it is poisoned");
    push(&engine, upload("z", &z, 4.0));
    push(&engine, upload("y", &y, 2.0));
    push(&engine, add("again", &x, &z, &z));
    push(&engine, add("again", &y, &z, &y));
    assert_eq!(read(&engine, &y).unwrap(), 7.0);
    while block_on(engine.idle()).is_err() {}
    drop((x, y, z, w, engine, exec, error));
    gpu.is_clean();
}

#[test]
fn a_kernel_that_fails_poisons_what_it_writes_and_leaves_what_it_reads() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let engine = engine(&exec, Placement::Online);
    let [x, y] = ["x", "y"].map(|name| engine.empty_var(name));
    push(&engine, upload("x", &x, 1.0));
    let enough = |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut y = s.alloc::<f32>(x.len())?;
        s.fill(&mut y, 3.0)?;
        Err::<Buffer<f32>, _>("it was enough".into())
    };
    let error = block_on(pushed(&engine, Op::try_kernel("fails", &x, &y, enough))).unwrap_err();
    assert_eq!(format!("{error:#}"), "operation 'fails' failed: it was enough");
    assert_eq!(gpu.device.calls_of("cuMemsetD32Async"), 0, "what it has asked for is not done");
    let panics = |_: &mut DeviceStream, _: Buffer<f32>| -> Buffer<f32> { crate::support::panic_quietly("no") };
    let error = block_on(pushed(&engine, Op::kernel("panics", take(&x), &x, panics))).unwrap_err();
    assert!(error.is_panic(), "{error:?}");
    let error = block_on(pushed(&engine, add("reads", &x, &y, &y))).unwrap_err();
    assert!(error.is_skipped() && error.is_panic() || error.to_string().contains("'panics'"), "{error:?}");
    assert!(format!("{:#}", block_on(y.read()).unwrap_err()).contains("panicked"));
    push(&engine, upload("x", &x, 1.0));
    push(&engine, add("y", &x, &x, &y));
    assert_eq!(read(&engine, &y).unwrap(), 2.0);
    drop((x, y, engine, exec));
    gpu.is_clean();
}

/// A failure in the closure, and one on the device. Seen to fail with a reader's trail that keeps the failure
/// of an operation that has read the variable.
#[test]
fn a_failure_on_a_device_that_nobody_was_told_is_told_by_idle() {
    let gpu = Gpu::new();
    let exec = gpu.executor(2);
    let engine = engine(&exec, Placement::Online);
    let x = engine.empty_var("x");
    push(&engine, upload("x", &x, 1.0));
    for number in 0..100 {
        let y = engine.empty_var::<Buffer<f32>>("y");
        let enough = |_: &mut DeviceStream, _: &Buffer<f32>| Err("it was enough".into());
        push(&engine, Op::try_kernel("fails", &x, &y, enough));
        drop(y);
        let error = block_on(engine.idle()).expect_err(&format!("number {number}"));
        assert_eq!(format!("{error:#}"), "operation 'fails' failed: it was enough");
        block_on(engine.idle()).unwrap();
    }
    let y = engine.empty_var("y");
    fail_second_of_three(&gpu);
    push(&engine, Op::try_kernel("bad", &x, &y, thrice));
    drop(y);
    until(|| gpu.device.calls_of("cuLaunchKernel") == 3);
    gpu.device.release_first_stall();
    let error = block_on(engine.idle()).unwrap_err();
    assert_eq!(error.node(), Some("bad"));
    assert!(format!("{error:#}").contains("CUDA_ERROR_INVALID_VALUE"), "{error:?}");
    gpu.device.clear_faults();
    block_on(engine.idle()).unwrap();
    drop((x, engine, exec, error));
    gpu.is_clean();
}

/// An operation that was done in vain, and one of the host that reads from it. Seen to fail (reported again)
/// with an origin that is searched for one operation back only.
#[test]
fn a_failure_that_comes_by_way_of_two_operations_is_told_once() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let engine = engine(&exec, Placement::Online);
    let [x, y, z] = ["x", "y", "z"].map(|name| engine.empty_var(name));
    push(&engine, upload("x", &x, 1.0));
    push(&engine, upload("z", &z, 2.0));
    block_on(engine.idle()).unwrap();
    fail_second_of_three(&gpu);
    let bad = pushed(&engine, Op::try_kernel("bad", &x, &y, thrice));
    push(&engine, upload("z", &z, 2.0));
    push(&engine, add("after", &y, &z, &z));
    let w = engine.var("w", 1);
    let third = pushed(&engine, Op::task("third", &z, &w, |_: &Buffer<f32>| 7));
    until(|| gpu.device.calls_of("cuLaunchKernel") == 4);
    gpu.device.release_first_stall();
    until(|| format!("{bad:?}").contains("has_ended: true"));
    gpu.device.clear_faults();
    drop(bad);
    assert!(block_on(third).unwrap_err().is_skipped());
    drop((x, y, z, w));
    block_on(engine.idle()).unwrap();
    drop((engine, exec));
    gpu.is_clean();
}

#[test]
fn every_way_to_hear_of_the_device_gives_the_same() {
    for completion in [Completion::Lane, Completion::Event, Completion::HostFunction] {
        let gpu = Gpu::new();
        let exec = gpu.executor_by(completion);
        let thirty = Thirty::new(engine(&exec, Placement::Online));
        (0..10).for_each(|_| thirty.is_right(&format!("{completion:?}")));
        if completion == Completion::HostFunction {
            gpu.device.host_functions(HostFunctions::Dropped);
            thirty.is_right("host functions that are never called");
        }
        drop((thirty, exec));
        gpu.is_clean();
    }
}

#[test]
fn operations_end_when_their_executor_is_shut_down_and_the_device_has_let_go() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let thirty = Thirty::new(engine(&exec, Placement::Online));
    gpu.device.stall_operation(Which::Kernel, 3);
    let ended = thirty.start();
    until(|| gpu.device.counters().stalled == 1);
    let mut down = exec.shutdown();
    assert!(poll_once(&mut down).is_pending());
    gpu.device.release_stall();
    block_on(down).unwrap();
    for error in ended.into_iter().filter_map(|ended| block_on(ended).err()) {
        assert!(error.is_shut_down() || error.is_skipped(), "{error:?}");
    }
    drop((thirty, exec));
    gpu.is_clean();
}
