//! Buffers as cudarc's own views: on the node's stream, and on others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch::policy::Single;
use anabranch::{Buffer, DeviceStream, Graph, inputs};
use anabranch_soft_cuda::Which;
use cudarc::driver::result::memcpy_dtod_async;
use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, DriverError, sys};

use super::{Gpu, adding, output_by_host, uploaded};
use crate::support::{block_on, poll_once, until, value_of};

/// How the loan of the node's stream ends.
#[derive(Clone, Copy)]
enum End {
    Dropped,
    Forgotten,
}

/// Copies `x` by cudarc's safe function on the stream that `choose` returns, and doubles the copy.
fn copied(choose: impl Fn(&Arc<CudaStream>) -> Arc<CudaStream> + Send + Sync + 'static, end: End) -> Graph {
    let (mut g, _, up) = uploaded("up");
    let copy = g.try_kernel("copy", &up, move |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut y = s.alloc::<f32>(x.len())?;
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        choose(raw.stream()).memcpy_dtod(&raw.view(x)?, &mut raw.view_mut(&mut y)?)?;
        if let End::Forgotten = end {
            std::mem::forget(raw);
        }
        Ok(y)
    });
    let twice = g.try_kernel("twice", (&copy, &copy), adding());
    output_by_host(&mut g, &twice, |x| x.to_vec());
    g
}

#[test]
fn safe_functions_of_cudarc_take_views_on_the_stream_of_the_node() {
    let gpu = Gpu::new();
    let (exec, plan) = (gpu.executor(1), copied(Arc::clone, End::Dropped).compile_with(&Single).unwrap());
    for x in [vec![1.0_f32, 2.0], vec![3.0]] {
        let run = exec.run(&plan, inputs! { "x" => x.clone() });
        let twice: Vec<f32> = x.iter().map(|x| 2.0 * x).collect();
        assert_eq!(*value_of::<Vec<f32>>(block_on(run), "out"), twice);
    }
    drop(exec);
    gpu.is_clean();
}

// Seen to fail without the record of `share`, and without the tracking of the context.
#[test]
fn another_stream_that_uses_a_view_waits_for_the_work_before() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let graph = copied(|own| own.context().new_stream().expect("there is a stream"), End::Dropped);
    gpu.device.stall_operation(Which::Copy, 1);
    let mut run = exec.run(&graph.compile_with(&Single).unwrap(), inputs! { "x" => vec![4.0_f32] });
    assert!(poll_once(&mut run).is_pending());
    // The upload is stopped, and the copy is called: it must not run.
    until(|| gpu.device.calls_of("cuMemcpyDtoDAsync_v2") == 1);
    gpu.device.release_stall();
    assert_eq!(*value_of::<Vec<f32>>(block_on(run), "out"), [8.0]);
    drop(exec);
    gpu.is_clean();
}

// Seen to fail with loans that end without waits; and, for the forgotten one, with loans that only the stream
// of the kernel ends.
#[test]
fn what_comes_after_waits_for_another_stream_that_used_a_view() {
    for end in [End::Dropped, End::Forgotten] {
        let gpu = Gpu::new();
        let exec = gpu.executor(1);
        let graph = copied(|own| own.context().new_stream().expect("there is a stream"), end);
        gpu.device.stall_operation(Which::Copy, 2);
        let mut run = exec.run(&graph.compile_with(&Single).unwrap(), inputs! { "x" => vec![4.0_f32] });
        assert!(poll_once(&mut run).is_pending());
        // The copy is stopped, and the kernel after it is launched: it must not run.
        until(|| gpu.device.counters().stalled == 1 && gpu.device.calls_of("cuLaunchKernel") == 1);
        gpu.device.release_stall();
        assert_eq!(*value_of::<Vec<f32>>(block_on(run), "out"), [8.0]);
        drop(exec);
        // A forgotten loan keeps the stream.
        if let End::Dropped = end {
            gpu.is_clean();
        }
    }
}

// Seen to fail with loans that end with the stream of the kernel only; and, where that is forgotten, with a
// new one that does not end those of the first.
#[test]
fn a_view_that_is_written_waits_for_the_earlier_views_of_the_same_memory() {
    for end in [End::Dropped, End::Forgotten] {
        let gpu = Gpu::new();
        let exec = gpu.executor(1);
        let (mut g, _, up) = uploaded("up");
        let copy = g.try_kernel("copy", &up, move |s: &mut DeviceStream, x: &Buffer<f32>| {
            let (mut x, mut y) = (s.fetch(x)?, s.alloc::<f32>(x.len())?);
            let raw = s.raw().ok_or("a CUDA device is needed")?;
            let (one, other) = (raw.stream().context().new_stream()?, raw.stream().context().new_stream()?);
            one.memcpy_dtod(&raw.view(&x)?, &mut raw.view_mut(&mut y)?)?;
            if let End::Dropped = end {
                other.memset_zeros(&mut raw.view_mut(&mut x.slice_mut(..))?)?;
            } else {
                std::mem::forget(raw);
                s.fill(&mut x, 0.0)?;
                s.raw().ok_or("a CUDA device is needed")?.stream();
            }
            Ok(y)
        });
        output_by_host(&mut g, &copy, |x| x.to_vec());
        // The upload and the copy to `x` come first.
        gpu.device.stall_operation(Which::Copy, 3);
        let mut run = exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => vec![4.0_f32] });
        assert!(poll_once(&mut run).is_pending());
        let fills = || gpu.device.calls_of("cuMemsetD8Async") + gpu.device.calls_of("cuMemsetD32Async");
        until(|| gpu.device.counters().stalled == 1 && fills() == 1);
        gpu.device.release_stall();
        assert_eq!(*value_of::<Vec<f32>>(block_on(run), "out"), [4.0]);
    }
}

/// An error that cudarc keeps for its next call, as that of a failed drop.
fn leave_an_error(context: &CudaContext) {
    context.record_err::<()>(Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE)));
}

// Seen to fail (with a panic of the node) without the check.
#[test]
fn a_view_is_refused_while_cudarc_keeps_an_error() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let (mut g, _, up) = uploaded("up");
    let view = g.try_kernel("view", &up, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        leave_an_error(raw.stream().context());
        Ok(raw.view(x).map(|view| view.len())?)
    });
    g.output("view", &view);
    let run = exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => vec![1.0_f32] });
    let error = block_on(run).unwrap_err();
    assert!(error.node() == Some("view") && format!("{error:#}").contains("CUDA_ERROR_INVALID_VALUE"), "{error:#}");
    assert!(!format!("{error:#}").contains("panicked"), "{error:#}");
    drop((exec, error));
    gpu.is_clean();
}

// Seen to fail (the sum is made of what was not copied yet) without the call that synchronizes.
#[test]
fn an_error_that_cudarc_keeps_hides_no_wait() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let (mut g, _, up) = uploaded("up");
    let copy = g.try_kernel("copy", &up, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut y = s.alloc::<f32>(x.len())?;
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        let (other, from) = (raw.stream().context().new_stream()?, raw.view(x)?);
        let mut to = raw.view_mut(&mut y)?;
        let ((from, read), (to, written)) = (from.device_ptr(&other), to.device_ptr_mut(&other));
        // SAFETY: both buffers have as many bytes.
        unsafe { memcpy_dtod_async(to, from, x.size_bytes(), other.cu_stream())? };
        leave_an_error(raw.stream().context());
        // The events are not recorded.
        drop((read, written));
        drop(raw);
        Ok(y)
    });
    let twice = g.try_kernel("twice", (&copy, &copy), adding());
    output_by_host(&mut g, &twice, |x| x.to_vec());
    gpu.device.stall_operation(Which::Copy, 2);
    let mut run = exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => vec![4.0_f32] });
    assert!(poll_once(&mut run).is_pending());
    until(|| gpu.device.counters().stalled == 1);
    let is_behind = || gpu.device.calls_of("cuCtxSynchronize") == 1 || gpu.device.calls_of("cuLaunchKernel") == 1;
    until(is_behind);
    gpu.device.release_stall();
    assert_eq!(*value_of::<Vec<f32>>(block_on(run), "out"), [8.0]);
}

// Seen to fail (there is a view) without the check.
#[test]
fn there_is_no_view_behind_work_that_was_refused() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let (mut g, _, up) = uploaded("up");
    let bad = g.try_kernel("bad", (&up, &up), adding());
    let had_view = Arc::new(AtomicBool::new(true));
    let saw = had_view.clone();
    let view = g.try_kernel("view", &bad, move |s: &mut DeviceStream, x: &Buffer<f32>| {
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        saw.store(raw.view(x).is_ok(), Ordering::Relaxed);
        Ok(())
    });
    g.output("view", &view);
    gpu.device.fail_call("cuLaunchKernel", 1, anabranch_soft_cuda::Code::INVALID_VALUE);
    let run = exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => vec![1.0_f32] });
    assert_eq!(block_on(run).unwrap_err().node(), Some("bad"));
    assert!(!had_view.load(Ordering::Relaxed));
}

#[test]
fn a_view_of_another_devices_buffer_is_an_error() {
    let (gpu, other) = (Gpu::new(), Gpu::new());
    let (mut g, _, up) = uploaded("up");
    g.output("x", &up);
    let plan = g.compile_with(&Single).unwrap();
    let (here, there) = (gpu.executor(1), other.executor(1));
    let foreign = value_of::<Buffer<f32>>(block_on(there.run(&plan, inputs! { "x" => vec![1.0_f32] })), "x");
    let mut g = Graph::new();
    let x = g.input::<Buffer<f32>>("x");
    let view = g.try_kernel("view", &x, |s: &mut DeviceStream, x: &Buffer<f32>| {
        let raw = s.raw().ok_or("a CUDA device is needed")?;
        Ok(raw.view(x).map(|view| view.len())?)
    });
    g.output("view", &view);
    let inputs = anabranch::Inputs::new().with_arc("x", foreign);
    let error = block_on(here.run(&g.compile_with(&Single).unwrap(), inputs)).unwrap_err();
    assert_eq!(error.node(), Some("view"), "{error:#}");
    assert!(format!("{error:#}").contains("buffer"), "{error:#}");
}
