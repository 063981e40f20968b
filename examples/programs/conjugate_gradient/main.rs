//! A solver as a flow: each iteration calls a graph of kernels, and `if residual <= tolerance { return }` is
//! Rust's own.
//!
//! ```sh
//! cargo run --example conjugate_gradient                               # a Poisson problem on 20 x 20 points
//! cargo run --example conjugate_gradient -- MATRIX.mtx --tolerance 1e-8
//! cargo run --example conjugate_gradient -- --generate 100 /tmp/poisson.mtx
//! cargo run --features cuda --example conjugate_gradient -- --device cuda
//! ```
//!
//! Read `solver.rs` first: the graph of an iteration, and the loop around it. `vectors.rs` has the kernels,
//! which need no GPU: each has a twin for hosts. The solver is the same on all devices.

#[path = "../thumbnails/device.rs"]
mod device;
mod plot;
mod solver;
mod vectors;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anabranch::{BoxError, Executor, Flow};
use clap::Parser;
use sprs::TriMatI;
use sprs::io::{SymmetryMode::Symmetric, read_matrix_market, write_matrix_market_sym};
use sprs::prod::mul_acc_mat_vec_csr;

use device::Device;
use solver::{Solution, Solver};
use vectors::Rows;

/// The matrix that comes along.
const POISSON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conjugate_gradient/poisson.mtx");

/// Solves A x = b by conjugate gradients, for a symmetric and positive definite A and a b that is known to
/// give x = 1/n, 2/n, ... 1.
#[derive(Debug, Parser)]
#[command(name = "conjugate_gradient")]
struct Args {
    /// Matrix Market file with the matrix
    #[arg(default_value = POISSON, hide_default_value = true)]
    matrix: PathBuf,

    /// First write the matrix of a Poisson problem on N x N points into that file
    #[arg(long, value_name = "N", requires = "matrix", value_parser = clap::value_parser!(u32).range(1..=1000))]
    generate: Option<u32>,

    /// How small the residual is to become, in parts of the right-hand side
    #[arg(long, value_name = "PART", default_value = "1e-10")]
    tolerance: f64,

    /// Where to give up
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    iterations: usize,

    /// Threads that compute [default: one for each core]
    #[arg(long, value_name = "N", conflicts_with = "simulate")]
    workers: Option<usize>,

    /// Where kernels run
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    device: Device,

    /// Run on the simulated device, in an order drawn from this seed
    #[arg(long, value_name = "SEED", conflicts_with = "device")]
    simulate: Option<u64>,

    /// Draw the residuals into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("it did not converge");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the residual became small enough.
async fn run(args: &Args) -> Result<bool, BoxError> {
    if args.tolerance.is_nan() || args.tolerance < 0.0 {
        return Err(format!("the tolerance must be 0 or more, not {}", args.tolerance).into());
    }
    if let Some(points) = args.generate {
        write_matrix_market_sym(&args.matrix, &poisson(points), Symmetric)?;
    }
    let rows = read(&args.matrix)?;
    let (n, entries) = (rows.rows(), rows.nnz());
    println!("{}: {n} unknowns, {entries} entries", args.matrix.display());

    let (exec, device) = executor(args)?;
    println!("{device}");
    let started = Instant::now();
    let solution = solve(&exec, rows, args.tolerance, args.iterations).await?;
    let (iterations, time) = (solution.residuals.len() - 1, started.elapsed());
    let first_to_last = [0, iterations].map(|at| solution.residuals[at]);
    println!("|r| fell from {:.1e} to {:.1e} in {iterations} iterations, {time:.1?}", first_to_last[0], first_to_last[1]);
    println!("the largest error is {:.1e}", largest_error(&solution.x));
    if let Some(path) = &args.plot {
        let title = format!("Conjugate gradients, {n} unknowns: {iterations} iterations");
        plot::draw(path, &title, &solution.residuals, args.tolerance)?;
        println!("the residuals are drawn in {}", path.display());
    }
    Ok(solution.is_converged)
}

/// Returns an executor, and a line that says what device it has.
fn executor(args: &Args) -> Result<(Executor, String), BoxError> {
    if let Some(seed) = args.simulate {
        return Ok((Executor::sim(seed), format!("device: simulated, in the order of seed {seed}")));
    }
    let settings = || args.workers.into_iter().fold(Executor::builder(), |settings, workers| settings.workers(workers));
    args.device.executor(settings)
}

/// Solves for a right-hand side whose solution is known.
async fn solve(exec: &Executor, rows: Rows, tolerance: f64, iterations_max: usize) -> anabranch::Result<Solution> {
    let solver = Solver::new()?;
    let mut b = vec![0.0; rows.rows()];
    mul_acc_mat_vec_csr(rows.view(), &known(rows.rows())[..], &mut b[..]);
    exec.flow(async |f: &Flow| solver.solve(f, rows, b, tolerance, iterations_max).await).await
}

/// 1/n, 2/n, ... 1.
fn known(n: usize) -> Vec<f64> {
    (1..=n).map(|i| i as f64 / n as f64).collect()
}

fn largest_error(x: &[f64]) -> f64 {
    x.iter().zip(known(x.len())).map(|(x, known)| (x - known).abs()).fold(0.0, f64::max)
}

fn read(path: &Path) -> Result<Rows, BoxError> {
    let advice = "(give a Matrix Market file of real numbers, or make one with --generate)";
    let entries = read_matrix_market::<f64, u32, _>(path).map_err(|error| format!("{}: {error} {advice}", path.display()))?;
    match entries.rows() == entries.cols() {
        true => Ok(entries.to_csr()),
        false => Err(format!("{}: the matrix is not square", path.display()).into()),
    }
}

/// The Laplace operator on a grid of `points` x `points`, with a border of zeros: 4 for each point, and -1
/// for each of its neighbours.
fn poisson(points: u32) -> TriMatI<f64, u32> {
    let n = (points * points) as usize;
    let mut entries = TriMatI::new((n, n));
    for point in 0..n {
        entries.add_triplet(point, point, 4.0);
        let (right, below) = (point + 1, point + points as usize);
        let neighbours = [(right % points as usize != 0).then_some(right), (below < n).then_some(below)];
        for neighbour in neighbours.into_iter().flatten() {
            entries.add_triplet(point, neighbour, -1.0);
            entries.add_triplet(neighbour, point, -1.0);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn the_solution_is_the_known_one_and_the_same_bits_everywhere() -> Result<(), BoxError> {
        let rows = read(Path::new(POISSON))?;
        let first = block_on(solve(&Executor::inline(), rows.clone(), 1e-10, 1000))?;
        assert!(first.is_converged && largest_error(&first.x) < 1e-8);
        let hosts = [1, 2, 8].map(|workers| Executor::builder().workers(workers).build());
        for exec in hosts.into_iter().chain((0..10).map(|seed| Ok(Executor::sim(seed)))) {
            let solution = block_on(solve(&exec?, rows.clone(), 1e-10, 1000))?;
            assert_eq!(solution.residuals, first.residuals);
            assert_eq!(solution.x[..], first.x[..]);
        }
        Ok(())
    }

    #[test]
    fn the_matrix_that_comes_along_is_what_generate_writes() -> Result<(), BoxError> {
        assert_eq!(read(Path::new(POISSON))?, poisson(20).to_csr());
        Ok(())
    }

    #[test]
    fn without_enough_iterations_it_says_so() -> Result<(), BoxError> {
        let solution = block_on(solve(&Executor::inline(), poisson(20).to_csr(), 1e-10, 5))?;
        assert_eq!((solution.is_converged, solution.residuals.len()), (false, 6));
        Ok(())
    }

    #[test]
    fn what_is_solved_already_takes_no_iteration() -> Result<(), BoxError> {
        let (solver, exec) = (Solver::new()?, Executor::inline());
        let zeros = vec![0.0; 9];
        let solution = exec.flow(async |f: &Flow| solver.solve(f, poisson(3).to_csr(), zeros, 1e-10, 9).await);
        assert_eq!(block_on(solution)?.residuals, [0.0]);
        Ok(())
    }
}
