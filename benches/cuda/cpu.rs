//! The time of this process on cores.

use std::fs;

/// Returns the nanoseconds that threads of this process have had a core, without those whose names begin with
/// `but`. None if the kernel does not say. A thread that has ended is no longer counted.
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
