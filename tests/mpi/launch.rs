//! Starts a test as ranks, with each `mpirun` that is installed.

use std::path::PathBuf;
use std::process::{Command, Output};

use anabranch::comm::World;

/// Set for the processes that are ranks.
const RANK: &str = "ANABRANCH_TEST_RANK";

/// The launchers, each with arguments for more ranks than cores.
const LAUNCHERS: [(&str, &[&str]); 2] = [("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"]), ("mpirun.mpich", &[])];

/// Runs `rank` in `ranks` processes, and checks that all succeed. `test` is the path of the test.
pub(crate) fn each_rank(ranks: u32, test: &str, rank: impl FnOnce(World)) {
    if std::env::var_os(RANK).is_some() {
        let world = World::mpi().unwrap();
        assert_eq!(world.size(), ranks);
        return rank(world);
    }
    for (launcher, arguments) in installed() {
        let output = launch(&launcher, arguments, ranks, test);
        let text = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {}\n{text}", launcher.display(), output.status);
        let passed = text.matches("test result: ok. 1 passed").count();
        assert_eq!(passed, ranks as usize, "{}: not all ranks have run the test\n{text}", launcher.display());
    }
}

/// Returns the launchers that are installed. Says so if there is none.
pub(crate) fn installed() -> Vec<(PathBuf, &'static [&'static str])> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let found: Vec<_> = LAUNCHERS.iter().filter_map(|(name, arguments)| Some((find(name)?, *arguments))).collect();
    if found.is_empty() {
        eprintln!("skipped: no mpirun.openmpi and no mpirun.mpich (packages openmpi-bin, mpich)");
    }
    found
}

fn launch(launcher: &PathBuf, arguments: &[&str], ranks: u32, test: &str) -> Output {
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new(launcher);
    command.args(arguments).arg("-n").arg(ranks.to_string()).arg(exe).args(["--exact", test, "--nocapture"]);
    command.env(RANK, "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env("OMPI_MCA_btl_base_warn_component_unused", "0");
    command.output().unwrap()
}
