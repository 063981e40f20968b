//! How large the caches of this machine are.

use std::fs::read_to_string;
use std::sync::OnceLock;

/// The bytes that the tiles of a batch in memory together should have: half of a core's second cache.
pub(super) fn cache_bytes() -> u64 {
    // The machine does not change, and no model depends on it.
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| second_cache().unwrap_or(SECOND_CACHE).clamp(SMALLEST, LARGEST) / 2)
}

/// The second cache of a machine that does not tell.
const SECOND_CACHE: u64 = 512 << 10;
/// Smaller tiles cost more than they gain; larger ones gain nothing.
const SMALLEST: u64 = 256 << 10;
const LARGEST: u64 = 2 << 20;

/// Returns the size of a core's second cache, as Linux tells it: `1024K`.
fn second_cache() -> Option<u64> {
    let of_level = |level: &str| {
        let caches = (0..8).map(|index| format!("/sys/devices/system/cpu/cpu0/cache/index{index}"));
        caches.into_iter().find(|cache| read_to_string(format!("{cache}/level")).is_ok_and(|found| found.trim() == level))
    };
    let size = read_to_string(format!("{}/size", of_level("2")?)).ok()?;
    let kib: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
    Some(kib << 10)
}
