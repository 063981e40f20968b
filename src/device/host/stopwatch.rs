//! A clock for short work: the processor's counter of time, if it has one whose pace never changes. A read of
//! std's clock takes three times as long.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time of a piece of work.
pub(crate) struct Stopwatch(Start);

enum Start {
    /// The counter, where its pace is known.
    Count(u64),
    Time(Instant),
}

/// The ns from one count to the next, times 2^32; 0 until it is measured, and for good if there is no
/// counter.
static PACE: AtomicU64 = AtomicU64::new(0);

/// The pace is measured over at least this time.
const MEASURED: Duration = Duration::from_micros(250);
/// It is measured again later if the thread was interrupted for more than a 1,000th of the time meanwhile.
const EXACT: u64 = 1_000;

impl Stopwatch {
    #[inline]
    pub(crate) fn start() -> Self {
        // ORDERING: Relaxed: it stands for itself.
        Self(if PACE.load(Ordering::Relaxed) > 0 { Start::Count(counter::read()) } else { start_by_time() })
    }

    /// Returns the ns since the start.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        match self.0 {
            Start::Count(start) => {
                let counts = counter::read().saturating_sub(start);
                (u128::from(counts) * u128::from(PACE.load(Ordering::Relaxed)) >> 32) as u64
            }
            Start::Time(start) => start.elapsed().as_nanos() as u64,
        }
    }
}

/// When the counter was first read, and what it showed, if it can be used.
static ORIGIN: OnceLock<Option<(Instant, u64)>> = OnceLock::new();

/// Begins to measure the pace. Without this the first start does.
pub(super) fn measure_pace() {
    ORIGIN.get_or_init(|| counter::is_steady().then(|| (Instant::now(), counter::read())));
}

#[cold]
fn start_by_time() -> Start {
    let now = Instant::now();
    match ORIGIN.get() {
        Some(&Some(origin)) if now - origin.0 >= MEASURED => set_pace(origin),
        Some(_) => {}
        None => measure_pace(),
    }
    Start::Time(now)
}

fn set_pace((origin, first): (Instant, u64)) {
    let (before, time, after) = (counter::read(), origin.elapsed(), counter::read());
    let counts = before.saturating_sub(first);
    if counts > 0 && after.saturating_sub(before) < counts / EXACT {
        let pace = (time.as_nanos() << 32) / u128::from(counts);
        // ORDERING: Relaxed, as above. Several threads may measure it: each value is right.
        PACE.store(pace as u64, Ordering::Relaxed);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(anabranch_loom)))]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// Returns whether the counter counts at one pace, whatever the processor does ("invariant TSC").
    pub(super) fn is_steady() -> bool {
        const EXTENDED: u32 = 0x8000_0000;
        const POWER: u32 = EXTENDED + 7;
        const INVARIANT: u32 = 1 << 8;
        __cpuid(EXTENDED).eax >= POWER && __cpuid(POWER).edx & INVARIANT != 0
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has the counter.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(anabranch_loom))))]
mod counter {
    pub(super) fn is_steady() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(time: Duration) -> Instant {
        let start = Instant::now();
        while start.elapsed() < time {}
        start
    }

    #[test]
    fn it_shows_the_time_of_the_system_before_and_after_its_pace_is_known() {
        let tries = || {
            (0..100).map(|_| {
                let stopwatch = Stopwatch::start();
                let start = spin(Duration::from_micros(200));
                (stopwatch.ns(), start.elapsed().as_nanos() as u64)
            })
        };
        // An interruption between two reads makes a few tries differ.
        let is_right = |(shown, real): (u64, u64)| shown >= 200_000 && shown.abs_diff(real) < real / 50;
        assert!(tries().filter(|&both| is_right(both)).count() >= 50, "at first");
        spin(2 * MEASURED);
        let _ = (0..100).map(|_| Stopwatch::start()).count();
        assert_eq!(PACE.load(Ordering::Relaxed) > 0, counter::is_steady());
        assert!(tries().filter(|&both| is_right(both)).count() >= 50, "by the counter");
    }
}
