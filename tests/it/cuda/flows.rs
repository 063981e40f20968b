//! Flows with work on a GPU: loops over kernels and over graphs of kernels, with the same bits as on the
//! host.

use std::time::{Duration, Instant};

use anabranch::device::kernels;
use anabranch::policy::{PerOperator, Placement, Single};
use anabranch::{Buffer, DeviceStream, Engine, Executor, Flow, Function, Graph, HostBuffer, Result, Value, Var, take};
use anabranch_soft_cuda::{Code, Which};

use super::Gpu;
use crate::support::{block_on, poll_once, until};

fn with_kernels() -> Gpu {
    super::builtin::register();
    Gpu::new()
}

fn up(f: &Flow, x: &Var<Vec<f32>>) -> Var<Buffer<f32>> {
    f.try_kernel("up", x, |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?))
}

fn shrink(f: &Flow, x: &Var<Buffer<f32>>) -> Var<Buffer<f32>> {
    f.try_kernel("shrink", x, |s: &mut DeviceStream, x: &Buffer<f32>| Ok(kernels::scale_add(s, 0.7, x, 0.01, x)?))
}

fn sum(f: &Flow, x: &Var<Buffer<f32>>) -> Var<HostBuffer<f32>> {
    f.try_kernel("sum", x, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let sum = kernels::sum(s, x)?;
        Ok(s.download(&sum)?)
    })
}

/// Shrinks `x` until it is below `least`. Returns the result and the number of steps.
async fn until_small(f: &Flow, mut x: Var<Buffer<f32>>, least: f32) -> Result<(f32, u32)> {
    for turn in 0.. {
        let left = f.get(&sum(f, &x)).await?[0];
        if left < least {
            return Ok((left, turn));
        }
        x = shrink(f, &x);
    }
    unreachable!("it gets smaller and smaller")
}

/// Two loops side by side from the same start, one of which calls a graph; then a branch.
async fn program(f: &Flow) -> Result<Vec<f32>> {
    let half = Function::with_policy("half", &Single, |g: &mut Graph, x: Value<Buffer<f32>>| {
        let half = g.try_kernel("half", &x, |s: &mut DeviceStream, x: &Buffer<f32>| Ok(kernels::scale_add(s, 0.25, x, 0.25, x)?));
        let left = g.try_kernel("left", &half, |s: &mut DeviceStream, x: &Buffer<f32>| {
            let sum = kernels::sum(s, x)?;
            Ok(s.download(&sum)?)
        });
        (half, left)
    })?;
    let start = up(f, &f.value("x", (0..100).map(|x| x as f32).collect()));
    let halves = async {
        let (mut x, mut turns) = (start.clone(), 0);
        loop {
            let (next, left) = f.call(&half, &x);
            (x, turns) = (next, turns + 1);
            let left = f.get(&left).await?[0];
            if left < 3.0 {
                return Ok((left, turns));
            }
        }
    };
    let ((a, n), (b, m)) = futures::try_join!(until_small(f, start.clone(), 5.0), halves)?;
    let last = if n > m { shrink(f, &start) } else { start };
    Ok(vec![a, n as f32, b, m as f32, f.get(&sum(f, &last)).await?[0]])
}

#[test]
fn loops_over_kernels_and_graphs_equal_those_of_the_host() {
    let run = |exec: &Executor| block_on(exec.flow(program)).unwrap();
    let expected = run(&Executor::inline());
    for seed in 0..20 {
        assert_eq!(run(&Executor::sim(seed)), expected);
    }
    for workers in [1, 2, 8] {
        let gpu = with_kernels();
        let exec = gpu.executor(workers);
        for placement in [Placement::Single, Placement::PerBackend, Placement::Online] {
            let engine = Engine::builder(&exec).placement(placement).build().unwrap();
            assert_eq!(block_on(engine.flow(program)).unwrap(), expected);
        }
        assert_eq!(run(&exec), expected);
        drop(exec);
        gpu.is_clean();
    }
}

#[test]
fn a_body_updates_its_state_in_place() {
    let gpu = with_kernels();
    let exec = gpu.executor(1);
    let filled = block_on(exec.flow(async |f: &Flow| {
        let mut x = up(f, &f.value("x", vec![0.0; 64]));
        for turn in 0..20 {
            x = f.try_kernel("fill", take(&x), move |s: &mut DeviceStream, mut x: Buffer<f32>| {
                s.fill(&mut x, turn as f32)?;
                Ok(x)
            });
        }
        f.get(&sum(f, &x)).await
    }));
    assert_eq!(filled.unwrap()[0], 64.0 * 19.0);
    // One allocation for the upload, and those of the sum.
    assert!(gpu.device.calls_of("cuMemAllocAsync") <= 4, "{}", gpu.device.calls_of("cuMemAllocAsync"));
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_flow_that_is_dropped_while_the_device_stands_still_leaves_nothing() {
    let gpu = with_kernels();
    let exec = gpu.executor(1);
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        gpu.device.stall_operation(Which::Kernel, 1);
        let mut run = Box::pin(exec.flow(program));
        until(|| poll_once(&mut run).is_pending() && gpu.device.counters().stalled > 0);
        let started = Instant::now();
        drop(run);
        quickest = quickest.min(started.elapsed());
        gpu.device.clear_faults();
    }
    assert!(quickest < Duration::from_millis(1), "{quickest:?}");
    assert!(block_on(exec.flow(program)).is_ok());
    drop(exec);
    gpu.is_clean();
}

#[test]
fn a_flow_hears_that_its_device_is_lost() {
    for operation in [1, 4, 9, 16] {
        let gpu = with_kernels();
        let exec = gpu.executor(2);
        gpu.device.fail_operation(Which::Any, operation, Code::ILLEGAL_ADDRESS);
        let error = block_on(exec.flow(program)).unwrap_err();
        assert!(error.is_device_lost(), "{error:#}");
        assert!(block_on(exec.flow(program)).unwrap_err().is_device_lost());
    }
}

type OnDevice = Value<Buffer<f32>>;

/// Twice x, and three times it, on two streams; then their sum.
fn sixfold(fails_at: Option<&'static str>) -> Function<OnDevice, OnDevice> {
    let add = move |name: &'static str| {
        move |s: &mut DeviceStream, x: &Buffer<f32>, y: &Buffer<f32>| {
            if fails_at == Some(name) {
                return Err("no more".into());
            }
            Ok(kernels::scale_add(s, 1.0, x, 1.0, y)?)
        }
    };
    Function::with_policy("sixfold", &PerOperator, |g: &mut Graph, x: OnDevice| {
        let twice = g.try_kernel("twice", (&x, &x), add("twice"));
        let thrice = g.try_kernel("thrice", (&x, &x), move |s: &mut DeviceStream, x: &Buffer<f32>, y: &Buffer<f32>| {
            let twice = kernels::scale_add(s, 1.0, x, 1.0, y)?;
            Ok(kernels::scale_add(s, 2.0, &twice, 0.0, &twice)?)
        });
        g.try_kernel("six", (&twice, &thrice), add("six"))
    })
    .unwrap()
}

/// Seen to fail (it waits for ever) with calls that are runs.
#[test]
fn graphs_of_kernels_that_follow_each_other_never_visit_the_host() {
    let gpu = with_kernels();
    let exec = gpu.executor(1);
    let six = sixfold(None);
    gpu.device.stall_operation(Which::Kernel, 1);
    let flow = exec.flow(async |f: &Flow| {
        let mut x = up(f, &f.value("x", vec![1.0; 8]));
        for _ in 0..3 {
            x = f.call(&six, &x);
        }
        f.get(&sum(f, &x)).await
    });
    let mut flow = Box::pin(flow);
    // Four kernels for each call, and those of the sum, although none has ended.
    until(|| poll_once(&mut flow).is_pending() && gpu.device.calls_of("cuLaunchKernel") > 12);
    until(|| gpu.device.counters().stalled == 1);
    gpu.device.release_stall();
    assert_eq!(block_on(flow).unwrap()[0], 8.0 * 6.0_f32.powi(3));
    drop((exec, six));
    gpu.is_clean();
}

#[test]
fn a_node_of_a_called_graph_that_fails_is_named() {
    for node in ["twice", "six"] {
        let gpu = with_kernels();
        let exec = gpu.executor(1);
        let error = block_on(exec.flow(async |f: &Flow| {
            let x = up(f, &f.value("x", vec![1.0; 8]));
            let six = f.call(&sixfold(Some(node)), &x);
            let failed = f.get(&sum(f, &six)).await.unwrap_err();
            // The value that the graph has read is unchanged.
            assert_eq!(f.get(&sum(f, &x)).await?[0], 8.0);
            Err::<(), _>(failed)
        }));
        let text = format!("{:#}", error.unwrap_err());
        assert!(text.contains("sixfold") && text.contains(node) && text.contains("no more"), "{text}");
        drop(exec);
        gpu.is_clean();
    }
}

/// Seen to fail (with `is_busy`) with kernels that count as pending for ever.
#[test]
fn a_flow_goes_on_for_longer_than_may_be_pending_at_once() {
    let gpu = with_kernels();
    let exec = gpu.executor(1);
    let turns = block_on(exec.flow(async |f: &Flow| {
        for turn in 0..660 {
            let mut x = up(f, &f.value("x", vec![1.0; 2]));
            for _ in 0..100 {
                x = f.try_kernel("again", take(&x), |_: &mut DeviceStream, x: Buffer<f32>| Ok(x));
            }
            f.get(&x).await.inspect_err(|error| println!("in turn {turn}: {error}"))?;
        }
        Ok(660)
    }));
    assert_eq!(turns.unwrap(), 660);
    drop(exec);
    gpu.is_clean();
}
