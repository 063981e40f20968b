//! Starts a test as ranks, with each `mpirun` that is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anabranch::comm::World;

/// Set for the processes that are ranks: a folder, in which each rank that ends well makes a file. The output
/// of several processes may be mixed.
const RANK: &str = "ANABRANCH_TEST_RANK";

/// A launcher that is installed.
pub(crate) struct Launcher {
    path: PathBuf,
    is_open_mpi: bool,
    /// Runs a rank.
    script: &'static str,
}

/// A rank that is killed is the child of this script, so its launcher does not hear of it before all is over:
/// that of MPICH now and then ends the other ranks, whatever it is told (seen in one of ten rounds on a busy
/// machine).
const RUN: &str = r#"
trap "" USR1
"$0" "$@" &
rank=$!
trap 'kill -KILL $rank' TERM
wait $rank
code=$?
looks=0
while [ $code -gt 128 ] && [ $looks -lt 3000 ] && ! [ -e "$ANABRANCH_TEST_RANK/.over" ]; do
    sleep 0.02
    looks=$((looks + 1))
done
exit $code
"#;
/// Lets the launcher hear of the end of a rank.
const RUN_IN_ITS_PLACE: &str = r#"exec "$0" "$@""#;
/// Says to the scripts that the test is over.
const OVER: &str = ".over";

/// How a launch has ended: what it has printed, and the number of ranks that ended well.
struct Launched {
    text: String,
    has_succeeded: bool,
    well: u32,
}

/// Runs `rank` in `ranks` processes, and checks that all succeed. `test` is the path of the test.
pub(crate) fn each_rank(ranks: u32, test: &str, rank: impl FnOnce(World)) {
    if is_rank() {
        let world = World::mpi().unwrap();
        assert_eq!(world.size(), ranks);
        let number = world.rank();
        rank(world);
        return note_well(number);
    }
    all(test, ranks, |launcher, ranks, test| {
        let Launched { text, has_succeeded, well } = launcher.launch(&[], (ranks, ranks), test, None);
        assert!(has_succeeded && well == ranks, "{}: {well} of {ranks} ranks: {text}", launcher.path.display());
    });
}

/// As [`each_rank`], for ranks that break their world. MPI may not be finalised then, and the launcher says
/// so.
pub(crate) fn each_rank_alone(ranks: u32, test: &str, rank: impl FnOnce(World)) {
    if is_rank() {
        keep_panics();
        let world = World::mpi().unwrap();
        let number = world.rank();
        rank(world);
        note_well(number);
        return wait_for(ranks);
    }
    all(test, ranks, |launcher, ranks, test| {
        let Launched { text, well, .. } = launcher.launch(launcher.go_on(), (ranks, ranks), test, None);
        assert_eq!(well, ranks, "{}: {text}", launcher.path.display());
    });
}

/// Notes that a rank has ended well.
pub(crate) fn note_well(rank: u32) {
    fs::write(folder().join(rank.to_string()), "").unwrap();
}

/// Waits until so many ranks have ended well, for at most five seconds: a launcher may end all when one ends.
pub(crate) fn wait_for(ranks: u32) {
    let begin = Instant::now();
    while count_well(&folder()) < ranks && begin.elapsed() < Duration::from_secs(5) {
        sleep(LOOK);
    }
}

/// Keeps what a panic says: a launcher that ends early does not print it.
pub(crate) fn keep_panics() {
    let file = folder().join(format!(".panic-{}", std::process::id()));
    std::panic::set_hook(Box::new(move |panic| fs::write(&file, panic.to_string()).unwrap()));
}

/// Sends a signal to this process.
pub(crate) fn signal(signal: &str) -> ! {
    note_stopped();
    let id = std::process::id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    loop {
        std::thread::park();
    }
}

/// Notes that this rank is going to be stopped, so that it is killed at the end.
fn note_stopped() {
    fs::write(folder().join(".stopped"), std::process::id().to_string()).unwrap();
}

/// Notes an event, for the other ranks.
pub(crate) fn note(event: &str) {
    fs::write(folder().join(format!(".note-{event}")), "").unwrap();
}

/// Waits until a rank has noted an event.
pub(crate) fn wait_for_note(event: &str) {
    let (begin, file) = (Instant::now(), folder().join(format!(".note-{event}")));
    while !file.exists() {
        assert!(begin.elapsed() < Duration::from_secs(30), "no rank has noted '{event}'");
        sleep(LOOK);
    }
}

fn folder() -> PathBuf {
    std::env::var_os(RANK).expect("only ranks call this").into()
}

/// Returns the number of ranks that have ended well.
fn count_well(folder: &Path) -> u32 {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| !name.to_string_lossy().starts_with('.')).count() as u32
}

/// The time between two looks at processes.
const LOOK: Duration = Duration::from_millis(2);

/// Waits until a launcher has ended, or until `is_over`, at most a minute.
fn wait(launched: &mut Child, is_over: impl Fn() -> bool) -> Option<ExitStatus> {
    let begin = Instant::now();
    loop {
        let status = launched.try_wait().unwrap();
        if status.is_some() || is_over() || begin.elapsed() > Duration::from_secs(60) {
            return status;
        }
        sleep(LOOK);
    }
}

/// Returns whether this process is a rank.
pub(crate) fn is_rank() -> bool {
    std::env::var_os(RANK).is_some()
}

/// Calls `with` for each launcher that is installed. Says so if there is none.
pub(crate) fn all(test: &str, ranks: u32, with: impl Fn(&Launcher, u32, &str)) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let open_mpi = find("mpirun.openmpi").map(|path| Launcher { path, is_open_mpi: true, script: RUN });
    let mpich = find("mpirun.mpich").map(|path| Launcher { path, is_open_mpi: false, script: RUN });
    let found: Vec<Launcher> = open_mpi.into_iter().chain(mpich).collect();
    if found.is_empty() {
        eprintln!("skipped: no mpirun.openmpi and no mpirun.mpich (packages openmpi-bin, mpich)");
    }
    found.iter().for_each(|launcher| with(launcher, ranks, test));
}

impl Launcher {
    /// Checks that all ranks but one end well, though that one does not. They get an environment variable.
    pub(crate) fn survives(&self, ranks: u32, test: &str, with: Option<(&str, String)>) {
        let Launched { text, well, .. } = self.launch(self.go_on(), (ranks, ranks - 1), test, with.clone());
        assert_eq!(well, ranks - 1, "{}, {with:?}: {text}", self.path.display());
    }

    /// As [`Launcher::survives`], where the launcher hears of it: that of Open MPI.
    pub(crate) fn survives_and_hears(&self, ranks: u32, test: &str, with: Option<(&str, String)>) {
        if self.is_open_mpi {
            let launcher = Self { path: self.path.clone(), script: RUN_IN_ITS_PLACE, ..*self };
            launcher.survives(ranks, test, with);
        }
    }

    /// Returns what lets the other ranks live when one has died.
    fn go_on(&self) -> &'static [&'static str] {
        if self.is_open_mpi { &["--enable-recovery"] } else { &["-disable-auto-cleanup"] }
    }

    fn launch(&self, more: &[&str], (ranks, expected): (u32, u32), test: &str, with: Option<(&str, String)>) -> Launched {
        static LAUNCHES: AtomicU32 = AtomicU32::new(0);
        let number = LAUNCHES.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("anabranch-ranks-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(&self.path);
        if self.is_open_mpi {
            // There may be fewer cores than ranks.
            command.args(["--allow-run-as-root", "--oversubscribe"]).env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        command.args(more).arg("-n").arg(ranks.to_string());
        command.args(["sh", "-c", self.script]).arg(std::env::current_exe().unwrap());
        let output = folder.join(".output");
        let (out, error) = (fs::File::create(&output).unwrap(), fs::File::options().append(true).open(&output).unwrap());
        command.args(["--exact", test, "--nocapture"]).env(RANK, &folder).envs(with).stdout(out).stderr(error);
        let mut launched = command.spawn().unwrap();
        let mut status = wait(&mut launched, || count_well(&folder) >= expected);
        fs::write(folder.join(OVER), "").unwrap();
        // A rank that is stopped would stay, and the launcher with it.
        if let Ok(process) = fs::read_to_string(folder.join(".stopped")) {
            let _ = Command::new("kill").args(["-KILL", &process]).stderr(Stdio::null()).status();
        }
        if status.is_none() {
            let begin = Instant::now();
            status = wait(&mut launched, || begin.elapsed() > Duration::from_secs(10));
            let _ = launched.kill();
            let _ = launched.wait();
        }
        // A launcher may end before its processes.
        let begin = Instant::now();
        while count_well(&folder) < expected && begin.elapsed() < Duration::from_secs(5) {
            sleep(LOOK);
        }
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
        let printed = files.filter(|file| file.file_name().to_string_lossy().starts_with('.'));
        let text = printed.map(|file| String::from_utf8_lossy(&fs::read(file.path()).unwrap()).into_owned()).collect::<Vec<_>>();
        let text = text.join("\n");
        let (well, has_succeeded) = (count_well(&folder), status.is_some_and(|status| status.success()));
        fs::remove_dir_all(&folder).unwrap();
        Launched { text, has_succeeded, well }
    }
}
