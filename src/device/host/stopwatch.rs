//! A clock for short work: the processor's time counter, if the operating system trusts it. Reading the clock
//! of std takes three times as long.
//!
//! The time only decides which thread does some work. So it need not be exact. A thread that moves between
//! cores whose counters differ a little, or a virtual machine that moves to another host, gets a wrong time,
//! but never a panic.

use std::ops::Range;
// Not the atomics of `sync`: models have no counter.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The time of a piece of work.
pub(crate) struct Stopwatch(Start);

enum Start {
    /// The counter, if its pace is known.
    Count(u64),
    Time(Instant),
}

/// The ns from one count to the next, times 2^32. It is 0 until it is measured, and remains 0 if there is no
/// trusted counter.
static PACE: AtomicU64 = AtomicU64::new(0);

/// The range of times over which the pace is measured. During a longer one the machine may have slept.
const MEASURED: Range<Duration> = Duration::from_micros(250)..Duration::from_millis(10);
/// The time of a measurement is at least this many times longer than the uncertainty of its ends.
const EXACT: u64 = 100;
/// The possible paces: of counters between 50 MHz and 20 GHz.
const POSSIBLE: Range<u128> = (1 << 32) / 20..20 << 32;

impl Stopwatch {
    #[inline]
    pub(crate) fn start() -> Self {
        // ORDERING: Relaxed: the pace guards no other data.
        Self(if PACE.load(Ordering::Relaxed) > 0 { Start::Count(counter::read()) } else { start_by_time() })
    }

    /// Returns the ns since the start.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        match self.0 {
            Start::Count(start) => {
                let counts = counter::read().saturating_sub(start);
                // ORDERING: Relaxed: the pace guards no other data.
                ((u128::from(counts) * u128::from(PACE.load(Ordering::Relaxed))) >> 32) as u64
            }
            Start::Time(start) => start.elapsed().as_nanos() as u64,
        }
    }
}

/// A moment by both clocks. The counter was read before and after the clock of std.
#[derive(Clone, Copy)]
struct Moment {
    before: u64,
    time: Instant,
    after: u64,
}

impl Moment {
    fn now() -> Self {
        let before = counter::read();
        Self { before, time: Instant::now(), after: counter::read() }
    }

    /// Returns the pace from this moment to another one, if the clocks were read close enough together.
    fn pace(self, until: Self) -> Option<u64> {
        let counts = until.before.checked_sub(self.after).filter(|&counts| counts > 0)?;
        let is_exact = |moment: Self| moment.after.saturating_sub(moment.before) < counts / EXACT;
        let pace = ((until.time - self.time).as_nanos() << 32) / u128::from(counts);
        (is_exact(self) && is_exact(until) && POSSIBLE.contains(&pace)).then_some(pace as u64)
    }
}

/// Begins to measure the pace. Otherwise the first start does.
pub(super) fn measure_pace() {
    let _ = start_by_time();
}

#[cold]
fn start_by_time() -> Start {
    static IS_TRUSTED: OnceLock<bool> = OnceLock::new();
    static BEGIN: Mutex<Option<Moment>> = Mutex::new(None);
    let now = Instant::now();
    if *IS_TRUSTED.get_or_init(counter::is_trusted)
        && let Ok(mut begin) = BEGIN.try_lock()
    {
        match begin.map(|begin| now - begin.time) {
            Some(measured) if measured < MEASURED.start => {}
            Some(measured) if MEASURED.contains(&measured) => match begin.take().and_then(|begin| begin.pace(Moment::now())) {
                // ORDERING: Relaxed: the pace guards no other data.
                Some(pace) => PACE.store(pace, Ordering::Relaxed),
                None => *begin = Some(Moment::now()),
            },
            _ => *begin = Some(Moment::now()),
        }
    }
    Start::Time(now)
}

#[cfg(all(target_arch = "x86_64", not(target_env = "sgx"), not(miri), not(anabranch_loom)))]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc, CpuidResult};

    /// Returns true if the counter has a constant pace in all states of the processor ("invariant TSC"), and
    /// the operating system has found no difference between cores.
    pub(super) fn is_trusted() -> bool {
        const EXTENDED: u32 = 0x8000_0000;
        const POWER: u32 = EXTENDED + 7;
        const INVARIANT: u32 = 1 << 8;
        let is_invariant = cpuid(EXTENDED).eax >= POWER && cpuid(POWER).edx & INVARIANT != 0;
        is_invariant && is_clock_of_the_system()
    }

    // Newer versions of Rust declare it safe.
    #[allow(unused_unsafe)]
    fn cpuid(leaf: u32) -> CpuidResult {
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { __cpuid(leaf) }
    }

    /// Linux uses another clock source if it does not trust the counter.
    fn is_clock_of_the_system() -> bool {
        const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        const BY_COUNTER: [&str; 3] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];
        let is_by_counter = |source: String| BY_COUNTER.contains(&source.trim());
        !cfg!(target_os = "linux") || std::fs::read_to_string(SOURCE).is_ok_and(is_by_counter)
    }

    /// Reads the counter. The processor may execute the read some instructions earlier or later.
    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has the counter. In a program that forbids itself to read it
        // (PR_SET_TSC of Linux), the read ends the program, as does a read of the system's clock.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(target_env = "sgx"), not(miri), not(anabranch_loom))))]
mod counter {
    pub(super) fn is_trusted() -> bool {
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

    /// Returns how many of a hundred tries agree with the system's clock. An interruption between the reads
    /// of both clocks makes a few differ.
    fn right_of_a_hundred() -> usize {
        let is_right = |_: &u32| {
            let stopwatch = Stopwatch::start();
            let start = spin(Duration::from_micros(200));
            let (shown, real) = (stopwatch.ns(), start.elapsed().as_nanos() as u64);
            shown >= 200_000 && shown.abs_diff(real) < real / 20
        };
        (0..100).filter(is_right).count()
    }

    // Seen to fail with half the pace.
    #[test]
    fn it_shows_the_time_of_the_system_before_and_after_its_pace_is_known() {
        assert!(right_of_a_hundred() >= 50, "at first");
        // The pace is measured again until no interruption disturbs the measurement.
        while counter::is_trusted() && PACE.load(Ordering::Relaxed) == 0 {
            let _ = Stopwatch::start();
        }
        assert!(right_of_a_hundred() >= 50, "by the counter");
    }

    // Seen to fail without each of the checks, except the one of a counter that went back: its pace is
    // impossible, too.
    #[test]
    fn a_pace_that_is_measured_badly_is_none() {
        let time = Instant::now();
        let moment = |us: u64, before: u64, after: u64| Moment { before, time: time + Duration::from_micros(us), after };
        let begin = moment(0, 1_000, 1_100);
        assert_eq!(begin.pace(moment(1_000, 1_001_100, 1_001_200)), Some(1 << 32), "one count is one ns");
        assert_eq!(begin.pace(moment(1_000, 1_001_100, 1_021_100)), None, "interrupted at the end");
        assert_eq!(moment(0, 1_000, 21_100).pace(moment(1_000, 1_021_100, 1_021_200)), None, "at the beginning");
        assert_eq!(begin.pace(moment(1_000, 900, 1_000)), None, "it went back");
        assert_eq!(begin.pace(moment(1_000, 40_001_100, 40_001_200)), None, "40 GHz");
        assert_eq!(begin.pace(moment(1_000_000, 10_001_100, 10_001_200)), None, "10 MHz");
    }
}
