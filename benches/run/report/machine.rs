//! Where and when the figures were taken. What cannot be found out is said to be unknown.

use std::process::Command;
use std::{fs, thread};

/// The machine and the tools, as they were when the first figure was taken.
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    date: String,
    tools: String,
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
        }
    }

    /// Returns the machine in one line.
    pub(crate) fn text(&self) -> String {
        let Self { cpu, cores, date, tools } = self;
        format!("Machine: {cpu}, {cores} cores. {date}, {tools}.")
    }
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
