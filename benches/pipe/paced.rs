//! The number of items of a figure: as many as fill a given time. A pass that is not timed determines it.

use std::time::{Duration, Instant};

use crate::chain::Chain;

/// As in `peers/tbb_pipeline.cpp`.
const ITEMS_MIN: u64 = 10_000;
const WORKING_ITEMS_MIN: u64 = 100;
const ITEMS_MAX: u64 = 5_000_000;

/// Returns the ns per item of `run`, which runs a number of items and returns the sum of their results.
pub(crate) fn item_ns(chain: &Chain, target: Duration, mut run: impl FnMut(u64) -> u64) -> f64 {
    let least = if chain.work_ns == 0 { ITEMS_MIN } else { WORKING_ITEMS_MIN };
    let mut timed = |items| {
        let start = Instant::now();
        let sum = run(items);
        let took = start.elapsed().as_nanos() as f64;
        chain.check(items, sum);
        took / items as f64
    };
    let items = (target.as_nanos() as f64 / timed(least)) as u64;
    timed(items.clamp(least, ITEMS_MAX))
}

/// Keeps this core busy until `work_ns` have passed on the clock that `peers/tbb_pipeline.cpp` watches too.
pub(crate) fn spin(work_ns: u64) {
    if work_ns == 0 {
        return;
    }
    let end = Instant::now() + Duration::from_nanos(work_ns);
    // No pause in between: it would let the work overshoot.
    while Instant::now() < end {}
}
