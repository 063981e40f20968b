//! Starts a test as ranks, with each `mpirun` that is installed.

use std::path::PathBuf;
use std::process::Command;

use anabranch::comm::World;

/// Set for the processes that are ranks.
const RANK: &str = "ANABRANCH_TEST_RANK";

/// A launcher that is installed.
pub(crate) struct Launcher {
    path: PathBuf,
    is_open_mpi: bool,
}

/// What a launch has printed.
pub(crate) struct Launched {
    pub(crate) text: String,
    pub(crate) has_succeeded: bool,
}

/// Runs `rank` in `ranks` processes, and checks that all succeed. `test` is the path of the test.
pub(crate) fn each_rank(ranks: u32, test: &str, rank: impl FnOnce(World)) {
    if is_rank() {
        let world = World::mpi().unwrap();
        assert_eq!(world.size(), ranks);
        return rank(world);
    }
    all(test, ranks, |launcher, ranks, test| {
        let Launched { text, has_succeeded } = launcher.launch(&[], ranks, test);
        let passed = text.matches("test result: ok. 1 passed").count();
        assert!(has_succeeded && passed == ranks as usize, "{}: {text}", launcher.path.display());
    });
}

/// Returns whether this process is a rank.
pub(crate) fn is_rank() -> bool {
    std::env::var_os(RANK).is_some()
}

/// Calls `with` for each launcher that is installed. Says so if there is none.
pub(crate) fn all(test: &str, ranks: u32, with: impl Fn(&Launcher, u32, &str)) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let open_mpi = find("mpirun.openmpi").map(|path| Launcher { path, is_open_mpi: true });
    let mpich = find("mpirun.mpich").map(|path| Launcher { path, is_open_mpi: false });
    let found: Vec<Launcher> = open_mpi.into_iter().chain(mpich).collect();
    if found.is_empty() {
        eprintln!("skipped: no mpirun.openmpi and no mpirun.mpich (packages openmpi-bin, mpich)");
    }
    found.iter().for_each(|launcher| with(launcher, ranks, test));
}

impl Launcher {
    /// Checks that all ranks but one end well, though that one does not.
    pub(crate) fn survives(&self, ranks: u32, test: &str) {
        let go_on: &[&str] = if self.is_open_mpi { &["--enable-recovery"] } else { &["-disable-auto-cleanup"] };
        let Launched { text, .. } = self.launch(go_on, ranks, test);
        let survived = text.matches("has survived").count();
        assert_eq!(survived, ranks as usize - 1, "{}: {text}", self.path.display());
    }

    fn launch(&self, more: &[&str], ranks: u32, test: &str) -> Launched {
        let mut command = Command::new(&self.path);
        if self.is_open_mpi {
            // There may be fewer cores than ranks.
            command.args(["--allow-run-as-root", "--oversubscribe"]).env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command.args(more).arg("-n").arg(ranks.to_string()).arg(std::env::current_exe().unwrap());
        let output = command.args(["--exact", test, "--nocapture"]).env(RANK, "1").output().unwrap();
        let text = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Launched { text, has_succeeded: output.status.success() }
    }
}
