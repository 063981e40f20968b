//! The stream sanitizer on a CUDA device.

use std::sync::{Arc, Mutex};

use anabranch::policy::PerOperator;
use anabranch::{Buffer, DeviceStream, Engine, Graph, Inputs, Op, take};

use super::{Gpu, filling, output_by_host, uploaded};
use crate::sanitizing::random::Tally;
use crate::sanitizing::sharing::shared;
use crate::support::{block_on, until};

#[test]
fn a_cuda_device_finds_every_race_of_random_kernels_and_no_other() {
    // Seen to fail with false races, if a part does not join the first that it waits for; and with missed
    // ones (331 of 530 found), if a shadow keeps no reads.
    let gpu = Gpu::new();
    let exec = gpu.executor_that_checks(1);
    let (mut tally, buffers) = (Tally::default(), shared(&exec));
    for seed in 0..500 {
        tally.run_both(seed, false, 2, &exec, &buffers);
    }
    println!("{tally:?}");
    assert_eq!(tally.found, tally.racing);
    assert!(tally.racing >= 100 && tally.right >= 500, "{tally:?}");
}

#[test]
fn random_graphs_with_host_nodes_have_no_false_races_on_a_cuda_device() {
    // Seen to fail if a part does not join the first that it waits for.
    let gpu = Gpu::new();
    let exec = gpu.executor_that_checks(2);
    let (mut tally, buffers) = (Tally::default(), shared(&exec));
    for seed in 0..500 {
        tally.run_both(seed, true, 1, &exec, &buffers);
    }
    println!("{tally:?}");
}

#[test]
fn the_accesses_that_a_library_declares_are_checked() {
    let gpu = Gpu::new();
    let exec = gpu.executor_that_checks(1);
    let graph = |is_right: bool| {
        let (mut g, hidden) = (Graph::new(), Arc::new(Mutex::new(None::<Buffer<u8>>)));
        let made = hidden.clone();
        let make = g.try_kernel("make", (), move |s: &mut DeviceStream| {
            *made.lock().unwrap() = Some(s.upload(&[1_u8; 16])?);
            Ok(())
        });
        let library = g.try_kernel("library", (), move |s: &mut DeviceStream| {
            let mut hidden = hidden.lock().unwrap();
            let y = hidden.as_mut().ok_or("it is made")?;
            let (len, raw) = (y.len(), s.raw().ok_or("a CUDA device is needed")?);
            let address = raw.write(y)?;
            // SAFETY: the buffer has as many bytes.
            unsafe { cudarc::driver::result::memset_d8_async(address, 7, len, raw.stream().cu_stream())? };
            Ok(())
        });
        if is_right {
            g.node(&library).after(&make);
        }
        g.compile_with(&PerOperator).unwrap()
    };
    block_on(exec.run(&graph(true), Inputs::new())).unwrap();
    let error = block_on(exec.run(&graph(false), Inputs::new())).unwrap_err();
    assert!(error.is_race() && error.node() == Some("library"), "{error:#}");
    let text = format!("{error:#}");
    assert!(text.contains("writes bytes 0..16 of a buffer of 16 bytes") && text.contains("after 'make'"), "{text}");
}

#[test]
fn kernels_of_an_engine_race_unless_a_variable_orders_them() {
    let gpu = Gpu::new();
    let exec = gpu.executor_that_checks(1);
    let both = |is_right: bool| {
        let engine = Engine::new(&exec).unwrap();
        let (one, other) = (engine.var("one", 0_u32), engine.var("other", 0_u32));
        let hidden = Arc::new(Mutex::new(None::<Buffer<f32>>));
        let (made, other) = (hidden.clone(), if is_right { &one } else { &other });
        gpu.device.stall_operation(anabranch_soft_cuda::Which::Copy, 1);
        let make = Op::try_kernel("make", (), &one, move |s: &mut DeviceStream| {
            *made.lock().unwrap() = Some(s.upload(&[1.0_f32; 8])?);
            Ok(0_u32)
        });
        let fill = Op::try_kernel("fill", (), other, move |s: &mut DeviceStream| {
            s.fill(hidden.lock().unwrap().as_mut().ok_or("it is made")?, 1.5)?;
            Ok(0_u32)
        });
        let make = block_on(engine.push(make)).unwrap();
        until(|| gpu.device.counters().stalled == 1);
        let before = gpu.device.calls_of("cuMemsetD32Async");
        let fill = block_on(engine.push(fill)).unwrap();
        until(|| gpu.device.calls_of("cuMemsetD32Async") > before);
        gpu.device.release_stall();
        block_on(make).and(block_on(fill))
    };
    both(true).unwrap();
    let error = both(false).unwrap_err();
    assert!(error.is_race(), "{error:#}");
}

#[test]
fn freed_memory_is_poisoned() {
    // Seen to fail without the fill.
    let gpu = Gpu::new();
    gpu.device.keep_log(true);
    let (mut g, _, up) = uploaded("up");
    let filled = g.try_kernel("fill", take(&up), filling(2.0));
    output_by_host(&mut g, &filled, |x| x[0]);
    let exec = gpu.executor_that_checks(1);
    let plan = g.compile_with(&PerOperator).unwrap();
    drop(block_on(exec.run(&plan, anabranch::inputs! { "x" => vec![1.0_f32; 4] })).unwrap());
    // The line of a call is there after its effect.
    until(|| gpu.device.log().iter().any(|line| line.starts_with("cuMemFreeAsync")));
    let log = gpu.device.log();
    let freed = log.iter().position(|line| line.starts_with("cuMemFreeAsync")).unwrap();
    assert!(log[freed - 1].starts_with("cuMemsetD8Async"), "{log:#?}");
    drop(exec);
    gpu.is_clean();
}
