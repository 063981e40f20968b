//! The numbers of runs, flows and engines.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of a run, a flow or an engine: different for all of a process.
///
/// # Examples
/// It tells the runs in a log apart:
/// ```
/// use anabranch::{Executor, Graph, Inputs};
///
/// # let mut g = Graph::new();
/// # let x = g.task("x", (), || 1);
/// # g.output("x", &x);
/// # let (exec, plan) = (Executor::inline(), g.compile()?);
/// let (first, second) = (exec.run(&plan, Inputs::new()), exec.run(&plan, Inputs::new()));
/// println!("run {} and run {}", first.id(), second.id());
/// assert_ne!(first.id(), second.id());
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u64);

impl RunId {
    /// That of work that was made for a test.
    pub(super) const ZERO: Self = Self(0);

    /// Returns the number itself.
    pub fn get(self) -> u64 {
        self.0
    }

    pub(super) fn of(number: u64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number that is taken when it is first asked for. Most runs need none.
pub(crate) struct LazyId(AtomicU64);

/// The numbers taken so far. Nothing depends on it but that they differ.
static TAKEN: AtomicU64 = AtomicU64::new(0);

impl LazyId {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn get(&self) -> RunId {
        // ORDERING: Relaxed, all: a number, which publishes nothing.
        let taken = self.0.load(Ordering::Relaxed);
        if taken > 0 {
            return RunId(taken);
        }
        let number = TAKEN.fetch_add(1, Ordering::Relaxed) + 1;
        match self.0.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => RunId(number),
            Err(first) => RunId(first),
        }
    }
}
