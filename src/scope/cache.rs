//! How large the caches of this machine are.

use std::fs::read_to_string;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The bytes that the tiles of a batch in memory together should have: half of a core's L2 cache.
pub(super) fn cache_bytes() -> u64 {
    // The machine does not change, and no model depends on it.
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| l2_cache().unwrap_or(L2_CACHE).clamp(SMALLEST, LARGEST) / 2)
}

/// The L2 cache of a core where the system does not report one.
const L2_CACHE: u64 = 512 << 10;
/// Smaller tiles cost more than they gain; larger ones gain nothing.
const SMALLEST: u64 = 256 << 10;
const LARGEST: u64 = 2 << 20;

/// Returns the size of a core's L2 cache as Linux reports it. Cores that share one have a part each.
fn l2_cache() -> Option<u64> {
    let cpu = PathBuf::from("/sys/devices/system/cpu/cpu0");
    let mut caches = (0..8).map(|index| cpu.join(format!("cache/index{index}")));
    let read = |file: PathBuf| read_to_string(file).map(|text| text.trim().to_owned()).ok();
    let l2 = caches.find(|cache| read(cache.join("level")).is_some_and(|level| level == "2"))?;
    let kib: u64 = read(l2.join("size"))?.strip_suffix('K')?.parse().ok()?;
    let count = |file: PathBuf| read(file).and_then(|list| count(&list)).unwrap_or(1);
    let cores = count(l2.join("shared_cpu_list")) / count(cpu.join("topology/thread_siblings_list")).max(1);
    Some((kib << 10) / cores.max(1))
}

/// Returns how many CPUs a list such as `0-3,8` has.
fn count(list: &str) -> Option<u64> {
    let of_range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.split(',').map(of_range).sum()
}

#[cfg(test)]
mod tests {
    use super::count;

    // Seen to fail with ranges that leave their last CPU out.
    #[test]
    fn a_list_of_cpus_is_counted() {
        let lists = ["0", "0-3", "0-1,8-9,12", "", "3-1", "x"];
        assert_eq!(lists.map(count), [Some(1), Some(4), Some(5), None, None, None]);
    }
}
