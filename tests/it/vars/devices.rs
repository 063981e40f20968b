//! Kernels as operations: the same results on every executor, and on the host without delay.

use anabranch::device::{In, Kernel, Launch, Out};
use anabranch::{Buffer, DeviceStream, Engine, HostBuffer, HostStream, Op, Var, take};

use super::{engines, idle, push, pushed};
use crate::support::block_on;

type Twice = (In<f32>, Out<f32>, u32);

fn twice() -> Kernel<Twice> {
    const SOURCE: &str = r#"extern "C" __global__ void twice(const float* x, float* y, unsigned n) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = 2.0f * x[i];
    }"#;
    // SAFETY: the kernel has these parameters. A thread reads x[i] and writes y[i], both below the length of
    // the launch.
    let twice = unsafe { Kernel::<Twice>::cuda_c("twice", SOURCE) };
    twice.twin(|_, (x, y, n)| (0..n as usize).for_each(|i| y[i] = 2.0 * x[i]))
}

/// Doubles a buffer on a device.
fn double(x: &Var<Buffer<f32>>) -> Op<'_> {
    let twice = twice();
    Op::try_kernel("double", x, x, move |s: &mut DeviceStream, x: &Buffer<f32>| {
        let mut y = s.alloc::<f32>(x.len())?;
        s.launch(&twice, Launch::for_len(x.len()), (x, &mut y, x.len() as u32))?;
        Ok(y)
    })
}

fn download<'v>(x: &'v Var<Buffer<f32>>, to: &'v Var<HostBuffer<f32>>) -> Op<'v> {
    Op::try_kernel("down", x, to, |s: &mut DeviceStream, x: &Buffer<f32>| Ok(s.download(x)?))
}

fn upload<'v>(from: &'v Var<Vec<f32>>, x: &'v Var<Buffer<f32>>) -> Op<'v> {
    Op::try_kernel("up", from, x, |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?))
}

#[test]
fn kernels_and_tasks_are_ordered_by_what_they_use() {
    for (_, engine) in engines() {
        let (from, x, down) = (engine.var("from", vec![1.0_f32, 3.0]), engine.empty_var("x"), engine.empty_var("down"));
        push(&engine, upload(&from, &x));
        push(&engine, Op::task("clear", (), &from, Vec::new));
        (0..5).for_each(|_| push(&engine, double(&x)));
        push(&engine, download(&x, &down));
        push(
            &engine,
            Op::kernel("longer", take(&from), &from, |s: &mut HostStream, x: Vec<f32>| s.launch(|| [&x[..], &[7.0]].concat())),
        );
        let sum = engine.var("sum", 0.0);
        push(&engine, Op::task("sum", (&down, &from), &sum, |x: &HostBuffer<f32>, from: &Vec<f32>| x[0] + x[1] + from[0]));
        assert_eq!(*block_on(sum.read()).unwrap(), 128.0 + 7.0);
        idle(&engine).unwrap();
    }
}

#[test]
fn a_kernel_that_fails_poisons_what_it_writes() {
    for (_, engine) in engines() {
        let (from, x, down) = (engine.var("from", vec![1.0_f32]), engine.empty_var("x"), engine.empty_var("down"));
        let bad = |s: &mut DeviceStream| Ok(s.alloc::<f32>(usize::MAX)?);
        let error = block_on(pushed(&engine, Op::try_kernel("bad", (), &x, bad))).unwrap_err();
        assert!(error.is_out_of_memory() && error.node() == Some("bad"), "{error:?}");
        let error = block_on(pushed(&engine, download(&x, &down))).unwrap_err();
        assert!(error.is_skipped() && error.is_out_of_memory() && error.node() == Some("down"), "{error:?}");
        let no = |_: &mut DeviceStream| -> Buffer<f32> { crate::support::panic_quietly("no") };
        let error = block_on(pushed(&engine, Op::kernel("panics", (), &x, no))).unwrap_err();
        assert!(error.is_panic() && error.to_string() == "operation 'panics' panicked: no", "{error:?}");
        push(&engine, upload(&from, &x));
        push(&engine, download(&x, &down));
        assert_eq!(block_on(down.read()).unwrap()[..], [1.0]);
    }
}

#[test]
fn what_nothing_has_written_cannot_be_read() {
    for (_, engine) in engines() {
        let x = engine.empty_var::<u32>("x");
        let error = block_on(x.read()).unwrap_err();
        assert!(format!("{error:#}").contains("variable 'x' has no value: nothing has written it"), "{error:#}");
        push(&engine, Op::task("write", (), &x, || 4));
        assert_eq!(*block_on(x.read()).unwrap(), 4);
    }
}

#[test]
fn only_the_engine_that_has_a_variable_gets_its_kernels() {
    for (exec, engine) in engines() {
        let x = Engine::new(&exec).unwrap().empty_var::<Buffer<f32>>("x");
        let (error, op) = engine.try_push(double(&x)).unwrap_err().into_parts();
        assert_eq!((error.node(), op.name()), (Some("double"), "double"));
    }
}
