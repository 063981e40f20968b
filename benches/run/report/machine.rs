//! The place and time of the measurements. Facts that cannot be determined are reported as unknown.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use std::{fs, hint, thread};

/// Round trips of a cache line between two threads, and how often that many are timed.
const TRIPS: u32 = 2_000;
const BATCHES: u32 = 50;

/// The machine and the tools, as they were when the first figure was taken.
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    date: String,
    tools: String,
    core_to_core_ns: f64,
    times: Option<Times>,
}

/// The use of the time of all cores since the machine was started, in the kernel's unit.
#[derive(Clone, Copy)]
struct Times {
    used: f64,
    /// Time that was wanted, but that the host gave to other machines.
    stolen: f64,
}

impl Times {
    /// None if the kernel does not report it.
    fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let times: Vec<f64> = text.lines().next()?.split_whitespace().skip(1).map_while(|time| time.parse().ok()).collect();
        let [user, nice, system, _, _, irq, soft_irq, stolen, ..] = times[..] else { return None };
        Some(Self { used: user + nice + system + irq + soft_irq, stolen })
    }

    /// Returns the share of the time wanted since then that the host gave to other machines.
    fn stolen_since(self) -> Option<f64> {
        let now = Self::now()?;
        let stolen = now.stolen - self.stolen;
        Some(stolen / (stolen + now.used - self.used).max(1.0))
    }
}

impl Machine {
    pub(crate) fn now() -> Self {
        let tools = [
            format!("commit {}", first_line("git", &["describe", "--always", "--dirty"])),
            first_line("rustc", &["--version"]),
            first_line("c++", &["--version"]),
            format!("oneTBB {}", first_line("pkg-config", &["--modversion", "tbb"])),
        ];
        Self {
            cpu: cpu(),
            cores: thread::available_parallelism().map_or(0, usize::from),
            date: first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            tools: tools.join(", "),
            core_to_core_ns: core_to_core_ns(),
            times: Times::now(),
        }
    }

    /// Returns the machine in three sentences. The distance of its cores determines the cost of a second
    /// worker. A virtual machine's cores may move during a measurement.
    pub(crate) fn text(&self) -> String {
        let Self { cpu, cores, date, tools, core_to_core_ns: before, times } = self;
        let stolen =
            times.and_then(Times::stolen_since).map_or("an unknown part".into(), |share| format!("{:.1} %", 100.0 * share));
        let after = core_to_core_ns();
        format!(
            "Machine: {cpu}, {cores} cores. {date}, {tools}. A cache line took {before:.0} ns from core to core before, {after:.0} ns after. \
             Of the time that its cores were wanted for, other machines of its host had {stolen}."
        )
    }
}

/// Returns the shortest time in which a cache line goes from one core to another, in ns.
///
/// The shortest: a batch in which one of the threads was interrupted says nothing about the cores.
pub(crate) fn core_to_core_ns() -> f64 {
    let turn = AtomicU32::new(0);
    // ORDERING: no memory but the turn itself is handed over. The thread that timed the batches reads them.
    let await_turn = |number| {
        while turn.load(Ordering::Relaxed) != number {
            hint::spin_loop()
        }
    };
    let shortest = thread::scope(|scope| {
        scope.spawn(|| {
            for trip in 0..TRIPS * BATCHES {
                await_turn(2 * trip + 1);
                turn.store(2 * trip + 2, Ordering::Relaxed);
            }
        });
        let batch = |batch| {
            let start = Instant::now();
            for trip in batch * TRIPS..(batch + 1) * TRIPS {
                turn.store(2 * trip + 1, Ordering::Relaxed);
                await_turn(2 * trip + 2);
            }
            start.elapsed().as_nanos() as f64
        };
        (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
    });
    shortest / f64::from(2 * TRIPS)
}

fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(": ")).map_or("unknown CPU", |(_, name)| name).into()
}

fn first_line(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").into()
}
