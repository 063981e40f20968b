//! The settings of a scope.

use crate::tiles::Rule;

/// How a scope streams.
///
/// ```
/// use anabranch::scope::Streaming;
///
/// // Everything in at most 27 MB, or `compile` says why that is not possible.
/// let small = Streaming::strict().memory_max(27_000_000);
/// // As many tiles as in Legate: 32 for each worker.
/// let as_legate = Streaming::relaxed().over_decompose_factor(32);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Streaming {
    pub(super) rule: Rule,
    pub(super) is_strict: bool,
    pub(super) factor: Option<usize>,
    pub(super) memory_max: Option<u64>,
    pub(super) in_flight: Option<usize>,
    pub(super) workers: Option<usize>,
}

impl Streaming {
    const fn new(rule: Rule, is_strict: bool) -> Self {
        Self { rule, is_strict, factor: None, memory_max: None, in_flight: None, workers: None }
    }

    /// Nothing streams: stores that several operations use are whole, and an operation starts after the one
    /// before has ended. Its batches run side by side. The results are the same: use it to compare.
    pub const fn off() -> Self {
        Self::new(Rule::Off, false)
    }

    /// The whole scope streams, or `compile` fails with all reasons why it does not.
    pub const fn strict() -> Self {
        Self::new(Rule::Exact, true)
    }

    /// The scope is cut into the longest parts that stream. Stores that are used in more than one of them are
    /// whole. The plan says where it is cut, and why.
    pub const fn relaxed() -> Self {
        Self::new(Rule::Exact, false)
    }

    /// Splits the largest store into so many tiles for each worker, as Legate does. The default is better:
    /// tiles of a size for which those of a batch fit into half of a core's L2 cache.
    pub const fn over_decompose_factor(self, factor: usize) -> Self {
        Self { factor: Some(factor), ..self }
    }

    /// Sets the most bytes of tiles, whole stores, buffers of transfers and parts of reductions in memory, on
    /// the host and on a device together. Tiles of the default size become smaller, until there is room for a
    /// batch for each worker, but not below 16 KiB for the tiles of a batch; on a device, for three batches,
    /// but not below 1 MiB. If that is not enough, fewer batches are in flight, or tiles are smaller still.
    /// If nothing fits, `compile` fails, and says how many bytes would do.
    ///
    /// It is the bound of one run of the scope: a pipeline may run it for several items at a time.
    pub const fn memory_max(self, bytes: u64) -> Self {
        Self { memory_max: Some(bytes), ..self }
    }

    /// Sets the most steps in flight, of which each has a batch of each operation, or several small ones one
    /// after the other. The default is twice the number of workers, so that a worker finds a batch while
    /// another one is late; with a factor, whose tiles may be large, it is the number of workers. It is less
    /// where more would need more memory than the whole stores.
    pub const fn in_flight(self, batches: usize) -> Self {
        Self { in_flight: Some(batches), ..self }
    }

    /// Sets the number of workers for which tiles are made. The default is the number of cores.
    pub const fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    pub(super) fn worker_count(&self) -> usize {
        self.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cores| cores.get()))
    }

    pub(super) fn batches_in_flight(&self) -> usize {
        let default = || self.worker_count() * if self.factor.is_some() { 1 } else { 2 };
        self.in_flight.unwrap_or_else(default)
    }

    /// Returns the fault of a number that is 0 or too large.
    pub(super) fn fault(&self) -> Option<String> {
        let numbers = [("over_decompose_factor", self.factor), ("in_flight", self.in_flight), ("workers", self.workers)];
        numbers.into_iter().find_map(|(what, value)| {
            let wrong = value.filter(|value| !(1..=NUMBER_MAX).contains(value))?;
            Some(format!("`{what}` must be from 1 to {NUMBER_MAX}, not {wrong}"))
        })
    }
}

const NUMBER_MAX: usize = 1 << 16;
