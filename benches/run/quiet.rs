//! Repeats measurements that other processes disturbed.
//!
//! The decision depends on the machine's load only, never on the figure, so it favours no peer. The load
//! includes that of a virtual machine's neighbours: if one of them uses the other half of a core, each
//! instruction takes up to 1.6 times as long. A probe is a piece of work whose time shows that.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// The share of the machine's time used by other processes above which a figure is disturbed. One busy
/// process is 0.5 of two cores.
const OTHERS_MAX: f64 = 0.15;
/// The kernel counts whole ticks, of the machine and of each process.
const DOUBT_TICKS: f64 = 2.0;
const ATTEMPTS_MAX: usize = 5;
/// The largest accepted slowdown of a core while a figure is taken.
const SLOWED_MAX: f64 = 0.15;
/// How long a figure waits until all cores are fast.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it first searches for the shortest time.
const REFERENCE: Duration = Duration::from_secs(3);
/// Between two probes of a wait.
const PAUSE: Duration = Duration::from_millis(5);

/// The measurements that had the machine to themselves.
pub(crate) struct Quiet {
    attempts_max: usize,
    /// None if figures are to be quick, without waits.
    probe: Option<Probe>,
    pub(crate) taken: usize,
    /// Figures that were disturbed at the last attempt too.
    pub(crate) disturbed: usize,
}

impl Default for Quiet {
    fn default() -> Self {
        Self::with_attempts(ATTEMPTS_MAX)
    }
}

impl Quiet {
    /// A figure is measured at most `attempts_max` times.
    pub(crate) fn with_attempts(attempts_max: usize) -> Self {
        Self { attempts_max, probe: (attempts_max > 1).then(Probe::new), taken: 0, disturbed: 0 }
    }

    /// Returns the result of `measure`, which is called again if other processes used the machine meanwhile.
    pub(crate) fn take<T>(&mut self, mut measure: impl FnMut() -> Option<T>) -> Option<T> {
        let mut attempts = 0;
        let (figure, is_disturbed) = loop {
            attempts += 1;
            let was_slowed = self.probe.as_mut().is_some_and(|probe| !probe.waits_for_fast_cores());
            let start = Ticks::now();
            let figure = measure()?;
            let end = Ticks::now();
            let is_busy = start.zip(end).is_some_and(|(start, end)| end.is_disturbed_since(&start));
            let is_slowed = was_slowed || self.probe.as_mut().is_some_and(|probe| !probe.is_fast());
            let is_disturbed = is_busy || is_slowed;
            if !is_disturbed || attempts == self.attempts_max {
                break (figure, is_disturbed);
            }
        };
        self.taken += 1;
        self.disturbed += usize::from(is_disturbed);
        Some(figure)
    }

    /// Returns one line, and a warning if too many figures were disturbed.
    pub(crate) fn text(&self) -> String {
        let Self { attempts_max, taken, disturbed, .. } = self;
        let (share, slowed) = (OTHERS_MAX * 100.0, SLOWED_MAX * 100.0);
        let line = format!(
            "Others took more than {share:.0} % of the machine, or slowed a core by more than {slowed:.0} %, during {disturbed} of {taken} figures, after up to {attempts_max} attempts."
        );
        if *disturbed * 10 > *taken { line + " **Not a quiet machine: do not trust several workers.**" } else { line }
    }
}

/// A piece of work, and its shortest time so far.
struct Probe {
    cores: usize,
    fastest_ns: f64,
}

impl Probe {
    fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (mut probe, start) = (Self { cores, fastest_ns: f64::INFINITY }, Instant::now());
        while start.elapsed() < REFERENCE {
            let _ = probe.is_fast();
            thread::sleep(PAUSE);
        }
        probe
    }

    /// Waits for fast cores. Returns whether all cores are fast at the end.
    fn waits_for_fast_cores(&mut self) -> bool {
        let start = Instant::now();
        while !self.is_fast() {
            if start.elapsed() > PATIENCE {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }

    /// Returns whether all cores are nearly as fast now as the fastest so far.
    fn is_fast(&mut self) -> bool {
        // The shortest, because a thread may start late.
        let probe = || (0..5).map(|_| probe_ns()).fold(f64::INFINITY, f64::min);
        let took = thread::scope(|scope| {
            let others: Vec<_> = (1..self.cores).map(|_| scope.spawn(probe)).collect();
            let own = probe();
            others.into_iter().fold(vec![own], |mut took, other| {
                took.push(other.join().expect("it computes"));
                took
            })
        });
        self.fastest_ns = took.iter().copied().fold(self.fastest_ns, f64::min);
        took.iter().all(|&took| took <= (1.0 + SLOWED_MAX) * self.fastest_ns)
    }
}

/// Returns the ns of about ten microseconds of ordinary work: numbers become text and back, and go into a
/// map. A loop of additions would hardly be slowed by a neighbour.
fn probe_ns() -> f64 {
    let start = Instant::now();
    let texts = (0..200_u32).map(|number| black_box(number).wrapping_mul(0x9e37_79b1).to_string());
    let map: BTreeMap<u32, usize> = texts.filter_map(|text| Some((text.parse().ok()?, text.len()))).collect();
    black_box(map);
    start.elapsed().as_nanos() as f64
}

/// Time counted in the kernel's ticks since the machine started.
struct Ticks {
    /// All cores, busy or not.
    all: u64,
    idle: u64,
    /// This process and the children it has waited for.
    own: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        // The fields of `proc_stat(5)`: user, nice, system, idle, iowait, irq, softirq, steal; guests are in
        // user already.
        let machine = numbers(fs::read_to_string("/proc/stat").ok()?.lines().next()?);
        // The fields of `proc_pid_stat(5)` after the command's name, which may itself have spaces: utime is
        // the 12th.
        let process = fs::read_to_string("/proc/self/stat").ok()?;
        let process = numbers(process.rsplit_once(')')?.1);
        Some(Self {
            all: machine.get(..8)?.iter().sum(),
            idle: machine[3] + machine[4],
            // The state, a letter, was the first field and is no number.
            own: process.get(10..14)?.iter().sum(),
        })
    }

    /// Returns whether other processes certainly used more of the machine's time since `start` than
    /// [`OTHERS_MAX`].
    fn is_disturbed_since(&self, start: &Self) -> bool {
        // As floats, since the kernel's idle time may step back a little.
        let passed = |now: u64, then: u64| now as f64 - then as f64;
        let all = passed(self.all, start.all);
        let others = all - passed(self.idle, start.idle) - passed(self.own, start.own);
        others > OTHERS_MAX * all + DOUBT_TICKS
    }
}

/// Returns the numbers among the words of `text`; a negative one counts as 0.
fn numbers(text: &str) -> Vec<u64> {
    let words = text.split_whitespace().filter_map(|word| word.parse::<i64>().ok());
    words.map(|number| number.max(0) as u64).collect()
}
