//! The flow of the example `conjugate_gradient` on a GPU: the same results as on the host, bit for bit,
//! because the kernels registered here add in the order of its twins. The example's own kernels on a GPU
//! differ in the last digits: `dot` adds in 256 parts there.

#[path = "../../../examples/programs/conjugate_gradient/solver.rs"]
#[allow(clippy::module_inception)]
mod solver;
#[path = "../../../examples/programs/conjugate_gradient/vectors.rs"]
mod vectors;

use std::sync::Once;

use anabranch::{Executor, Flow};
use anabranch_soft_cuda::{Launch, Param};
use sprs::TriMatI;

use self::solver::{Solution, Solver};
use self::vectors::Rows;
use super::{DRIVER, Gpu};
use crate::support::block_on;

const LENGTH: Param = Param::scalar::<u32>();

/// Returns a parameter that is a buffer.
#[allow(clippy::mut_from_ref, reason = "the memory is the device's, not the launch's")]
fn buffer<'a, T>(launch: &'a Launch<'_>, param: usize, len: usize) -> &'a mut [T] {
    // SAFETY: the example launches its kernels with buffers of these lengths. The comparison with the host
    // checks them.
    unsafe { launch.slice::<T>(param, len) }
}

/// Returns the parameter that is the number of elements.
fn length(launch: &Launch<'_>, param: usize) -> usize {
    // SAFETY: the parameter is registered as a u32.
    unsafe { launch.scalar::<u32>(param) as usize }
}

/// Returns `a / b`, where each is a buffer of one number.
fn quotient(launch: &Launch<'_>, a: usize) -> f64 {
    buffer::<f64>(launch, a, 1)[0] / buffer::<f64>(launch, a + 1, 1)[0]
}

/// Registers the kernels with the driver.
fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let matrix = [Param::READ, Param::READ, Param::READ, Param::READ, Param::WRITE, LENGTH];
        DRIVER.register_kernel("multiply", &matrix, multiply);
        DRIVER.register_kernel("dot", &[Param::READ, Param::READ, Param::WRITE, LENGTH], dot);
        let scaled = [Param::READ_WRITE, Param::scalar::<f64>(), Param::READ, Param::READ, Param::READ, LENGTH];
        DRIVER.register_kernel("add_scaled", &scaled, add_scaled);
        DRIVER.register_kernel("turn", &[Param::READ_WRITE, Param::READ, Param::READ, Param::READ, LENGTH], turn);
    });
}

fn multiply(launch: &Launch<'_>) {
    let n = length(launch, 5);
    let starts = buffer::<u32>(launch, 0, n + 1);
    let entries = starts[n] as usize;
    let (columns, values) = (buffer::<u32>(launch, 1, entries), buffer::<f64>(launch, 2, entries));
    let (x, y) = (buffer::<f64>(launch, 3, n), buffer::<f64>(launch, 4, n));
    for row in 0..n {
        y[row] = (starts[row]..starts[row + 1]).map(|at| values[at as usize] * x[columns[at as usize] as usize]).sum();
    }
}

fn dot(launch: &Launch<'_>) {
    let n = length(launch, 3);
    let (x, y) = (buffer::<f64>(launch, 0, n), buffer::<f64>(launch, 1, n));
    buffer::<f64>(launch, 2, 1)[0] = (0..n).map(|i| x[i] * y[i]).sum();
}

fn add_scaled(launch: &Launch<'_>) {
    let n = length(launch, 5);
    // SAFETY: the parameter is registered as an f64.
    let factor = unsafe { launch.scalar::<f64>(1) } * quotient(launch, 2);
    let (y, x) = (buffer::<f64>(launch, 0, n), buffer::<f64>(launch, 4, n));
    (0..n).for_each(|i| y[i] += factor * x[i]);
}

fn turn(launch: &Launch<'_>) {
    let n = length(launch, 4);
    let factor = quotient(launch, 1);
    let (y, x) = (buffer::<f64>(launch, 0, n), buffer::<f64>(launch, 3, n));
    (0..n).for_each(|i| y[i] = x[i] + factor * y[i]);
}

/// A chain of springs: 2 on the diagonal, -1 beside it.
fn springs(n: usize) -> Rows {
    let mut entries = TriMatI::new((n, n));
    for i in 0..n {
        entries.add_triplet(i, i, 2.0);
        let neighbours = [i.checked_sub(1), Some(i + 1).filter(|&next| next < n)];
        neighbours.into_iter().flatten().for_each(|next| entries.add_triplet(i, next, -1.0));
    }
    entries.to_csr()
}

fn solve(exec: &Executor) -> Solution {
    let (solver, b) = (Solver::new().unwrap(), (0..40).map(|i| f64::from(i * i % 7)).collect());
    block_on(exec.flow(async |f: &Flow| solver.solve(f, springs(40), b, 1e-12, 100).await)).unwrap()
}

#[test]
fn the_solver_of_the_example_gives_the_bits_of_the_host() {
    // Seen to fail with a kernel `turn` that adds before it multiplies.
    register();
    let host = solve(&Executor::inline());
    assert!(host.is_converged && host.residuals.len() > 20);
    for workers in [1, 2] {
        let gpu = Gpu::new();
        let exec = gpu.executor(workers);
        let solution = solve(&exec);
        assert_eq!(solution.residuals, host.residuals);
        assert_eq!(solution.x[..], host.x[..]);
        let launches = gpu.device.calls_of("cuLaunchKernel") + gpu.device.calls_of("cuGraphLaunch");
        assert!(launches >= host.residuals.len() as u64, "the GPU did the work: {launches} launches");
        drop((exec, solution));
        gpu.is_clean();
    }
}
