//! A library in a graph: cuBLAS enqueues on its node's own stream. Where there is no GPU, or no cuBLAS, the
//! node launches a kernel of ours instead, or its twin on the host.
//!
//! ```sh
//! cargo run --features cuda --example cublas
//! ```

use std::ffi::c_int;
use std::sync::Mutex;

use anabranch::device::{In, Kernel, Launch, Out};
use anabranch::{BoxError, Buffer, DeviceStream, Executor, Graph, HostBuffer, Result, inputs};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, sys};
use futures::executor::block_on;

const N: usize = 64;

const CODE: &str = r#"extern "C" __global__ void multiply(const float* a, const float* b, float* c, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * n) return;
    float sum = 0.0f;
    for (unsigned k = 0; k < n; k++) sum += a[i / n * n + k] * b[k * n + i % n];
    c[i] = sum;
}"#;

type Multiply = Kernel<(In<f32>, In<f32>, Out<f32>, u32)>;

fn multiply_on_host(a: &[f32], b: &[f32], c: &mut [f32], n: usize) {
    for (i, c) in c.iter_mut().enumerate() {
        *c = (0..n).map(|k| a[i / n * n + k] * b[k * n + i % n]).sum();
    }
}

/// Enqueues `c = a · b` on the node's stream. The views keep the memory until the work is done.
fn multiply_by_cublas(
    s: &mut DeviceStream,
    blas: &mut Option<CudaBlas>,
    a: &Buffer<f32>,
    b: &Buffer<f32>,
    c: &mut Buffer<f32>,
) -> Result<(), BoxError> {
    let raw = s.raw().ok_or("cuBLAS runs on CUDA devices only")?;
    let blas = match blas {
        Some(blas) => blas,
        None => blas.insert(CudaBlas::new(raw.stream().clone())?),
    };
    // SAFETY: the graph orders the work on this stream behind all that wrote `a` and `b`.
    unsafe { blas.set_stream(raw.stream().clone())? };
    let (n, op) = (N as c_int, sys::cublasOperation_t::CUBLAS_OP_N);
    let (alpha, beta) = (1.0, 0.0);
    let config = GemmConfig { transa: op, transb: op, m: n, n, k: n, alpha, lda: n, ldb: n, beta, ldc: n };
    // SAFETY: three matrices of n × n, row by row: cuBLAS sees them transposed, and so multiplies b · a.
    unsafe { blas.gemm(config, &raw.view(b)?, &raw.view(a)?, &mut raw.view_mut(c)?)? };
    Ok(())
}

fn main() -> Result<()> {
    // SAFETY: the code has these parameters, and every launch below is for three matrices of `n` × `n`.
    let kernel = unsafe { Multiply::cuda_c("multiply", CODE) };
    let kernel = kernel.twin(|_, (a, b, c, n)| multiply_on_host(a, b, c, n as usize));
    // SAFETY: it looks for a library of a well-known name.
    let has_cublas = unsafe { sys::is_culib_present() };
    let blas = Mutex::new(None);

    let mut g = Graph::new();
    let upload = |s: &mut DeviceStream, x: &Vec<f32>| Ok(s.upload(x)?);
    let (a, b) = (g.input::<Vec<f32>>("a"), g.input::<Vec<f32>>("b"));
    let (a, b) = (g.try_kernel("upload a", &a, upload), g.try_kernel("upload b", &b, upload));
    let product = g.try_kernel("multiply", (&a, &b), move |s: &mut DeviceStream, a: &Buffer<f32>, b: &Buffer<f32>| {
        let mut c = s.alloc::<f32>(N * N)?;
        if has_cublas && !s.is_host() {
            let blas = &mut *blas.lock().map_err(|_| "a multiplication panicked")?;
            multiply_by_cublas(s, blas, a, b, &mut c)?;
        } else {
            s.launch(&kernel, Launch::for_len(N * N), (a, b, &mut c, N as u32))?;
        }
        Ok(c)
    });
    let product = g.try_kernel("download", &product, |s: &mut DeviceStream, c: &Buffer<f32>| Ok(s.download(c)?));
    let trace = g.task("trace", &product, |c: &HostBuffer<f32>| (0..N).map(|i| c[i * N + i]).sum::<f32>());
    g.output("trace", &trace);

    let (exec, device) = match Executor::cuda(0) {
        Ok(exec) => (exec, if has_cublas { "a GPU, by cuBLAS" } else { "a GPU, by our kernel: there is no cuBLAS" }),
        Err(error) => (Executor::host()?, {
            println!("{error}");
            "the host"
        }),
    };
    let ones = || vec![1.0_f32; N * N];
    let mut outputs = block_on(exec.run(&g.compile()?, inputs! { "a" => ones(), "b" => ones() }))?;
    println!("the trace is {} ({device})", outputs.take::<f32>("trace")?);
    Ok(())
}
