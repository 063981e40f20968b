//! Conjugate gradients on several ranks: a square membrane under an even load, whose grid is divided among
//! the ranks by rows.
//!
//! ```sh
//! cargo run --example ranks                                   # two ranks: two threads of this process
//! cargo run --example ranks -- --size 200 --ranks 4 --flow
//! cargo build --features mpi --example ranks
//! mpirun -n 4 target/debug/examples/ranks --mpi               # four ranks: four processes (Open MPI, on
//!                                                             # fewer cores: with --oversubscribe)
//! cargo run --example ranks -- --graph solver.json            # what each of four ranks does, as a picture
//! cargo run -p anabranch-tool -- plan solver.json --ranks 4 -o solver.svg
//! ```
//!
//! Read `graph.rs` first: the solver is one graph, with a loop that communicates. `flow.rs` is the same
//! solver as async code. `grid.rs` has what a rank computes by itself. The output has no bit that depends on
//! the number of ranks, on the solver, or on MPI.

mod flow;
mod graph;
pub(crate) mod grid;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, thread};

use anabranch::comm::World;
use anabranch::{BoxError, Executor, Flow};
use clap::Parser;
use futures::executor::block_on;

use grid::{Part, Solution};

/// Finds the shape of a square membrane under an even load, by conjugate gradients on several ranks.
#[derive(Debug, Parser)]
#[command(name = "ranks")]
struct Args {
    /// The grid has N x N points
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=4096))]
    size: u32,

    /// Ranks, as threads of this process: 1, 2, 4 or 8
    #[arg(long, value_name = "R", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    ranks: u32,

    /// This process is one of the ranks that mpirun has started
    #[arg(long, conflicts_with = "ranks")]
    mpi: bool,

    /// Solve with a flow instead of a graph
    #[arg(long)]
    flow: bool,

    /// Solve nothing: write the graph as JSON, for `anabranch plan FILE --ranks 4`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mpi", "flow"])]
    graph: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), BoxError> {
    if let Some(path) = &args.graph {
        let part = Part::new(args.size, &World::local(args.ranks)?[0])?;
        let written = fs::write(path, graph::shape(part).to_json());
        return written.map_err(|error| format!("{}: {error}", path.display()).into());
    }
    let worlds = if args.mpi { vec![mpi()?] } else { World::local(args.ranks)? };
    if args.mpi {
        check_size(&worlds[0], args.size)?;
    }
    let is_first = worlds[0].rank() == 0;
    if is_first {
        let are = if args.mpi { "processes of MPI" } else { "threads of this process" };
        eprintln!("ranks: {}, {are}", worlds[0].size());
    }
    let solutions = solve(worlds, args.size, args.flow)?;
    if is_first {
        print(&solutions[0]);
    }
    Ok(())
}

/// Checks that all processes have the same size: ranks compare their graphs, but not what bodies have
/// captured.
fn check_size(world: &World, size: u32) -> Result<(), BoxError> {
    let sizes = block_on(Executor::inline().flow(async |f: &Flow| {
        let size = f.value("size", size);
        f.get(&f.all_gather(world, "sizes", &size)).await
    }))?;
    let Some(rank) = sizes.iter().position(|other| *other != sizes[0]) else { return Ok(()) };
    Err(format!("rank 0 has --size {}, and rank {rank} has --size {}: give all the same", sizes[0], sizes[rank]).into())
}

/// Solves on these ranks, each in a thread of its own. Returns what each has found.
pub(crate) fn solve(worlds: Vec<World>, size: u32, as_flow: bool) -> Result<Vec<Solution>, BoxError> {
    let rank = |world: World| -> Result<Solution, BoxError> {
        let (exec, part) = (Executor::inline(), Part::new(size, &world)?);
        let solution =
            if as_flow { block_on(flow::solve(&exec, &world, part)) } else { block_on(graph::solve(&exec, &world, part)) };
        Ok(solution?)
    };
    thread::scope(|threads| {
        let ranks: Vec<_> = worlds.into_iter().map(|world| threads.spawn(|| rank(world))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank does not panic")).collect()
    })
}

fn print(solution: &Solution) {
    let last = solution.residuals.len() - 1;
    println!("iteration  residual");
    for (iteration, residual) in solution.residuals.iter().enumerate() {
        if iteration % 10 == 0 || iteration == last {
            println!("{iteration:>9}  {residual:e}");
        }
    }
    println!("{last} iterations; the membrane sinks by {:e} at most", solution.largest);
}

#[cfg(feature = "mpi")]
fn mpi() -> Result<World, BoxError> {
    Ok(World::mpi()?)
}

#[cfg(not(feature = "mpi"))]
fn mpi() -> Result<World, BoxError> {
    Err("--mpi: this program was built without MPI. Add `--features mpi` to the options of cargo".into())
}
