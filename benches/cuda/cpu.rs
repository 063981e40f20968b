//! The processor time of this process.

use std::fs;

/// Returns the processor time of the threads of this process, in nanoseconds, except for threads whose names
/// begin with `but`. None if the kernel does not report it. A thread that has ended is not counted.
pub(crate) fn on_core_ns(but: &str) -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").ok()?.flatten();
    let own = tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| !name.starts_with(but)));
    // A thread may end meanwhile.
    let times: Vec<u64> = own.filter_map(|task| parse(&fs::read_to_string(task.path().join("schedstat")).ok()?)).collect();
    if times.is_empty() { None } else { Some(times.iter().sum()) }
}

fn parse(schedstat: &str) -> Option<u64> {
    schedstat.split(' ').next()?.parse().ok()
}
