//! Work that takes a known time, on any thread, in Rust and in C++: multiplications that each need the one
//! before. A shift keeps compilers from joining several into one.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The ns of all calls of [`Work::run_timed`].
static TIMED_NS: AtomicU64 = AtomicU64::new(0);

/// How many multiplications take 50 ns.
#[derive(Clone, Copy)]
pub(crate) struct Work(u64);

const UNIT_NS: f64 = 50.0;
const TIMED: u64 = 1 << 20;

impl Work {
    pub(crate) fn new(unit: u64) -> Self {
        Self(unit)
    }

    /// Measures the number, in the fastest of several tries.
    pub(crate) fn calibrated() -> Self {
        let time = |_| {
            let start = Instant::now();
            multiply(TIMED);
            start.elapsed().as_nanos() as f64
        };
        let fastest = (0..50).map(time).fold(f64::INFINITY, f64::min);
        Self((UNIT_NS * TIMED as f64 / fastest).round() as u64)
    }

    pub(crate) fn unit(self) -> u64 {
        self.0
    }

    /// Works for `units` times 50 ns.
    pub(crate) fn run(self, units: u64) {
        multiply(self.0 * units);
    }

    /// As [`Work::run`]. [`untimed_ns`] leaves its time out.
    pub(crate) fn run_timed(self, units: u64) {
        let start = Instant::now();
        self.run(units);
        TIMED_NS.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the ns that `units` units of work take now.
    pub(crate) fn takes_ns(self, units: u64) -> f64 {
        let time = |_| {
            let start = Instant::now();
            self.run(units);
            start.elapsed().as_nanos() as f64
        };
        (0..20).map(time).fold(f64::INFINITY, f64::min)
    }
}

/// Returns the ns that `all` takes, without those of [`Work::run_timed`].
pub(crate) fn untimed_ns(all: impl FnOnce()) -> f64 {
    let (start, timed) = (Instant::now(), TIMED_NS.load(Ordering::Relaxed));
    all();
    start.elapsed().as_nanos() as f64 - (TIMED_NS.load(Ordering::Relaxed) - timed) as f64
}

#[inline(never)]
fn multiply(count: u64) {
    let mut word = black_box(1_u64);
    for _ in 0..count {
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    }
    black_box(word);
}
