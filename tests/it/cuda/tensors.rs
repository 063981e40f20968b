//! Buffers of a GPU as tensors of DLPack.

use std::sync::{Arc, Mutex};

use anabranch::policy::Single;
use anabranch::{Buffer, DeviceStream, inputs};
use anabranch_soft_cuda::Which;
use dlpark::ffi::DLDevice;
use dlpark::versioned::Dlpack;

use super::{Gpu, uploaded};
use crate::support::{block_on, poll_once, until, value_of};

#[test]
fn an_output_of_a_run_that_has_ended_is_a_tensor_of_its_gpu() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let (mut g, _, up) = uploaded("up");
    g.output("x", &up);
    let run = exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => vec![1.0_f32; 5] });
    let buffer = Arc::into_inner(value_of::<Buffer<f32>>(block_on(run), "x")).unwrap();
    let tensor = Dlpack::try_from(buffer).unwrap();
    let seen = tensor.validate().unwrap();
    assert_eq!((seen.shape(), seen.device()), (&[5][..], DLDevice::cuda(gpu.device.ordinal() as i32)));
    drop((exec, tensor));
    gpu.is_clean();
}

// Seen to fail with each of the two checks left out.
#[test]
fn a_buffer_that_work_still_uses_is_refused_and_returned() {
    let gpu = Gpu::new();
    let exec = gpu.executor(1);
    let kept = Arc::new(Mutex::new(None));
    let (mut g, _, up) = uploaded("up");
    let keep = kept.clone();
    let export = g.try_kernel("export", &up, move |s: &mut DeviceStream, x: &Buffer<f32>| {
        let (mut copy, mut other) = (s.alloc::<f32>(x.len())?, s.alloc::<f32>(x.len())?);
        s.copy(x, &mut copy)?;
        s.copy(x, &mut other)?;
        // The copies are recorded, but not submitted yet.
        let refused = Dlpack::try_from(copy).err().expect("it is in use");
        assert!(refused.error().to_string().contains("a run that has ended"), "{}", refused.error());
        assert!(Dlpack::try_from(s.download(x)?).is_err(), "it is not copied yet");
        *keep.lock().unwrap() = Some((refused.into_inner(), other));
        Ok(())
    });
    g.output("exported", &export);
    // The upload is the first, a copy the second.
    gpu.device.stall_operation(Which::Copy, 2);
    let mut run = exec.run(&g.compile_with(&Single).unwrap(), inputs! { "x" => vec![1.0_f32; 5] });
    assert!(poll_once(&mut run).is_pending());
    until(|| gpu.device.counters().stalled == 1);
    // They are submitted, but not done yet.
    let (copy, other) = kept.lock().unwrap().take().unwrap();
    let copy = Dlpack::try_from(copy).err().expect("it is in use").into_inner();
    gpu.device.release_stall();
    block_on(run).unwrap();
    drop([copy, other].map(|buffer| Dlpack::try_from(buffer).unwrap()));
    drop(exec);
    gpu.is_clean();
}
