//! Conjugate gradients on ranks: the same bits for all numbers of ranks, for both solvers, and over MPI.

use anabranch::BoxError;
use anabranch::comm::World;

#[path = "../ranks/main.rs"]
#[allow(dead_code)]
mod ranks;

#[test]
fn residuals_are_the_same_bits_for_all_numbers_of_ranks() -> Result<(), BoxError> {
    // Seen to fail when each rank adds up its own blocks first, as one sum.
    let first = ranks::solve(World::local(1)?, 30, false)?.remove(0);
    for (size, as_flow) in [(1, true), (2, false), (2, true), (4, false), (4, true)] {
        for solution in ranks::solve(World::local(size)?, 30, as_flow)? {
            assert_eq!(solution, first, "on {size} ranks, as a flow: {as_flow}");
        }
    }
    Ok(())
}

#[test]
fn residuals_fall_to_the_tolerance() -> Result<(), BoxError> {
    // Seen to fail when the graph's loop compares r · r itself with the tolerance.
    let residuals = ranks::solve(World::local(2)?, 30, false)?.remove(0).residuals;
    let (last, before) = residuals.split_last().expect("there is one before the first iteration");
    let limit = ranks::grid::TOLERANCE * residuals[0];
    assert!(*last <= limit && before.iter().all(|residual| *residual > limit));
    // Conjugate gradients reduce another norm in each iteration, and |r| only after some.
    let tenths: Vec<f64> = residuals.iter().skip(10).step_by(10).copied().collect();
    assert!(tenths.len() > 4 && tenths.is_sorted_by(|before, behind| before > behind), "{tenths:?}");
    Ok(())
}

#[test]
fn the_membrane_has_its_known_shape() -> Result<(), BoxError> {
    // Seen to fail with a load of 1 / n² instead of 1 / (n + 1)².
    for as_flow in [false, true] {
        let largest = ranks::solve(World::local(4)?, 63, as_flow)?.remove(0).largest;
        // Of the equation -Δu = 1 in a unit square.
        assert!((largest - 0.073_671).abs() < 1e-4, "{largest}");
    }
    Ok(())
}

#[test]
fn ranks_that_cannot_share_the_blocks_say_so() -> Result<(), BoxError> {
    // Seen to fail without the check.
    let error = ranks::solve(World::local(3)?, 30, false).expect_err("8 is no multiple of 3");
    assert_eq!(error.to_string(), "3 ranks cannot share 8 blocks of rows equally: use 1, 2, 4 or 8 ranks");
    Ok(())
}

#[cfg(feature = "mpi")]
mod over_mpi {
    use std::path::PathBuf;
    use std::process::Command;

    /// The launchers, each with arguments for more ranks than cores.
    const LAUNCHERS: [(&str, &[&str]); 2] =
        [("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"]), ("mpirun.mpich", &[])];

    #[test]
    fn processes_print_the_same_text_as_threads() {
        // Seen to fail with an all-reduce of the sums: four ranks of Open MPI add them in another order.
        let launchers = installed();
        for (method, ranks) in [("graph", "1"), ("graph", "2"), ("graph", "4"), ("flow", "1"), ("flow", "2"), ("flow", "4")] {
            let arguments = ["--size", "20"].into_iter().chain((method == "flow").then_some("--flow"));
            let threads = text(Command::new(example()).args(arguments.clone()).args(["--ranks", ranks]));
            assert!(threads.contains("the membrane sinks by"), "{threads}");
            for (launcher, options) in &launchers {
                let mut mpirun = Command::new(launcher);
                mpirun.args(*options).args(["-n", ranks]).arg(example()).args(arguments.clone()).arg("--mpi");
                mpirun.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env("OMPI_MCA_btl_base_warn_component_unused", "0");
                assert_eq!(text(&mut mpirun), threads, "{mpirun:?}");
            }
        }
    }

    /// Returns the launchers that are installed. Says so if there is none.
    fn installed() -> Vec<(PathBuf, &'static [&'static str])> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let find = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
        let found: Vec<_> = LAUNCHERS.iter().filter_map(|(name, options)| Some((find(name)?, *options))).collect();
        if found.is_empty() {
            eprintln!("skipped: no mpirun.openmpi and no mpirun.mpich (packages openmpi-bin, mpich)");
        }
        found
    }

    /// Returns the path of the example, which cargo builds for the tests of this package.
    fn example() -> PathBuf {
        let test = std::env::current_exe().expect("a test has a path");
        let example = test.ancestors().nth(2).expect("it is in `deps`").join("examples/ranks");
        assert!(example.is_file(), "{} is missing: cargo build --features mpi --example ranks", example.display());
        example
    }

    fn text(command: &mut Command) -> String {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("the example prints text")
    }
}
