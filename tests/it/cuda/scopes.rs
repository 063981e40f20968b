//! Scopes on a device: how much memory they take there, and how they end.

use std::error::Error as _;
use std::task::Poll;

use anabranch::scope::{DeviceTile, DeviceTileMut, Parts, Streaming, Sum, Tile, TileMut, TilePlace};
use anabranch::{BoxError, DeviceStream, Flow, Function, Graph, Plan, Value, inputs};
use anabranch_soft_cuda::{Code, Which};
use futures::future::poll_fn;

use super::Gpu;
use crate::support::{block_on, until};

const N: usize = 16 << 12;

/// Uploads a value, changes it in four kernels, and downloads it. `event` is called for each tile of each
/// kernel.
fn there_and_back(event: impl Fn(&str, TilePlace<1>) -> Result<(), BoxError> + Clone + Send + Sync + 'static) -> Plan {
    let mut g = Graph::new();
    let streaming = Streaming::strict().over_decompose_factor(16).workers(1).in_flight(3);
    let sums = g.scope("s", streaming, |s| {
        let (a, d) = (s.store("a", [N]), s.store("d", [N]));
        let (b, c) = (s.device_store("b", [N]), s.device_store("c", [N]));
        s.write("begin", (), &a, |mut a: TileMut<u32, 1>| a.fill(1));
        let happens = event.clone();
        s.write_kernel("up", &a, &b, move |s: &mut DeviceStream, a: Tile<u32, 1>, mut b: DeviceTileMut<u32, 1>| {
            s.upload_to(a.as_slice(), &mut b)?;
            happens("up", b.place())
        });
        let happens = event.clone();
        let b = s.update_kernel("change", (), &b, move |s: &mut DeviceStream, mut b: DeviceTileMut<u32, 1>| {
            s.fill(&mut b, 2)?;
            happens("change", b.place())
        });
        let happens = event.clone();
        let reads = b.halo([1], [1]);
        s.write_kernel("near", reads, &c, move |s: &mut DeviceStream, b: DeviceTile<u32, 1>, mut c: DeviceTileMut<u32, 1>| {
            let (from, len) = (c.range(0).start - b.range(0).start, c.len());
            s.copy(&b.slice(from..from + len), &mut c)?;
            happens("near", c.place())
        });
        let work = move |s: &mut DeviceStream, c: DeviceTile<u32, 1>, mut parts: Parts<u32>| {
            s.copy(&c.slice(..parts.len()), &mut parts)?;
            event("sum", c.place())
        };
        let leaves = s.fold_kernel("sum", &c, Sum, work);
        s.download("down", &c, &d);
        (leaves, s.fold("all", &d, Sum, |d: Tile<u32, 1>| d.as_slice().iter().sum::<u32>()))
    });
    g.output("leaves", &sums.0);
    g.output("all", &sums.1);
    g.compile().unwrap()
}

fn is_right(exec: &anabranch::Executor, plan: &Plan) {
    let mut outputs = block_on(exec.run(plan, inputs! {})).unwrap();
    assert_eq!((*outputs.take::<u32>("leaves").unwrap(), *outputs.take::<u32>("all").unwrap()), (32, 2 * N as u32));
}

#[test]
fn a_device_needs_as_much_memory_as_the_plan_says() {
    let plan = there_and_back(|_, _| Ok(()));
    let bytes = plan.scope("s").unwrap().device_bytes();
    let text = plan.scope("s").unwrap().to_string();
    assert!(text.contains("\ndevice       ") && text.contains(" of these bytes: b, c\n"), "{text}");
    let gpu = Gpu::new();
    gpu.device.memory_limit(bytes);
    let exec = gpu.executor(2);
    is_right(&exec, &plan);
    gpu.device.memory_limit(bytes - 1);
    until(|| exec.in_flight() == 0);
    let error = block_on(exec.run(&plan, inputs! {})).unwrap_err();
    assert!(error.is_out_of_memory(), "{error:?}");
    gpu.device.memory_limit(bytes);
    is_right(&exec, &plan);
    drop(exec);
    gpu.is_clean();
}

// Seen to fail (32 KiB for 16 workers) when a device had as many batches in flight as workers.
#[test]
fn a_bound_leaves_tiles_of_a_device_large() {
    let mut g = Graph::new();
    g.scope("s", Streaming::strict().memory_max(4 << 20).workers(16), |s| {
        let (a, b) = (s.store("a", [1 << 28]), s.device_store("b", [1 << 28]));
        s.write("fill", (), &a, |mut a: TileMut<u8, 1>| a.fill(1));
        s.upload("up", &a, &b);
        let _ = s.update_kernel("change", (), &b, |_: &mut DeviceStream, _: DeviceTileMut<u8, 1>| Ok(()));
    });
    let plan = g.compile().unwrap();
    let plan = plan.scope("s").unwrap();
    let bytes = plan.streamed().groups()[0].windows().iter().map(|window| window.tile_bytes).sum::<u64>();
    assert!((1 << 20..=2 << 20).contains(&bytes) && plan.in_flight() >= 2, "{bytes} in a batch: {plan}");
}

#[test]
fn a_kernel_that_fails_or_panics_names_the_operation_and_its_batch() {
    for panics in [false, true] {
        for at in ["up", "change", "near", "sum"] {
            let plan = there_and_back(move |op, place| match op == at && place.batch == 5 {
                true if panics => panic!("no more"),
                true => Err("no more".into()),
                false => Ok(()),
            });
            let gpu = Gpu::new();
            let exec = gpu.executor(2);
            let error = block_on(exec.run(&plan, inputs! {})).unwrap_err();
            let cause = error.source().unwrap().downcast_ref::<anabranch::Error>().unwrap();
            let (how, message) = if panics { ("panicked", ": no more") } else { ("failed", "") };
            assert_eq!(cause.to_string(), format!("operation 's/{at}' {how} in batch 5 of 16, at [20480..24576]{message}"));
            block_on(exec.idle()).unwrap();
            drop(exec);
            gpu.is_clean();
        }
    }
}

#[test]
fn a_device_that_is_lost_at_any_operation_ends_a_scope() {
    let plan = there_and_back(|_, _| Ok(()));
    for operation in (1..=90).step_by(3) {
        let gpu = Gpu::new();
        let exec = gpu.executor(2);
        gpu.device.fail_operation(Which::Any, operation, Code::ILLEGAL_ADDRESS);
        if let Err(error) = block_on(exec.run(&plan, inputs! {})) {
            assert!(error.is_device_lost(), "operation {operation}: {error:?}");
        } else {
            assert!(operation > 60, "operation {operation}");
        }
    }
}

fn copies(gpu: &Gpu) -> u64 {
    ["HtoD", "DtoD", "DtoH"].map(|way| gpu.device.calls_of(&format!("cuMemcpy{way}Async_v2"))).iter().sum()
}

#[test]
fn a_cancel_and_a_drop_while_the_device_works_leave_nothing() {
    let plan = there_and_back(|_, _| Ok(()));
    for copy in [1, 2, 5, 20, 40] {
        for drops in [false, true] {
            let gpu = Gpu::new();
            let exec = gpu.executor_of_calls(2);
            gpu.device.stall_operation(Which::Copy, copy);
            let mut run = Box::pin(exec.run(&plan, inputs! {}));
            // Polls do the work of a run that is known to be cheap.
            until(|| {
                assert!(block_on(poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx)))).is_pending());
                copies(&gpu) >= copy
            });
            if drops {
                drop(run);
                gpu.device.release_stall();
            } else {
                run.cancel();
                gpu.device.release_stall();
                assert!(block_on(run).unwrap_err().is_cancelled());
            }
            until(|| exec.in_flight() == 0 && exec.in_limbo() == 0);
            gpu.device.clear_faults();
            is_right(&exec, &plan);
            drop(exec);
            gpu.is_clean();
        }
    }
}

/// Adds `x` several times, on the device.
fn times(g: &mut Graph, x: Value<u32>) -> Value<u32> {
    g.scope("times", Streaming::strict().over_decompose_factor(8).workers(1), |s| {
        let (a, b) = (s.device_store("a", [N]), s.store("b", [N]));
        s.write_kernel("fill", &x, &a, |s: &mut DeviceStream, x: &u32, mut a: DeviceTileMut<u32, 1>| Ok(s.fill(&mut a, *x)?));
        s.download("down", &a, &b);
        s.fold("sum", &b, Sum, |b: Tile<u32, 1>| b.as_slice().iter().sum::<u32>() >> 12)
    })
}

#[test]
fn a_flow_and_a_loop_run_scopes_on_a_device() {
    let gpu = Gpu::new();
    let exec = gpu.executor(2);
    let function = Function::new("times", times).unwrap();
    let flow = exec.flow(async move |f: &Flow| {
        let mut x = f.value("x", 1_u32);
        while *f.get(&x).await? < 1 << 12 {
            x = f.call(&function, &x);
        }
        Ok(*f.get(&x).await?)
    });
    assert_eq!(block_on(flow).unwrap(), 1 << 12);
    let mut g = Graph::new();
    let x = g.input::<u32>("x");
    let last = g.repeat("loop", &x, anabranch::graph::times(3), |b, x| times(b, x));
    g.output("last", &last);
    let mut outputs = block_on(exec.run(&g.compile().unwrap(), inputs! { "x" => 2_u32 })).unwrap();
    assert_eq!(*outputs.take::<u32>("last").unwrap(), 2 << 12);
    drop(exec);
    gpu.is_clean();
}
