//! Where and when the figures were taken. What cannot be found out is said to be unknown.

use std::process::Command;
use std::{fs, thread};

/// The machine and the tools, as they were when the first figure was taken.
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    date: String,
    tools: String,
    load_before: String,
}

impl Machine {
    pub(crate) fn now() -> Self {
        let tools = [
            ("commit", first_line("git", &["describe", "--always", "--dirty"])),
            ("compilers", first_line("rustc", &["--version"])),
            ("and", first_line("c++", &["--version"])),
        ];
        Self {
            cpu: cpu(),
            cores: thread::available_parallelism().map_or(0, usize::from),
            date: first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            tools: tools.map(|(what, line)| format!("{what} {line}")).join(", "),
            load_before: load(),
        }
    }

    /// Returns the machine in two lines. The load average shows how much the figures can be trusted: this benchmark
    /// alone brings it to about its number of workers.
    pub(crate) fn text(&self) -> String {
        let Self { cpu, cores, date, tools, load_before } = self;
        format!("Machine: {cpu}, {cores} cores; load average {load_before} before, {} after. {date}, {tools}.", load())
    }
}

fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(": ")).map_or("unknown CPU", |(_, name)| name).into()
}

fn load() -> String {
    let averages = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    averages.split(' ').next().filter(|word| !word.is_empty()).unwrap_or("unknown").into()
}

fn first_line(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").into()
}
